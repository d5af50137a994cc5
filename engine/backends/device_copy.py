"""Columns of a step on their way to the device: one pinned buffer, one copy."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Column = NDArray[np.generic]

_ALIGN_BYTES = 16  # a kernel that is compiled for aligned addresses may then read any column
_TYPES = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.float32): torch.float32,
}


class Upload:
    """Copies do not wait for the device, and the buffer is written again by the next upload: every
    step must end before the one after it is prepared, which it does, since its tokens are read."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._host = self._pinned(1 << 16)

    def __call__(self, **columns: Column) -> dict[str, Tensor]:
        """The same columns on the device, under their names."""
        sizes = [-(-c.nbytes // _ALIGN_BYTES) * _ALIGN_BYTES for c in columns.values()]
        ends = np.cumsum(sizes).tolist()
        if ends[-1] > len(self._host):
            self._host = self._pinned(2 * ends[-1])
        host = self._host.numpy()
        starts = [end - size for end, size in zip(ends, sizes, strict=True)]
        for start, column in zip(starts, columns.values(), strict=True):
            host[start : start + column.nbytes] = (
                np.ascontiguousarray(column).view(np.uint8).ravel()
            )
        there = torch.empty(ends[-1], dtype=torch.uint8, device=self._device)
        there.copy_(self._host[: ends[-1]], non_blocking=True)
        return {
            name: there[start : start + c.nbytes].view(_TYPES[c.dtype]).view(c.shape)
            for start, (name, c) in zip(starts, columns.items(), strict=True)
        }

    def _pinned(self, size_bytes: int) -> Tensor:
        pinned = self._device.type == "cuda"
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=pinned)


class Download:
    """Token ids on their way back: int64, into pinned memory, behind the kernels that make them."""

    def __init__(self, device: torch.device, most: int) -> None:
        self._device = device
        self._host = self._pinned(most)
        self._count = 0

    def start(self, tokens: Tensor) -> None:
        """tokens: int64 [n] on the device."""
        self._count = len(tokens)
        if self._count > len(self._host):
            self._host = self._pinned(2 * self._count)
        self._host[: self._count].copy_(tokens, non_blocking=True)

    def wait(self) -> NDArray[np.int64]:
        """The tokens of the last start; the step has then ended."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        return self._host[: self._count].numpy().copy()

    def _pinned(self, most: int) -> Tensor:
        return torch.empty(most, dtype=torch.int64, pin_memory=self._device.type == "cuda")
