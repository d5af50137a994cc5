"""The bench's arithmetic on figures whose answer is known, and its loads to the token."""

from __future__ import annotations

import math
import random
import statistics

import pytest
import torch

from app.bench.loads import client_loads, random_prompts
from app.bench.quality import mean_kl, perplexity, text_pieces
from app.bench.stats import Spread, crossover, median_interval, pair_ratios

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def test_a_spread_is_median_least_and_greatest() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    with pytest.raises(ValueError, match="one measurement"):
        Spread.of([])


def test_a_rate_has_its_greatest_where_the_time_has_its_least() -> None:
    assert Spread(2.0, 1.0, 4.0).inverse(8) == Spread(4.0, 2.0, 8.0)


def test_ratios_go_pair_by_pair() -> None:
    """Both sides slowed by the same neighbour: the ratio does not move."""
    assert pair_ratios([1.0, 10.0], [2.0, 20.0]) == Spread(0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="zip"):
        pair_ratios([1.0], [1.0, 2.0])


def test_the_crossover_of_a_roofline_is_where_its_two_lines_meet() -> None:
    """t = max(8 ms, batch · 0.4 ms): the lines meet at 20."""
    found = crossover({b: max(8e-3, b * 0.4e-3) for b in BATCHES})
    assert found is not None
    assert found.batch == pytest.approx(20)
    assert found.batch_affine == pytest.approx(20)
    assert found.flat_s == pytest.approx(8e-3)
    assert found.slope_s == pytest.approx(0.4e-3)


def test_a_slope_that_starts_above_the_origin_has_another_crossover_or_none() -> None:
    steps = {b: max(8e-3, 3e-3 + b * 0.25e-3) for b in BATCHES}
    found = crossover(steps)
    assert found is not None
    assert found.batch_affine == pytest.approx(20)
    assert found.batch > 20  # the line through the origin is steeper, and meets it later
    above = crossover({b: 8e-3 if b <= 4 else 9e-3 + b * 0.25e-3 for b in BATCHES})
    assert above is not None
    assert above.batch_affine is None


def test_no_crossover_without_both_parts() -> None:
    assert crossover({1: 1.0, 2: 1.0}) is None
    assert crossover({64: 1.0, 128: 2.0}) is None


# --- loads ---


def test_the_loads_are_exactly_these() -> None:
    loads = client_loads()
    assert list(loads) == ["w16", "A", "B"]
    w16, a, b = loads.values()
    assert (len(w16.output_tokens), w16.total_output_tokens) == (16, 745)
    assert set(w16.prompt_tokens) == {128}
    assert (min(w16.output_tokens), max(w16.output_tokens)) >= (8, 8)
    assert max(w16.output_tokens) <= 128
    assert a.output_tokens == (512, *[16] * 9)
    assert set(a.prompt_tokens) == {128}
    assert (len(b.output_tokens), b.total_output_tokens) == (40, 1945)
    assert min(b.output_tokens) >= 4
    assert max(b.output_tokens) <= 512
    assert 64 <= min(b.prompt_tokens) <= max(b.prompt_tokens) <= 256
    assert client_loads() == loads


def test_prompts_are_random_tokens_of_these_lengths_and_a_seed_repeats_them() -> None:
    prompts = random_prompts((3, 200), 1000, seed=1)
    assert [len(p) for p in prompts] == [3, 200]
    assert all(100 <= token < 1000 for p in prompts for token in p)
    assert prompts == random_prompts((3, 200), 1000, seed=1)
    assert prompts != random_prompts((3, 200), 1000, seed=2)


# --- quality ---


def test_kl_of_known_distributions() -> None:
    p = torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log()
    q = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    expected = (0 + 0.5 * math.log(2) + 0.5 * math.log(2 / 3)) / 2
    assert mean_kl(p, q) == pytest.approx(expected)
    assert mean_kl(p, p) == pytest.approx(0, abs=1e-15)


def test_kl_is_a_mean_over_all_rows_however_many() -> None:
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(300, 7, generator=generator).log_softmax(-1) for _ in range(2))
    expected = torch.nn.functional.kl_div(q, p, log_target=True, reduction="batchmean")
    assert mean_kl(p, q) == pytest.approx(float(expected), rel=1e-5)


def test_perplexity_of_a_uniform_distribution_is_its_size() -> None:
    uniform = torch.full((5, 8), -math.log(8))
    assert perplexity(uniform, torch.arange(5)) == pytest.approx(8)


def test_pieces_of_a_text_do_not_overlap() -> None:
    assert text_pieces(list(range(100)), 10) == [list(range(i, i + 10)) for i in (0, 10, 20, 30)]
    assert [len(p) for p in text_pieces(list(range(20)), 10)] == [5, 5, 5, 5]


def test_the_interval_of_a_median_holds_it_and_narrows_with_more_values() -> None:
    rng = random.Random(1)
    few, many = ([rng.gauss(5.0, 1.0) for _ in range(n)] for n in (20, 2000))
    for values in (few, many):
        low, high = median_interval(values)
        assert low <= statistics.median(values) <= high
    assert median_interval(many)[1] - median_interval(many)[0] < 0.2
    assert median_interval(few)[1] - median_interval(few)[0] > 0.2
    assert median_interval([3.0] * 5) == (3.0, 3.0)
