"""y = x W^T (+ b) with W packed once for oneDNN.

Plain bf16 `F.linear` with few rows reads memory at a quarter of its bandwidth on a CPU; a weight
that oneDNN has laid out in blocks is streamed two to four times faster, and fp32 matmul doubles.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# One layout must serve 1 to 512 rows. Measured: 32 rows is best in fp32, 64 in bf16; a layout for
# a single row makes fp32 slower than no packing at all.
_PACK_ROWS = {torch.float32: 32, torch.bfloat16: 64}

# Fewer rows than this are filled up with copies of the first. oneDNN takes another path for a
# single row, whose sums differ in the last bit, and rows must not depend on their neighbours; and
# its kernels for two rows stream weights slower than those for four (measured: 12.1 against 9.9 ms
# for all linears of a 135M model in bf16, 22 against 17 ms in fp32).
MIN_ROWS = 4


class PackedLinear:
    """A linear layer. weight: [out, in], bias: [out] or None; both float32 or bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        self.bias = bias
        self._packed = _can_pack(weight.dtype)
        self.weight = (
            torch.ops.mkldnn._reorder_linear_weight(
                weight.contiguous(), _PACK_ROWS.get(weight.dtype, 32)
            )
            if self._packed
            else weight.contiguous()
        )

    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows >= MIN_ROWS, in] -> [rows, out]."""
        if not self._packed:
            return functional.linear(x, self.weight, self.bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y

    def add_to(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + x W^T in one pass. x: [rows, in], residual: [rows, out]."""
        if not self._packed:
            return residual + functional.linear(x, self.weight, self.bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, self.weight, self.bias, "add"
        )
        return y


def _can_pack(dtype: torch.dtype) -> bool:
    """Whether this build of torch and this CPU can pack a weight of this dtype."""
    if not torch._C._has_mkldnn or dtype not in _PACK_ROWS:
        return False
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return True
