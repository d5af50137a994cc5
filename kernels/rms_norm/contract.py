"""What the norms may be given. Rows and their weight have one dtype; statistics are fp32 inside."""

from __future__ import annotations

from kernels.contract import Arg, Contract
from kernels.dtypes import FLOATS

_X = Arg("x", FLOATS, ("rows", "dim"))
_WEIGHT = Arg("weight", FLOATS, ("dim",), same_as="x")
_OUT = Arg("out", FLOATS, ("rows", "dim"), same_as="x", optional=True, written=True)
_RESIDUAL = Arg("residual", FLOATS, ("rows", "dim"), same_as="x", written=True)

CONTRACTS = {
    "rms_norm": Contract("rms_norm", (_X, _WEIGHT, _OUT)),
    "add_rms_norm": Contract("add_rms_norm", (_X, _RESIDUAL, _WEIGHT, _OUT)),
}
