"""SwiGLU's gate: silu(gate) * up (Shazeer 2020, equation 6)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """gate_up: [rows, 2 * intermediate], gate first -> [rows, intermediate]."""
    half = gate_up.shape[-1] // 2
    return functional.silu(gate_up[:, :half]).mul_(gate_up[:, half:])
