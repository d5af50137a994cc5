"""The vector kernels' matmul against float64: every kind of weight, epilogue and number of rows.

All kinds add up in float32, and the reference has the weights that were packed: so all are held to
float32's tolerance.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.linear.pack import dequantised, interleave_gates
from tests.kernels.native import Linear
from tests.kernels.oracle import assert_close, draw

WEIGHTS = ("fp32", "bf16", "int8", "int4")
ROWS = (*range(1, 8), 13, 64, 100)
SHAPES = [(32, 64), (32, 1), (64, 100), (96, 200), (576, 960), (1536, 576)]


def rows_for(linear: Linear, rows: int) -> Tensor:
    return draw(rows, linear.inner, seed=1).to(linear.rows_dtype)


def made(dtype: str, inner: int, outer: int) -> tuple[Linear, Tensor]:
    """A packed layer, and the weight [inner, outer] that it stands for."""
    weight = draw(outer, inner)
    return Linear(weight, dtype), dequantised(weight, dtype).double().T


@pytest.mark.parametrize("dtype", WEIGHTS)
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_results_are_stored_or_added(dtype: str, inner: int, outer: int) -> None:
    linear, weight = made(dtype, inner, outer)
    x = rows_for(linear, max(ROWS))
    residual = draw(len(x), linear.width, seed=2)
    expected = x.double() @ weight
    for rows in ROWS:
        stored, added = linear.store(x[:rows]), linear.add(x[:rows], residual[:rows])
        assert_close(stored[:, :outer], expected[:rows], inner)
        assert_close(added[:, :outer], residual[:rows, :outer].double() + expected[:rows], inner)
        assert not stored[:, outer:].any()  # outputs that only fill up the last panel
        assert torch.equal(added[:, outer:], residual[:rows, outer:])


@pytest.mark.parametrize("dtype", WEIGHTS)
@pytest.mark.parametrize(("inner", "outer"), [(32, 32), (96, 160), (576, 1536)])
def test_gates_multiply_their_ups(dtype: str, inner: int, outer: int) -> None:
    gate, up = draw(outer, inner) / inner**0.5, draw(outer, inner, seed=1)
    linear = Linear(interleave_gates(gate, up), dtype)
    x = rows_for(linear, max(ROWS))
    gates, ups = (x.double() @ dequantised(w, dtype).double().T for w in (gate, up))
    expected = gates * torch.sigmoid(gates) * ups
    for rows in ROWS:
        exact, rounded = (linear.gated(x[:rows], t) for t in (torch.float32, torch.bfloat16))
        assert_close(exact, expected[:rows], inner)
        assert torch.equal(rounded, exact.bfloat16())


@pytest.mark.parametrize("dtype", WEIGHTS)
def test_a_row_is_the_same_bits_in_every_batch(dtype: str) -> None:
    linear, _ = made(dtype, 96, 200)
    x, residual = rows_for(linear, 130), draw(130, linear.width, seed=2)
    stored, added = linear.store(x), linear.add(x, residual)
    gated = linear.gated(x, torch.float32)
    for rows in range(1, 131):
        first = 130 - rows
        assert torch.equal(linear.store(x[first:]), stored[first:])
    for row in range(130):
        one = slice(row, row + 1)
        assert torch.equal(linear.store(x[one]), stored[one])
    for row in range(0, 130, 9):
        part = slice(row, row + row % 7 + 1)
        assert torch.equal(linear.add(x[part], residual[part]), added[part])
        assert torch.equal(linear.gated(x[part], torch.float32), gated[part])


@pytest.mark.parametrize("dtype", WEIGHTS)
@pytest.mark.parametrize("rows", [1, 2, 13, 64])
def test_threads_share_all_of_the_work(dtype: str, rows: int) -> None:
    """Panels are shared out whole, and what is left over by rows; 4 panels for 1 to 7 threads."""
    linear, _ = made(dtype, 64, 250)
    x, residual = rows_for(linear, rows), draw(rows, linear.width, seed=2)
    for threads in range(2, 8):
        assert torch.equal(linear.store(x, threads), linear.store(x))
        assert torch.equal(linear.add(x, residual, threads), linear.add(x, residual))
        for out in (torch.float32, torch.bfloat16):
            assert torch.equal(linear.gated(x, out, threads), linear.gated(x, out))


@pytest.mark.parametrize("dtype", WEIGHTS)
def test_panels_in_the_wrong_order_are_caught(dtype: str) -> None:
    """A planted error: the record begins at the second panel of two that are nearly alike."""
    panel = draw(64, 96)
    weight = torch.cat([panel, panel + 0.02 * draw(64, 96, seed=3)])
    linear = Linear(weight, dtype)
    x = rows_for(linear, 5)
    expected = x.double() @ dequantised(weight, dtype).double().T
    assert_close(linear.store(x)[:, :64], expected[:, :64], 96)
    with pytest.raises(AssertionError, match="error"):
        assert_close(linear.store(x)[:, 64:], expected[:, :64], 96)
