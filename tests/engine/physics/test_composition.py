"""How terms go together, on numbers small enough to add up by eye."""

from __future__ import annotations

import pytest

from engine.physics.catalogue import find_device
from engine.physics.composition import Terms, composed_s, compute_s, memory_s
from engine.physics.deployment import Deployment

AT_PEAK = Deployment(find_device("h100-sxm"), "bf16", "bf16", "bf16")
BELOW = Deployment(
    find_device("h100-sxm"), "bf16", "bf16", "bf16", matmul_fraction=0.5, bandwidth_fraction=0.25
)
TERMS = Terms(linear_s=4, attention_s=3, weights_s=2, kv_s=1)


@pytest.mark.parametrize(
    ("composition", "together", "reading", "computing"),
    [
        ("overlap", 7, 3, 7),  # max(4 + 3, 2 + 1)
        ("additive-kv", 7, 5, 7),  # max(4, 2) + max(3, 1); without linear 2 + 3
    ],
)
def test_at_the_peaks(composition: str, together: float, reading: float, computing: float) -> None:
    assert composed_s(AT_PEAK, TERMS, composition) == together
    assert memory_s(AT_PEAK, TERMS, composition) == reading
    assert compute_s(AT_PEAK, TERMS, composition) == computing


def test_below_the_peaks_each_term_is_longer_by_its_own_fraction() -> None:
    # Doubled: linear 8, attention 6. Four times: weights 8, KV 4.
    assert composed_s(BELOW, TERMS, "overlap") == 14
    assert memory_s(BELOW, TERMS, "overlap") == 12
    assert composed_s(BELOW, TERMS, "additive-kv") == 8 + 6
    assert composed_s(BELOW, TERMS._replace(kv_s=2), "additive-kv") == 8 + 8


def test_additive_is_never_faster_than_either_part_alone() -> None:
    reading = TERMS._replace(weights_s=9, kv_s=5)
    assert composed_s(AT_PEAK, reading, "overlap") == 14
    assert composed_s(AT_PEAK, reading, "additive-kv") == 9 + 5
    mixed = TERMS._replace(linear_s=1, attention_s=6, weights_s=7, kv_s=2)
    assert composed_s(AT_PEAK, mixed, "overlap") == 9
    assert composed_s(AT_PEAK, mixed, "additive-kv") == 7 + 6
