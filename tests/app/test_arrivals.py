"""The load control understands what people write, and refuses in one line."""

from __future__ import annotations

import pytest

from app.arrivals import Arrivals, ArrivalsError, choices, parse

KNOWN = [
    Arrivals(off=True),
    Arrivals(),
    Arrivals(concurrency=1),
    Arrivals(concurrency=12),
    Arrivals(rate=0.25),
    Arrivals(rate=8.0),
]


@pytest.mark.parametrize("load", KNOWN, ids=str)
def test_what_it_shows_it_understands(load: Arrivals) -> None:
    assert parse(str(load)) == load
    assert str(load) in choices(load)


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("8", Arrivals(concurrency=8)),
        (" 3 Streams ", Arrivals(concurrency=3)),
        ("2.5/s", Arrivals(rate=2.5)),
        ("1 request/s", Arrivals(rate=1.0)),
        ("0", Arrivals(off=True)),
    ],
)
def test_what_people_write(text: str, load: Arrivals) -> None:
    assert parse(text) == load


@pytest.mark.parametrize("text", ["-1", "many", "", "0/s", "-2/s", "100000 streams", "1e9/s"])
def test_nonsense_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ArrivalsError) as refused:
        parse(text)
    assert "\n" not in str(refused.value)


def test_the_real_setting_is_always_offered() -> None:
    assert "7 streams" in choices(Arrivals(concurrency=7))
    assert len(set(choices(Arrivals()))) == len(choices(Arrivals()))
