"""Memory with guard bands, for code that gets addresses."""

from __future__ import annotations

import torch
from torch import Tensor

NAN_BYTE = 0xFF  # four are a NaN in float32, two in bfloat16
BAND_BYTE = 0xA5
BAND_BYTES = 64


class Rows:
    """Rows of bytes, with a band before each and behind the last that nobody may write."""

    def __init__(self, rows: int, row_bytes: int, band: int) -> None:
        self._band, self._row_bytes = band, row_bytes
        self.stride = row_bytes + BAND_BYTES
        self._all = torch.full((BAND_BYTES + rows * self.stride,), band, dtype=torch.uint8)
        self._rows = self._all[BAND_BYTES:].view(rows, self.stride)
        self.address = self._rows.data_ptr()

    @property
    def inside(self) -> Tensor:
        """uint8 [rows, row_bytes], a view."""
        return self._rows[:, : self._row_bytes]

    def read(self, dtype: torch.dtype) -> Tensor:
        """[rows, row_bytes / element] once all bands are as they were."""
        bands = (self._all[:BAND_BYTES], self._rows[:, self._row_bytes :])
        assert all(bool((band == self._band).all()) for band in bands), "a guard band was written"
        return self.inside.contiguous().view(dtype)


def given(values: Tensor) -> Rows:
    """An input [rows, width] between NaNs, so that reading past a row shows in the result."""
    rows = Rows(len(values), values.shape[1] * values.element_size(), NAN_BYTE)
    rows.inside.copy_(values.contiguous().view(torch.uint8))
    return rows


def poisoned(rows: int, row_bytes: int) -> Rows:
    """An output of NaNs between bands of a pattern."""
    output = Rows(rows, row_bytes, BAND_BYTE)
    output.inside.fill_(NAN_BYTE)
    return output
