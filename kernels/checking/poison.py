"""Memory in which a kernel's mistakes show: NaN around and between what it may touch.

A kernel that reads past its inputs reads NaN (or an integer that no table holds) and its output is
no longer a number; one that writes past its outputs changes bytes that are compared afterwards; and
what it forgets to write is still NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

GUARD_BYTES = 4096  # before and after, and a multiple of every alignment that a kernel relies on
BYTE = 0x5A  # of integers: four make 1,515,870,810, an index that is far from everything


class Guarded:
    """A copy of a tensor, with its strides, in poisoned memory."""

    def __init__(self, tensor: Tensor) -> None:
        around = GUARD_BYTES // tensor.element_size()
        buffer = poisoned(_extent(tensor) + 2 * around, tensor.dtype, tensor.device)
        self.view = buffer.as_strided(tensor.shape, tensor.stride(), around)
        self.view.copy_(tensor)
        self._raw = _raw(buffer)
        self._before = self._raw.clone()

    def spilled(self) -> bool:
        """Whether anything outside the view has changed."""
        now = self._raw.clone()
        self._inside(now).copy_(self._inside(self._before))
        return not torch.equal(now, self._before)

    def changed(self) -> bool:
        """Whether anything at all has changed."""
        return not torch.equal(self._raw, self._before)

    def same_bits(self, other: Guarded) -> bool:
        return torch.equal(self._raw, other._raw)

    def _inside(self, raw: Tensor) -> Tensor:
        return raw.as_strided(self.view.shape, self.view.stride(), self.view.storage_offset())


def guard(values: dict[str, Any]) -> dict[str, Guarded]:
    """Every tensor among values, moved."""
    return {name: Guarded(v) for name, v in values.items() if isinstance(v, Tensor)}


def poisoned(elements: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[elements] of NaN; integers of bytes 0x5A; booleans True."""
    if dtype is torch.bool:
        return torch.ones(elements, dtype=dtype, device=device)
    if dtype.is_floating_point:
        nan = torch.tensor([float("nan")]).to(dtype).to(device)
        return nan.expand(elements).clone()
    raw = torch.full((elements * dtype.itemsize,), BYTE, dtype=torch.uint8, device=device)
    return raw.view(dtype)


def _extent(tensor: Tensor) -> int:
    """Elements from the first to the last, with the gaps of its strides."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


def _raw(tensor: Tensor) -> Tensor:
    """The same memory as integers, since NaN is not equal to itself."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(kinds[tensor.element_size()])
