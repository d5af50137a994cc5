"""The Interference page as data: what is drawn and said against SQL on the store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from app.panels import interference
from app.panels.interference_text import p99_hides, table
from app.panels.view import Moment, View
from app.theme import DARK, LIGHT, Theme
from app.units import count, duration, three
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.interfered import PROMPT, STREAMS, Interfered, interfered, written
from tests.app.synthetic import RUN_ID, Simulation, race

Trace = dict[str, Any]


@pytest.fixture(scope="module")
def frozen() -> Iterator[Reader]:
    """120 steps of eight streams, one injected prompt, 120 steps more."""
    store = Store(None)
    written(interfered(), store)
    yield store.reader()
    store.close()


def view(reader: Reader, look: Theme = LIGHT, **params: str) -> View:
    return interference.panels(reader, RUN_ID, {"span": "60", **params}, look)


def trace(made: View, name: str, xaxis: str = "x") -> Trace:
    found = [
        t
        for t in made.figures["interference"]["data"]
        if t["name"] == name and t.get("xaxis", "x") == xaxis
    ]
    assert len(found) == 1
    return dict(found[0])


def cells(made: View) -> list[list[str]]:
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", made.html["blame"])[1:]
    return [re.findall(r"<td>(.*?)</td>", row) for row in rows]


def worst(reader: Reader) -> dict[str, Any]:
    row = reader.row(
        "SELECT itl_s, inflation, baseline_s, step, t_ns FROM interference WHERE run_id = $run "
        "AND cause = 'prefill' ORDER BY itl_s DESC LIMIT 1",
        {"run": RUN_ID},
    )
    assert row is not None
    return row


def injected_step(reader: Reader) -> dict[str, Any]:
    row = reader.row(
        "SELECT step, t_start_ns, t_step_s FROM steps WHERE run_id = $run AND prefill_tokens = $n",
        {"run": RUN_ID, "n": PROMPT},
    )
    assert row is not None
    return row


# --- what is drawn ---


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_the_worst_dot_is_the_gap_that_sql_finds(frozen: Reader, look: Theme) -> None:
    made, sql = view(frozen, look), worst(frozen)
    json.dumps(made.figures, allow_nan=False)
    dots = trace(made, "bad gaps, prefill")
    assert dots["y"] == pytest.approx([sql["itl_s"] * 1e3], rel=1e-5)
    assert dots["customdata"] == pytest.approx([sql["inflation"]], rel=1e-5)
    assert dots["marker"]["color"] == look.prefill
    assert f"· {STREAMS} gaps · step {sql['step']}" in dots["text"][0]


def test_baseline_and_calm_gaps_are_those_of_sql(frozen: Reader) -> None:
    made = view(frozen)
    rows = frozen.frame(
        "SELECT DISTINCT step, itl_s, baseline_s, inflation FROM interference WHERE run_id = $run "
        "ORDER BY step",
        {"run": RUN_ID},
    )
    calm = rows[rows["inflation"].fillna(0) <= 2]
    assert trace(made, "gaps")["y"] == pytest.approx(list(calm["itl_s"] * 1e3), rel=1e-3)
    known = rows["baseline_s"].dropna() * 1e3
    drawn = trace(made, "baseline")["y"]
    assert len(drawn) <= 150
    assert drawn == pytest.approx(list(known.iloc[:: -(-len(known) // 150)]), rel=1e-3)


def test_nobody_decodes_beside_the_prompt_and_everybody_before_and_after(frozen: Reader) -> None:
    """Lanes end where the step of the prompt begins and go on where it ends."""
    made, step = view(frozen), injected_step(frozen)
    bars, band = trace(made, "decode"), trace(made, "focus prefill")
    start = band["base"][0]
    end = start + band["x"][0]
    assert band["x"] == pytest.approx([step["t_step_s"]], abs=1e-3)
    assert sorted(set(bars["y"])) == list(range(1, STREAMS + 1))
    pieces = list(zip(bars["base"], bars["x"], bars["width"], strict=True))
    during = [w for b, n, w in pieces if b < end - 1e-3 and b + n > start + 1e-3]
    assert all(w < 0.05 for w in during)
    full = [w for b, n, w in pieces if n > 0.3]
    assert len(full) >= 2 * STREAMS
    assert min(full) > 0.6
    ends = [b + n for b, n, w in pieces if w > 0.5]
    assert min(abs(e - start) for e in ends) < 2e-3
    assert min(abs(b - end) for b, _, w in pieces if w > 0.5) < 2e-3


def test_both_sides_share_span_and_y(frozen: Reader) -> None:
    step = injected_step(frozen)["step"]
    made = view(frozen, a=f"{RUN_ID}:{step - 60}-{step + 20}", first="20", last="100")
    axes = made.figures["interference"]["layout"]
    assert axes["xaxis"]["range"] == axes["xaxis2"]["range"]
    assert axes["yaxis"]["range"] == axes["yaxis3"]["range"]
    assert axes["yaxis2"]["range"] == axes["yaxis4"]["range"]
    assert axes["yaxis2"]["type"] == axes["yaxis4"]["type"] == "log"
    assert len(trace(made, "bad gaps, prefill", "x")["y"]) == 1
    assert trace(made, "bad gaps, prefill", "x2")["y"] == []
    words = [n["text"] for n in axes["annotations"]]
    assert any(t.startswith("<b>A · continuous · pinned") for t in words)
    assert any(t.startswith("<b>B · continuous · chosen steps") for t in words)


def test_a_pinned_window_is_the_same_whatever_runs_after_it(store: Store) -> None:
    made = interfered()
    written(made, store)
    reader, pinned = store.reader(), f"{RUN_ID}:60-180"
    first = [t for t in view(reader, a=pinned).figures["interference"]["data"] if t["xaxis"] == "x"]
    made.run(150)
    made.inject()
    made.run(40)
    made.write(store)
    fresh = store.reader()
    again = [t for t in view(fresh, a=pinned).figures["interference"]["data"] if t["xaxis"] == "x"]
    for before, after in zip(first, again, strict=True):
        for key in ("base", "x", "y", "customdata"):
            assert before.get(key) == after.get(key)


@pytest.mark.parametrize("a", ["", "x", "r-other:3-9", f"{RUN_ID}:3", f"{RUN_ID}:a-b"])
def test_a_pin_that_is_none_leaves_one_side(frozen: Reader, a: str) -> None:
    assert "xaxis2" not in view(frozen, a=a).figures["interference"]["layout"]


def test_the_last_injection_stands_still_with_time_before_it(store: Store) -> None:
    made = interfered(before=160, after=60)
    written(made, store)
    arrived = store.reader().value("SELECT arrived_ns FROM requests WHERE label = 'inject'")
    first = view(store.reader(), show="last inject", span="3")
    zero = int(first.figures["interference"]["layout"]["meta"]["selects"]["xaxis"])
    assert (arrived - zero) / 1e9 == pytest.approx(0.9, abs=1e-6)
    made.run(200)
    made.write(store)
    again = view(store.reader(), show="last inject", span="3")
    dots = [trace(v, "bad gaps, prefill") for v in (first, again)]
    assert dots[0]["x"] == dots[1]["x"]
    assert 2.95 < trace(again, "gaps")["x"][-1] < 3.02


# --- what is said ---


def test_the_headline_names_prompt_streams_gap_factor_and_count(frozen: Reader) -> None:
    sql = worst(frozen)
    text = view(frozen).html["headline"]
    wanted = (
        f"<b>One 1,024-token prompt froze {STREAMS} streams for {duration(sql['itl_s'])} "
        f"(×{three(sql['inflation'])}, {STREAMS} gaps over 2×).</b>"
    )
    assert wanted in text


def test_the_p99_is_told_only_where_it_hides_the_freeze(frozen: Reader) -> None:
    total = frozen.value("SELECT count(*) FROM itl WHERE run_id = $run", {"run": RUN_ID})
    assert 0.01 * total >= STREAMS
    p99 = frozen.value(
        "SELECT quantile_disc(itl_s, 0.99) FROM itl WHERE run_id = $run", {"run": RUN_ID}
    )
    assert f"P99 ({duration(p99)}) hides it." in view(frozen).html["headline"]
    step = injected_step(frozen)["step"]
    close = view(frozen, first=str(step - 10), last=str(step + 10))
    assert "P99" not in close.html["headline"]
    assert "hides it" in cells(view(frozen))[0][7]
    assert "hides it" not in cells(close)[0][7]


def test_the_table_adds_up_to_what_sql_says(frozen: Reader) -> None:
    made = view(frozen)
    request = frozen.value("SELECT request_id FROM requests WHERE label = 'inject'")
    blame = frozen.row(
        "SELECT sum(lost_s) AS lost, count(DISTINCT request_id) AS streams FROM blame "
        "WHERE run_id = $run AND culprit_id = $id",
        {"run": RUN_ID, "id": request},
    )
    assert blame is not None
    total = frozen.value("SELECT count(*) FROM itl WHERE run_id = $run", {"run": RUN_ID})
    sql, first, last = worst(frozen), cells(made)[0], cells(made)[-1]
    assert first[:7] == [
        f"r-{request} injected",
        "1,024",
        "1",
        str(blame["streams"]),
        duration(sql["itl_s"]),
        f"×{three(sql['inflation'])}",
        f"{STREAMS} of {count(total)}",
    ]
    assert first[8] == three(blame["lost"])
    rest = frozen.value(
        "SELECT sum(interference_s) FROM interference WHERE run_id = $run "
        "AND cause = 'unexplained'",
        {"run": RUN_ID},
    )
    assert last[0] == "unexplained"
    assert last[8] == three(rest)


def test_the_other_side_says_what_became_of_it(frozen: Reader) -> None:
    step = injected_step(frozen)["step"]
    text = view(frozen, a=f"{RUN_ID}:{step - 60}-{step + 20}", first="20", last="100")
    assert "B, continuous: no prompt slowed a stream: worst gap" in text.html["headline"]


def test_host_noise_is_called_host(store: Store) -> None:
    made = interfered(after=60)
    slow = made.rows["steps"][80]
    made.rows["steps"][80] = {**slow, "involuntary_switches": 3}
    shift = 2_000_000_000
    for row in made.rows["tokens"]:
        row["t_ns"] += shift if row["step"] >= 80 else 0
    written(made, store)
    made_view = view(store.reader())
    hosts = trace(made_view, "bad gaps, host")
    assert len(hosts["y"]) == 1
    assert "host: engine held up" in made_view.html["blame"]
    assert "The longest of all" in made_view.html["headline"]
    assert "was the host&#x27;s" in made_view.html["headline"]


def test_a_gap_without_a_baseline_is_neither_calm_nor_bad(store: Store) -> None:
    """A prompt among more streams than any decode-only step has had."""
    made = Interfered()
    made.run(3)
    made.inject()
    made.run(2)
    written(made, store)
    shown = view(store.reader())
    unknown = trace(shown, "gaps with a prompt, no baseline")
    sql = store.reader().value("SELECT max(itl_s) FROM interference WHERE cause = 'prefill'")
    assert max(unknown["y"]) == pytest.approx(sql * 1e3, rel=1e-3)
    assert unknown["marker"]["symbol"] == "circle-open"
    assert sql * 1e3 not in trace(shown, "gaps")["y"]
    assert trace(shown, "bad gaps, prefill")["y"] == []
    assert "no baseline to hold it against yet" in shown.html["headline"]


def test_without_injections_it_says_so_and_shows_the_newest(store: Store) -> None:
    made = Interfered()
    made.run(60)
    written(made, store)
    shown = view(store.reader(), show="last inject")
    assert "Nothing was injected in this run yet." in shown.html["headline"]
    assert trace(shown, "gaps")["y"]


def test_a_prompt_that_waits_is_told(store: Store) -> None:
    made = Interfered()
    made.run(60)
    made.slots = STREAMS
    made.inject()
    made.run(4)
    written(made, store)
    text = view(store.reader(), show="last inject").html["headline"]
    assert "The injected 1,024-token prompt waits: all slots are taken." in text


# --- throughput beside the tail ---


def test_throughput_and_tail_are_those_of_sql(frozen: Reader) -> None:
    made = view(frozen, show="over time")
    end = frozen.value("SELECT max(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT)) FROM steps")
    rows = frozen.frame(
        "SELECT ($end - t_ns) // 1000000000 AS second, count(*) AS tokens, max(itl_s) AS worst "
        "FROM tokens LEFT JOIN itl USING (run_id, request_id, step, t_ns) GROUP BY 1 ORDER BY 1",
        {"end": end},
    )
    drawn, gaps = trace(made, "tokens/s"), trace(made, "worst gap")
    assert drawn["y"][::-1][: len(rows)] == list(rows["tokens"])
    assert sum(drawn["y"]) == rows["tokens"].sum()
    shown = [y for y in gaps["y"][::-1] if y is not None]
    assert shown == pytest.approx(list(rows["worst"].dropna() * 1e3), rel=1e-3)
    assert "Throughput" in made.html["headline"]


# --- poor runs ---


def text_of(made: View) -> str:
    return json.dumps(made.figures, allow_nan=False) + json.dumps(made.html)


def test_a_run_without_steps_says_what_to_do(store: Store) -> None:
    Simulation().write(store)
    made = view(store.reader())
    assert not made.figures
    assert "No step has run yet" in made.html["headline"]


def test_a_source_without_sequence_steps_shows_gaps_and_says_what_is_missing(store: Store) -> None:
    written(interfered(), store, "sequence_steps", "blocks")
    made = view(store.reader())
    assert "who shared a step is not reported by this source" in text_of(made)
    assert "who shared its steps is not reported" in made.html["headline"]
    assert len(trace(made, "gaps")["y"]) > 100
    for name in ("decode", "baseline", "bad gaps, prefill", "bad gaps, unexplained"):
        assert trace(made, name)["y"] == []
    assert "0 of" not in made.html["blame"]
    assert "not reported by this source" in made.html["blame"]


def test_a_source_without_token_times_says_so(store: Store) -> None:
    written(interfered(), store, "tokens")
    made = view(store.reader())
    assert not made.figures
    assert "Token times are not reported by this source." in made.html["headline"]
    assert "not reported" in made.html["blank"]


@pytest.mark.parametrize("show", ["live", "last inject", "over time"])
def test_one_step_is_enough(store: Store, show: str) -> None:
    simulation = Simulation()
    simulation.arrive(1)
    simulation.advance()
    simulation.write(store)
    made = view(store.reader(), show=show)
    text_of(made)
    assert made.html["counter"] == "step 0"


@pytest.mark.parametrize("show", ["live", "last inject", "over time"])
def test_a_long_run_of_another_kind_opens(store: Store, show: str) -> None:
    race(peaks=(None, None)).write(store)
    made = view(store.reader(), show=show, a=f"{RUN_ID}:0-9999999")
    assert "NaN" not in text_of(made)
    bars = [len(t["x"]) for t in made.figures["interference"]["data"] if t["type"] == "bar"]
    assert sum(bars) <= 4_000


def test_the_same_snapshot_gives_the_same_view(frozen: Reader) -> None:
    moment = Moment(True, False, 10**12)
    pair = [interference.panels(frozen, RUN_ID, {}, LIGHT, moment) for _ in range(2)]
    assert pair[0] == pair[1]


def test_an_empty_side_has_a_table_row_and_no_percentile(frozen: Reader) -> None:
    from app.panels.interference_side import Stretch, found

    nothing = found(frozen, Stretch(RUN_ID, 0, 0, 0, 1.0))
    assert nothing.total == 0
    assert nothing.percentile(0.99) is None
    assert not p99_hides(nothing)
    assert "unexplained" in table([("", nothing)])
    assert isinstance(nothing.gaps, pd.DataFrame)
