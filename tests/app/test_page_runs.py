"""While a page is being drawn no view is made again, but nobody waits for one for long."""

from __future__ import annotations

import pytest

from app.live import page_runs
from app.live.page_runs import DRAWING_S, MOST_S, PageRuns

NS = 1_000_000_000


def test_a_page_is_drawn_for_a_moment_after_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(page_runs, "now_ns", lambda: now[0])
    runs = PageRuns()
    assert not runs.busy(NS)
    now[0] = NS
    with runs.one():
        assert runs.busy(NS + 1)
        now[0] = NS + NS // 10
    drawn = now[0] + round(DRAWING_S * NS)
    assert runs.busy(drawn - 1)
    assert not runs.busy(drawn)


def test_a_script_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_runs, "now_ns", lambda: NS)
    runs = PageRuns()
    with runs.one():
        assert runs.busy(NS + round(MOST_S * NS) - 1)
        assert not runs.busy(NS + round(MOST_S * NS))
