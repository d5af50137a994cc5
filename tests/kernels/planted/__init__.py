"""Mistakes of the usual kinds, planted into copies of the real kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Planted:
    """In a copy of `module`, `right` (which stands there once) is replaced by `wrong`."""

    op: str
    module: str
    right: str
    wrong: str


PLANTED = {
    "wrong stride": Planted(
        "silu_and_mul",
        "kernels.silu_and_mul.triton_impl",
        "gate_up + row * 2 * dim",
        "gate_up + row * dim",
    ),
    "missing mask": Planted(
        "rms_norm",
        "kernels.rms_norm.triton_impl",
        "normed = value * scale[:, None] * gain[None, :]\n    tl.store(out + at, "
        "normed.to(out.dtype.element_ty), mask=inside)\n\n\n@triton.jit\n",
        "normed = value * scale[:, None] * gain[None, :]\n    tl.store(out + at, "
        "normed.to(out.dtype.element_ty))\n\n\n@triton.jit\n",
    ),
    "off-by-one block": Planted(
        "paged_decode",
        "kernels.attention.triton_tile",
        "table + tokens // BLOCK_SIZE",
        "table + (tokens + 1) // BLOCK_SIZE",
    ),
}
