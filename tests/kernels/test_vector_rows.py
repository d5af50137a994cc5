"""Ops on a single row: exp, the gate, RMSNorm, and rotation into the paged cache."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernels.attention.cache_layout import PAGE_TOKENS
from kernels.rope import rope_tables
from tests.kernels.native import Pages, exp_of, rms_norm_of, rope_of, silu_and_mul_of
from tests.kernels.oracle import DTYPES, assert_close, draw

EPSILON = torch.finfo(torch.float32).eps  # an ulp of 1


def test_exp_is_exact_to_two_ulps() -> None:
    """Every part of the range, finely around 0, and at the borders where 2^n changes."""
    borders = (torch.arange(-125, 127).double() + 0.5) * math.log(2)
    x = torch.cat(
        [
            torch.linspace(-87, 88, 1 << 17),
            torch.linspace(-1, 1, 1 << 14),
            2.0 ** torch.arange(-40, 6).float(),
            -(2.0 ** torch.arange(-40, 6).float()),
            borders.float(),
            torch.nextafter(borders.float(), torch.tensor(100.0)),
            torch.tensor([-87.0, 88.0, 0.0, -0.0]),
        ]
    )
    x = x[: len(x) // 16 * 16]
    exact = x.double().exp()
    assert ((exp_of(x).double() - exact).abs() / exact).max().item() < 2 * EPSILON
    assert exp_of(torch.zeros(16)).eq(1).all()


def test_exp_is_clamped_outside() -> None:
    far = torch.tensor([-87.5, -88, -1e3, -1e30, -3e38, -math.inf] + [-87.0] * 10)
    assert torch.equal(exp_of(far), exp_of(torch.full((16,), -87.0)))
    far = torch.tensor([88.5, 89, 1e3, 1e30, 3e38, math.inf] + [88.0] * 10)
    assert torch.equal(exp_of(far), exp_of(torch.full((16,), 88.0)))


def test_the_gate_over_its_whole_range() -> None:
    """Below -88 exp is clamped, and so a gate is a few e-39 of itself instead of nothing."""
    tiny, huge = torch.logspace(-30, 2, 2048), torch.logspace(2, 38, 2032)
    gate = torch.cat([tiny, -tiny, huge, -huge, torch.tensor([0.0, -0.0] * 8)])
    exact = gate.double() / (1 + (-gate.double()).exp())
    found = silu_and_mul_of(gate, torch.full_like(gate, 2.0)).double() / 2
    clamped = math.exp(-88) * gate.double().abs() * (1 + 4 * EPSILON)
    assert bool(((found - exact).abs() <= 4 * EPSILON * exact.abs() + clamped).all())
    assert silu_and_mul_of(torch.zeros(16), draw(16)).eq(0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [16, 32, 96, 576, 1536])
def test_rms_norm(dtype: torch.dtype, width: int) -> None:
    x, gain = draw(7, width), draw(width, seed=1)
    x *= torch.logspace(-6, 9, 7)[:, None]
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain.double()
    found = rms_norm_of(x, gain, 1e-5, dtype)
    for row in range(7):  # each at its own scale
        assert_close(found[row], expected[row], width)


def test_rms_norm_of_nothing_is_nothing() -> None:
    assert not rms_norm_of(torch.zeros(1, 64), draw(64), 1e-6, torch.float32).any()


def rotated(x: Tensor, position: int, theta: float) -> Tensor:
    """float64 [n, dim]: element i pairs with i + dim / 2, turned by position * theta^(-2i / dim).

    The angle is rounded to float32, as the tables have it.
    """
    dim = x.shape[-1]
    frequency = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angle = (position * frequency).double()
    turned = torch.complex(*x.double().chunk(2, -1)) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], -1)


@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(9, 3, 64), (4, 4, 32), (8, 1, 128)])
@pytest.mark.parametrize("position", [0, 1, 14, 15, 16, 33, 511])
def test_rope_fills_one_place_of_the_cache(
    bf16: bool, heads: int, kv_heads: int, dim: int, position: int
) -> None:
    """Queries are rotated and scaled, keys rotated, values kept; all else is left alone."""
    qkv = draw(1, (heads + 2 * kv_heads) * dim, seed=position)
    pages, page = Pages(3, kv_heads, dim, bf16), 1
    cos, signed_sin = rope_tables(512, dim, 1e4, torch.float32, None)
    cos, sin = cos[:, 0, : dim // 2].contiguous(), signed_sin[:, 0, dim // 2 :].contiguous()
    q = rope_of(qkv, cos, sin, heads, pages, position, page)
    given_q, given_k, given_v = qkv.view(-1, dim).split([heads, kv_heads, kv_heads])
    token = page * PAGE_TOKENS + position % PAGE_TOKENS
    assert_close(q.view(-1, dim), rotated(given_q, position, 1e4) * dim**-0.5, 1)
    assert_close(pages(0)[token], rotated(given_k, position, 1e4), 1)
    assert torch.equal(pages(1)[token], given_v.to(pages.dtype))
    for part in (0, 1):
        untouched = torch.cat([pages(part)[:token], pages(part)[token + 1 :]])
        assert untouched.isnan().all()


def test_a_position_off_by_one_is_caught() -> None:
    """A planted error: the tables' row of the next position."""
    cos, signed_sin = rope_tables(512, 64, 1e4, torch.float32, None)
    cos, sin = cos[1:, 0, :32].contiguous(), signed_sin[1:, 0, 32:].contiguous()
    qkv = draw(1, 3 * 64)
    for bf16 in (False, True):
        q = rope_of(qkv, cos, sin, 1, Pages(1, 1, 64, bf16), 7, 0)
        with pytest.raises(AssertionError, match="error"):
            assert_close(q, rotated(qkv[:, :64], 7, 1e4) / 8, 1)
