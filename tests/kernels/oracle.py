"""What all kernels are held to: float64 references and one table of tolerances."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Relative to the largest value, grown with the reduced dimension.
TOLERANCE = {torch.float32: 1.3e-6, torch.bfloat16: 1.6e-2}
DTYPES = list(TOLERANCE)


def assert_close(
    found: Tensor, expected: Tensor, reduced: int, dtype: torch.dtype | None = None
) -> None:
    """dtype: the precision of the math, where it is not that of what was found."""
    allowed = TOLERANCE[dtype or found.dtype] * math.sqrt(max(reduced / 64, 1))
    scale = expected.abs().max().item()
    error = (found.double() - expected).abs().max().item() / scale
    assert not found.isnan().any()
    assert error <= allowed, f"error {error:.2e}, allowed {allowed:.2e}"


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attention_oracle(q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
    """q: [rows, heads, dim]; k, v: [context, kv_heads, dim]; row i sees start + i + 1 tokens."""
    rows, heads, dim = q.shape
    group = heads // k.shape[1]
    out = torch.empty(rows, heads, dim, dtype=torch.float64)
    for row in range(rows):
        seen = start + row + 1
        for head in range(heads):
            keys, values = k[:seen, head // group].double(), v[:seen, head // group].double()
            weights = torch.softmax(keys @ q[row, head].double() / math.sqrt(dim), 0)
            out[row, head] = weights @ values
    return out.view(rows, heads * dim)
