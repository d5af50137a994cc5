"""Step and token strips: what is drawn is what the store holds, cut and binned as it says."""

from __future__ import annotations

import pandas as pd
import pytest

from app.figures.strip import strip
from app.theme import LIGHT
from app.units import duration
from telemetry.queries import live, live_bars
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.synthetic import RUN_ID, Simulation, not_reporting


@pytest.fixture
def end_ns(reader: Reader) -> int:
    newest = live.newest(reader, RUN_ID)
    assert newest is not None
    return int(newest["end_ns"])


def test_every_step_has_its_bar_while_they_are_few(reader: Reader, end_ns: int) -> None:
    span = 3.0
    steps = live_bars.steps(reader, RUN_ID, end_ns, span)
    median = steps.median_s
    assert live_bars.bin_width(len(steps), median, span) is None
    bars = live_bars.bars(steps, None)
    figure = strip(bars, live.marks(reader, RUN_ID, end_ns, span), median, span, None, LIGHT)
    drawn = sorted(s for t in figure["data"] if t["type"] == "bar" for s in t.get("customdata", []))
    held = reader.frame(
        "SELECT step, t_step_s FROM steps WHERE run_id = $run AND t_start_ns >= $since",
        {"run": RUN_ID, "since": end_ns - int(span * 1e9)},
    )
    assert drawn == sorted(held["step"])
    times = dict(zip(held["step"], held["t_step_s"], strict=True))
    for trace in figure["data"][:2]:
        for step, y, width in zip(trace["customdata"], trace["y"], trace["width"], strict=True):
            assert width == pytest.approx(times[step], abs=1e-4)
            assert y == pytest.approx(min(times[step] * 1e3, y + 1e-9), rel=1e-3)


def test_many_steps_are_binned_and_keep_their_longest(reader: Reader, end_ns: int) -> None:
    steps = live_bars.steps(reader, RUN_ID, end_ns, 30.0)
    width = live_bars.bin_width(len(steps), steps.median_s, 30.0)
    assert live_bars.bin_width(len(steps), 0.055, 30.0) == 0.2
    assert len(steps) > live_bars.MAX_BARS
    assert width == 0.1
    bars = live_bars.bars(steps, width)
    assert len(bars) <= live_bars.MAX_BARS
    assert bars["n"].sum() == len(steps)
    longest = reader.value("SELECT max(t_step_s) FROM steps WHERE run_id = $run", {"run": RUN_ID})
    assert bars["t_step_s"].max() == longest


@pytest.mark.parametrize("width_s", [0.1, 0.2, 1.0])
def test_bars_are_what_sql_says(reader: Reader, end_ns: int, width_s: float) -> None:
    sql = """
    WITH binned AS (
        SELECT *, t_start_ns // $bin AS bin, prefix_hit_tokens AS cached_tokens,
               prefill_tokens + decode_tokens + prefix_hit_tokens + recomputed_tokens AS tokens
        FROM steps WHERE run_id = $run AND t_start_ns >= $end - 30000000000 AND t_start_ns < $end
    )
    SELECT count(*) AS n, max(t_step_s) AS t_step_s,
           arg_max(step, (t_step_s, -step)) AS step, arg_max(phase, (t_step_s, -step)) AS phase,
           arg_max(prefill_tokens, (tokens, -step)) AS prefill_tokens,
           arg_max(decode_tokens, (tokens, -step)) AS decode_tokens,
           arg_max(cached_tokens, (tokens, -step)) AS cached_tokens,
           ((bin + 0.5) * $bin - $end) / 1e9 AS centre_s
    FROM binned GROUP BY bin ORDER BY bin
    """
    wanted = reader.frame(sql, {"run": RUN_ID, "end": end_ns, "bin": int(width_s * 1e9)})
    found = live_bars.bars(live_bars.steps(reader, RUN_ID, end_ns, 30.0), width_s)
    assert len(found) == len(wanted) > 10
    for name in ("n", "t_step_s", "step", "prefill_tokens", "decode_tokens", "cached_tokens"):
        assert found[name].tolist() == wanted[name].tolist()
    assert found["decode_only"].tolist() == (wanted["phase"] == "decode").tolist()
    short = (found["t_step_s"] <= width_s).to_numpy()
    assert found["x_s"][short].tolist() == pytest.approx(wanted["centre_s"][short].tolist())


def test_tokens_that_a_source_does_not_report_are_unknown(store: Store) -> None:
    simulation = not_reporting("prefix_hit_tokens")
    simulation.write(store)
    found = live_bars.steps(store.reader(), RUN_ID, simulation.now_ns, 30.0)
    bars = live_bars.bars(found, 10.0)
    assert bars["cached_tokens"].isna().all()
    assert bars["prefill_tokens"].max() > 0  # what is known is drawn


def test_no_step_is_no_bar(reader: Reader) -> None:
    found = live_bars.steps(reader, RUN_ID, 0, 30.0)
    assert (len(found), found.median_s) == (0, 0.0)
    assert live_bars.bars(found, 0.1).empty
    assert live_bars.bars(found, None).empty


def test_a_long_step_is_as_wide_as_it_was(reader: Reader, end_ns: int) -> None:
    bars = live_bars.bars(live_bars.steps(reader, RUN_ID, end_ns, 30.0), 0.1)
    long = bars[bars["t_step_s"] > 0.1]
    assert len(long) > 3
    assert (long["width_s"] == long["t_step_s"]).all()
    starts = reader.frame("SELECT step, t_start_ns FROM steps").set_index("step")["t_start_ns"]
    wanted = [(starts[s] - end_ns) / 1e9 for s in long["step"]]
    assert list(long["x_s"] - long["width_s"] / 2) == pytest.approx(wanted, abs=1e-6)
    assert set(bars[bars["t_step_s"] <= 0.1]["width_s"]) == {0.1}


def test_tokens_of_a_bar_are_of_one_step(reader: Reader, end_ns: int) -> None:
    bars = live_bars.bars(live_bars.steps(reader, RUN_ID, end_ns, 30.0), 0.1)
    pairs = reader.frame(
        "SELECT DISTINCT prefill_tokens, decode_tokens FROM steps WHERE run_id = $run",
        {"run": RUN_ID},
    )
    real = set(pairs.itertuples(index=False, name=None))
    assert set(bars[["prefill_tokens", "decode_tokens"]].itertuples(index=False, name=None)) <= real


def test_cached_and_recomputed_tokens_stand_on_the_others(store: Store) -> None:
    """A step of 40 prompt tokens with a hit of 32, and one that computes 5 tokens again."""
    simulation = Simulation()
    simulation.arrive(1)
    while simulation.advance():
        pass
    first, second = simulation.rows["steps"][0], simulation.rows["steps"][1]
    prompt = first["prefill_tokens"]
    first["prefix_hit_tokens"], second["recomputed_tokens"] = 32, 5
    simulation.write(store)
    bars = live_bars.bars(live_bars.steps(store.reader(), RUN_ID, simulation.now_ns, 30.0), None)
    figure = strip(bars, live.marks(store.reader(), RUN_ID, 0, 1.0), 0.014, 30.0, None, LIGHT)
    traces = {t["name"]: t for t in figure["data"]}
    assert traces["cached tokens"]["text"] == ["32"]
    assert traces["cached tokens"]["marker"]["color"] == LIGHT.cached
    assert traces["lost tokens"]["text"] == ["5"]
    assert traces["lost tokens"]["base"] == [1]  # on its one decode
    assert traces["lost tokens"]["marker"]["color"] == LIGHT.lost
    assert traces["prefill tokens"]["text"] == [str(prompt)]


def test_a_cut_bar_of_tokens_is_divided_by_its_shares(store: Store) -> None:
    """One decode, 60 prompt tokens and a hit of 180, cut at 24: a tenth of each."""
    simulation = Simulation()
    simulation.arrive(1)
    while simulation.advance():
        pass
    simulation.rows["steps"][1].update(decode_tokens=1, prefill_tokens=60, prefix_hit_tokens=179)
    simulation.write(store)
    bars = live_bars.bars(
        live_bars.steps(store.reader(), RUN_ID, simulation.now_ns, 30.0), None
    ).iloc[1:]
    bars = pd.concat([bars.assign(decode_tokens=6).iloc[1:], bars.iloc[:1]])
    figure = strip(bars, live.marks(store.reader(), RUN_ID, 0, 1.0), 0.014, 30.0, None, LIGHT)
    traces = {t["name"]: t for t in figure["data"]}
    assert traces["prefill tokens"]["y"] == pytest.approx([6.0])
    assert traces["cached tokens"]["y"] == pytest.approx([17.9])
    assert traces["cached tokens"]["base"] == pytest.approx([6.1])
    assert traces["cached tokens"]["text"] == ["179"]
    texts = [a["text"] for a in figure["layout"]["annotations"]]
    assert any("cut at 24, by share" in t for t in texts)


def test_bars_are_cut_at_four_medians_and_say_so(reader: Reader, end_ns: int) -> None:
    median = live_bars.steps(reader, RUN_ID, end_ns, 30.0).median_s
    bars = live_bars.bars(live_bars.steps(reader, RUN_ID, end_ns, 30.0), 0.1)
    figure = strip(bars, live.marks(reader, RUN_ID, end_ns, 30.0), median, 30.0, 0.1, LIGHT)
    limit = 4 * median * 1e3
    heights = [y for t in figure["data"][:2] for y in t["y"]]
    assert bars["t_step_s"].max() * 1e3 > 2 * limit
    assert max(heights) == pytest.approx(limit, rel=0.05)
    texts = [a["text"] for a in figure["layout"]["annotations"]]
    assert any("4× the median" in t for t in texts)
    assert any(t.endswith("▲") for t in texts)
    assert f"{duration(bars['t_step_s'].max())} ▲" in texts


def test_a_switch_is_marked_on_both_rows(reader: Reader, end_ns: int) -> None:
    marks = live.marks(reader, RUN_ID, end_ns, 30.0)
    bars = live_bars.bars(live_bars.steps(reader, RUN_ID, end_ns, 30.0), 0.1)
    figure = strip(bars, marks, 0.014, 30.0, 0.1, LIGHT)
    lines = [t for t in figure["data"] if t["name"] == "marks"]
    assert [t["yaxis"] for t in lines] == ["y", "y2"]
    events = reader.frame(
        "SELECT t_ns FROM events WHERE run_id = $run AND kind = 'scheduler_switch' ORDER BY t_ns",
        {"run": RUN_ID},
    )
    wanted = [round((t - end_ns) / 1e9, 3) for t in events["t_ns"]]
    assert lines[0]["x"][::3] == wanted
    texts = [a["text"] for a in figure["layout"]["annotations"]]
    assert "→ static" in texts
    assert "→ continuous" in texts


def test_the_time_axis_never_moves(reader: Reader, end_ns: int) -> None:
    marks = live.marks(reader, RUN_ID, end_ns, 30.0)
    for early in (0, 4):
        at = end_ns - int(early * 1e9)
        bars = live_bars.bars(live_bars.steps(reader, RUN_ID, at, 30.0), 0.1)
        figure = strip(bars, marks, 0.014, 30.0, 0.1, LIGHT)
        assert figure["layout"]["xaxis"]["range"] == [-30.0, 0]
        assert figure["layout"]["uirevision"] == "keep"
        assert figure["layout"]["template"] == "none"
