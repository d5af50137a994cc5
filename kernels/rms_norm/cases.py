"""Norms on odd shapes: one row and several, dimensions that fill no tile."""

from __future__ import annotations

import torch

from kernels.checking.case import Case, Values
from kernels.rms_norm.reference import add_rms_norm, rms_norm

EPS = 1e-5
SHAPES = ((1, 576), (7, 576), (33, 33), (3, 4096))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def cases() -> list[Case]:
    return [
        _case(op, dtype, rows, dim)
        for op in ("rms_norm", "add_rms_norm")
        for dtype in DTYPES
        for rows, dim in SHAPES
    ]


def _case(op: str, dtype: torch.dtype, rows: int, dim: int) -> Case:
    def inputs(generator: torch.Generator, device: torch.device) -> Values:
        x, residual, weight = (
            torch.randn(*shape, generator=generator, device=device).to(dtype)
            for shape in ((rows, dim), (rows, dim), (dim,))
        )
        found = {"x": x, "weight": weight}
        return found if op == "rms_norm" else {**found, "residual": residual}

    return Case(op, dtype, f"{rows} x {dim}", dim, inputs, _outputs, _RUN[op], _REFERENCE[op])


def _outputs(values: Values) -> Values:
    """The residual stream is changed in place, so it is an output with a content."""
    out = {"out": torch.full_like(values["x"], float("nan"))}
    return {**out, "residual": values["residual"]} if "residual" in values else out


def _run_plain(values: Values, out: Values) -> None:
    from kernels.rms_norm.triton_impl import rms_norm as kernel

    kernel(values["x"], values["weight"], EPS, out["out"])


def _run_added(values: Values, out: Values) -> None:
    from kernels.rms_norm.triton_impl import add_rms_norm as kernel

    kernel(values["x"], out["residual"], values["weight"], EPS, out["out"])


def _plain(values: Values, initial: Values) -> Values:
    return {"out": rms_norm(values["x"], values["weight"], EPS)}


def _added(values: Values, initial: Values) -> Values:
    total, normed = add_rms_norm(values["x"], initial["residual"], values["weight"], EPS)
    return {"out": normed, "residual": total}


_RUN = {"rms_norm": _run_plain, "add_rms_norm": _run_added}
_REFERENCE = {"rms_norm": _plain, "add_rms_norm": _added}
