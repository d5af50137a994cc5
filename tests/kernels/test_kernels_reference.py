"""Each op against a float64 reference, with odd shapes and poisoned memory around the inputs."""

from __future__ import annotations

import pytest
import torch

from kernels.attention import chunk_attention, decode_attention, kv_views
from kernels.linear import MIN_ROWS, PackedLinear
from kernels.rms_norm import rms_norm
from kernels.rope import RopeScaling, apply_rope_, rope_tables
from kernels.silu_and_mul import silu_and_mul
from tests.kernels.oracle import DTYPES, assert_close, attention_oracle, draw


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [2, 3, 17, 63, 130])
@pytest.mark.parametrize(("inner", "outer"), [(576, 960), (1536, 576), (63, 100)])
def test_packed_linear(dtype: torch.dtype, rows: int, inner: int, outer: int) -> None:
    weight, x = draw(outer, inner, dtype=dtype), draw(rows, inner, dtype=dtype, seed=1)
    residual = draw(rows, outer, dtype=dtype, seed=2)
    linear = PackedLinear(weight)
    expected = x.double() @ weight.double().T
    assert_close(linear(x), expected, inner)
    assert_close(linear.add_to(x, residual), residual.double() + expected, inner)


@pytest.mark.parametrize("dtype", DTYPES)
def test_packed_linear_with_bias(dtype: torch.dtype) -> None:
    weight, bias = draw(96, 64, dtype=dtype), draw(96, dtype=dtype, seed=3)
    x = draw(5, 64, dtype=dtype, seed=1)
    expected = x.double() @ weight.double().T + bias.double()
    assert_close(PackedLinear(weight, bias)(x), expected, 64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inner", "outer"), [(576, 960), (576, 3072), (1536, 576)])
def test_a_row_does_not_depend_on_its_neighbours(
    dtype: torch.dtype, inner: int, outer: int
) -> None:
    """What makes a sequence's tokens the same in every batch; from MIN_ROWS rows on."""
    linear = PackedLinear(draw(outer, inner, dtype=dtype) * 0.02)
    x = draw(64, inner, dtype=dtype, seed=1)
    alone = linear(x[:MIN_ROWS])
    for rows in (5, 8, 17, 64):
        assert torch.equal(linear(x[:rows])[:MIN_ROWS], alone)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(dtype: torch.dtype) -> None:
    x, gain = draw(7, 63, dtype=dtype), draw(63, dtype=dtype, seed=1)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain.double()
    assert_close(rms_norm(x, gain, 1e-5), expected, 63)


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_and_mul(dtype: torch.dtype) -> None:
    x = draw(7, 2 * 63, dtype=dtype)
    gate, up = x.double().chunk(2, -1)
    assert_close(silu_and_mul(x), gate * torch.sigmoid(gate) * up, 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_rotates_pairs_and_leaves_the_rest(dtype: torch.dtype) -> None:
    """Element i pairs with i + dim / 2 and turns by position * theta^(-2i / dim)."""
    rows, dim, theta = 5, 8, 10_000.0
    positions = torch.tensor([0, 1, 7, 100, 499])
    buffer = draw(rows, 4, dim, dtype=dtype)
    before = buffer.clone()
    cos, sin = rope_tables(500, dim, theta, dtype, None)
    apply_rope_(buffer[:, :3], cos[positions], sin[positions])
    angles = positions.double()[:, None] * theta ** (-torch.arange(0, dim, 2).double() / dim)
    pairs = torch.complex(*before[:, :3].double().chunk(2, -1))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)[:, None]
    # The angle itself is rounded to the dtype's precision: positions up to 499 need some room.
    expected = torch.cat([turned.real, turned.imag], -1)
    error = (buffer[:, :3].double() - expected).abs().max().item()
    assert error < (1e-4 if dtype is torch.float32 else 6e-2)
    assert torch.equal(buffer[:, 3], before[:, 3])


def test_llama3_scaling_keeps_short_wavelengths_and_stretches_long_ones() -> None:
    scaling = RopeScaling(8.0, 1.0, 4.0, 8192)
    plain, _ = rope_tables(2, 64, 500_000.0, torch.float32, None)
    scaled, _ = rope_tables(2, 64, 500_000.0, torch.float32, scaling)
    turn, stretched = plain[1, 0, :32].arccos(), scaled[1, 0, :32].arccos()
    assert torch.allclose(turn[:8], stretched[:8])
    assert stretched[-1].item() == pytest.approx(turn[-1].item() / 8, abs=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "start"), [(1, 0), (5, 0), (63, 0), (300, 0), (7, 40), (260, 13)])
def test_chunk_attention(dtype: torch.dtype, rows: int, start: int) -> None:
    heads, kv_heads, dim = 6, 2, 16
    q = draw(rows, heads, dim, dtype=dtype)
    k, v = (draw(start + rows, kv_heads, dim, dtype=dtype, seed=s) for s in (1, 2))
    found = chunk_attention(q, k.transpose(0, 1), v.transpose(0, 1), start)
    assert_close(found, attention_oracle(q, k, v, start), dim)


@pytest.mark.parametrize("dtype", DTYPES)
def test_decode_attention_never_sees_masked_slots(dtype: torch.dtype) -> None:
    """Guard bands: what lies past a sequence's context is huge, and must not leak."""
    heads, kv_heads, dim, context = 6, 2, 16, 48
    lengths = [1, 17, 48]
    q = draw(3, heads, dim, dtype=dtype)
    rows = draw(3, context, 2, kv_heads, dim, dtype=dtype, seed=1)
    for row, length in enumerate(lengths):
        rows[row, length:] = 1e4
    mask = (torch.arange(context) < torch.tensor(lengths)[:, None])[:, None, None, :]
    found = decode_attention(q, *kv_views(rows), mask)
    for row, length in enumerate(lengths):
        k, v = rows[row, :length, 0], rows[row, :length, 1]
        expected = attention_oracle(q[row : row + 1], k, v, length - 1)
        assert_close(found[row : row + 1], expected, dim)
