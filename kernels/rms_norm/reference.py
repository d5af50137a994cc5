"""RMSNorm: x / sqrt(mean(x^2) + eps) * g (Zhang and Sennrich 2019, equation 4)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """x: [rows, hidden], gain: [hidden] -> [rows, hidden]."""
    return functional.rms_norm(x, (x.shape[-1],), gain, eps)


def add_rms_norm(x: Tensor, residual: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x, residual: [rows, hidden] -> their sum, and its norm."""
    total = residual + x
    return total, rms_norm(total, gain, eps)
