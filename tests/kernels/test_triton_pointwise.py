"""Norms, rotation, sampling, weight-only matmuls: what `stepscope kernels check` does not say."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.linear.pack import dequantised as packed_values
from kernels.linear.pack import quantise_int4, quantise_int8
from kernels.pointwise_tiles import ELEMENTS, WARP_SIZES, power_of_two, whole_rows
from kernels.quantised_linear import reference as quantised
from kernels.quantised_linear.tiles import LEAST_STEPS, OUTPUTS, PROGRAMS, WIDTH, split
from kernels.rope.reference import rope_and_cache, rope_tables
from kernels.sampling.philox import philox, uniform
from kernels.sampling.reference import nucleus, sample
from kernels.sampling.tiles import WAYS, search

INTERPRETED = "tests.kernels.pointwise_child"


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """What the kernels say in an interpreter of their own; see pointwise_child."""
    command = [sys.executable, "-m", INTERPRETED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- random numbers ---


def test_philox_gives_the_published_words() -> None:
    """Known answers of philox4x32-10 from the authors' Random123 (kat_vectors)."""
    known = {
        0: (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        0xFFFFFFFF: (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    }
    for word, expected in known.items():
        w = torch.tensor(word)
        assert tuple(int(x) for x in philox((w, w), (w, w, w, w))) == expected


def test_uniform_numbers_are_even_and_a_function_of_seed_and_step() -> None:
    steps = torch.arange(20_000, dtype=torch.int32)
    seeds = torch.full((20_000,), -5, dtype=torch.int64)
    u = uniform(seeds, steps)
    assert u.dtype == torch.float32
    assert u.min() >= 0
    assert u.max() < 1
    counts = torch.histc(u, bins=20, min=0, max=1)
    assert _chi_square(counts, torch.full((20,), 1000.0)) < 43.8  # 19 degrees, one in 1,000
    assert torch.equal(uniform(seeds[7:9], steps[7:9]), u[7:9])
    assert not torch.equal(uniform(seeds + 1, steps), u)


def test_the_kernel_draws_philox_of_seed_and_step(interpreted: dict[str, Any]) -> None:
    """Over a flat row of 2^12 tokens the token is the first twelve bits of the number."""
    seeds, steps = torch.tensor(interpreted["seeds"]), torch.tensor(interpreted["steps"])
    expected = (uniform(seeds, steps.to(torch.int32)).double() * 4096).to(torch.int64)
    assert interpreted["flat_tokens"] == expected.tolist()


# --- sampling ---


@pytest.mark.parametrize(("top_p", "kept"), [(1.0, 6), (0.72, 3), (0.69, 2), (0.0, 1)])
def test_tokens_come_as_often_as_they_should(top_p: float, kept: int) -> None:
    """Chi-square of 20,000 draws, whose seeds are fixed, at one in 1,000."""
    p = torch.tensor([0.05, 0.4, 0.15, 0.3, 0.07, 0.03], dtype=torch.float64)
    n = 20_000
    rows = (2.0 * p.log()).float().expand(n, 6)
    tokens = sample(
        rows,
        torch.full((n,), 2.0),
        torch.full((n,), top_p),
        torch.full((n,), 11, dtype=torch.int64),
        torch.arange(n, dtype=torch.int32),
    )
    likeliest = p.argsort(descending=True)[:kept]
    counts = torch.bincount(tokens, minlength=6).double()
    assert counts[likeliest].sum() == n  # nothing outside the nucleus
    expected = n * p[likeliest] / p[likeliest].sum()
    limit = {1: 0.001, 2: 10.8, 3: 13.8, 6: 20.5}[kept]
    assert _chi_square(counts[likeliest], expected) < limit


def test_equal_tokens_are_kept_or_left_out_together() -> None:
    p = torch.tensor([[0.2, 0.3, 0.2, 0.2, 0.1]], dtype=torch.float64)
    assert (nucleus(p, torch.tensor([0.4])) > 0).tolist() == [[True, True, True, True, False]]
    assert (nucleus(p, torch.tensor([0.29])) > 0).tolist() == [[False, True, False, False, False]]


def test_greedy_takes_the_first_of_equals(interpreted: dict[str, Any]) -> None:
    assert interpreted["tied_greedy"] == 5


def test_a_row_of_sampling_does_not_depend_on_its_neighbours(interpreted: dict[str, Any]) -> None:
    assert interpreted["alone"] == interpreted["together"]
    assert len(set(interpreted["together"])) > 1


@pytest.mark.parametrize("bits", [16, 32])
def test_the_search_reaches_every_key(bits: int) -> None:
    """Each round cuts the last one's distance into sixteen, from all keys down to one."""
    plan = search(bits, "top_p")
    assert plan.widths[0] * WAYS == 2**bits
    assert all(a == b * WAYS for a, b in zip(plan.widths, plan.widths[1:], strict=False))
    assert plan.widths[-1] == 1
    last = plan.lowest + sum(width * (WAYS - 1) for width in plan.widths)
    assert (plan.lowest, last) == (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# --- rows ---


@given(st.integers(1, 16384), st.sampled_from(WARP_SIZES))
def test_a_tile_holds_whole_rows_and_a_thread_loads_128_bits(
    dim: int, archs: tuple[str, ...]
) -> None:
    tile = whole_rows(dim, archs[0])
    threads = tile.warps * (64 if archs == ("gfx942",) else 32)
    assert dim <= tile.columns < 2 * dim or tile.columns == 1
    assert threads <= 1024
    assert tile.rows * tile.columns >= ELEMENTS * threads


def test_fp8_bits_are_those_of_torch(interpreted: dict[str, Any]) -> None:
    """Every float16 but those past 448, where the kernel saturates and torch gives NaN."""
    assert interpreted["fp8_wrong"] == 0
    assert interpreted["fp8_largest"] == [448.0, -448.0]
    assert interpreted["fp8_nan"] is True


def test_rope_and_cache_turns_pairs_and_leaves_v_and_other_slots() -> None:
    """Against the rotation of complex numbers, as test_kernels_reference has it."""
    rows, heads, kv_heads, dim = 3, 2, 1, 4
    qkv = torch.randn(rows, heads + 2, dim, generator=torch.Generator().manual_seed(0)).double()
    cos, sin = rope_tables(50, dim, 100.0, torch.float64, None)
    tables = (cos[:, 0, : dim // 2], sin[:, 0, dim // 2 :])
    positions, slots = torch.tensor([0, 7, 31]), torch.tensor([4, -1, 2])
    cache = torch.full((6, 2, kv_heads, dim), 9.0, dtype=torch.float64)
    turned, stored = rope_and_cache(qkv, positions, *tables, slots, cache, heads)
    angles = positions.double()[:, None] * torch.tensor([1.0, 0.1], dtype=torch.float64)
    pairs = torch.complex(qkv[..., : dim // 2], qkv[..., dim // 2 :])
    expected = pairs[:, :3] * torch.polar(torch.ones_like(angles), angles)[:, None]
    torch.testing.assert_close(turned[:, :3, :2], expected.real, atol=1e-6, rtol=0)
    torch.testing.assert_close(turned[:, :3, 2:], expected.imag, atol=1e-6, rtol=0)
    assert torch.equal(turned[:, 3], qkv[:, 3])
    assert torch.equal(stored[[4, 2], 0, 0], turned[[0, 2], 2])
    assert torch.equal(stored[[4, 2], 1, 0], qkv[[0, 2], 3])
    assert bool((stored[[0, 1, 3, 5]] == 9.0).all())


# --- weights of a few bits ---


def test_stored_weights_stand_for_those_of_the_vector_kernels() -> None:
    """int8 and int4 as kernels.linear.pack rounds them are the same numbers here."""
    weight = torch.randn(6, 64, generator=torch.Generator().manual_seed(1))
    q, scales = quantise_int8(weight)
    found = quantised.dequantised(q, scales, None, torch.float32)
    assert torch.equal(found, packed_values(weight, "int8"))
    levels, scale, minimum = quantise_int4(weight)
    packed = quantised.pack_int4(levels.reshape(weight.shape))
    assert torch.equal(quantised.unpack_int4(packed), levels.reshape(weight.shape))
    found = quantised.dequantised(packed, scale, minimum, torch.float32)
    assert torch.equal(found, packed_values(weight, "int4"))


@given(st.integers(1, 200_000), st.integers(1, 60_000))
def test_parts_of_a_sum_cover_it_once(n: int, k: int) -> None:
    plan = split(n, k)
    steps = -(-k // WIDTH)
    assert plan.steps * plan.parts >= steps
    assert plan.steps * (plan.parts - 1) < steps
    assert plan.parts == 1 or plan.steps >= LEAST_STEPS
    assert plan.parts == 1 or plan.parts * -(-n // OUTPUTS) <= PROGRAMS


def test_few_outputs_are_split_and_many_are_not() -> None:
    """Of an 8B model: the attention's output, down, and gate and up together."""
    assert (split(4096, 4096).parts, split(4096, 14336).parts) == (8, 8)
    assert split(28672, 4096).parts == 1


def test_a_row_of_a_matmul_does_not_depend_on_its_neighbours(interpreted: dict[str, Any]) -> None:
    """The same bits alone and among sixteen, also where the sum is split."""
    assert interpreted["rows_differ"] == {"int8": 0, "int4": 0}


def test_power_of_two() -> None:
    assert [power_of_two(n) for n in (1, 2, 3, 576, 1024)] == [1, 2, 4, 1024, 1024]


def _chi_square(counts: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((counts - expected) ** 2 / expected).sum())
