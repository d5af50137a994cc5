"""RMSNorm: x / sqrt(mean(x^2) + eps) * g (Zhang and Sennrich 2019, equation 4)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """x: [rows, hidden], gain: [hidden] -> [rows, hidden]."""
    return functional.rms_norm(x, (x.shape[-1],), gain, eps)
