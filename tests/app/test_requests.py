"""Requests: the waterfall against the store, and one request's time by cause, by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from app.figures.request_parts import ribbon, split_bars, tone
from app.figures.waterfall import ROWS
from app.panels import requests as page
from app.panels.request_time import Alone, split
from app.panels.view import RECORDED
from app.theme import DARK, LIGHT
from telemetry.queries import requests as queries
from telemetry.queries.pauses import Pauses, pauses_of
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.synthetic import RUN_ID, Simulation

ALL = {"first": "0", "last": "967"}
NEVER = Pauses([], [], [])


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(t for t in figure["data"] if t["name"] == name)


def shown(reader: Reader, **params: str) -> Any:
    return page.panels(reader, RUN_ID, {**ALL, **params}, LIGHT)


def rows_of(figure: dict[str, Any]) -> list[int]:
    """Requests of the rows, the uppermost first."""
    names = figure["layout"]["yaxis"]["ticktext"]
    return [int(n.replace("<b>", "").split("-")[1].split(" ")[0].split("<")[0]) for n in names]


# --- the list ---


def test_the_waterfall_is_the_store(reader: Reader) -> None:
    view = shown(reader, x="clock", sort="arrival")
    figure = view.figures["waterfall"]
    ids = rows_of(figure)
    assert ids == list(range(ROWS))
    end_ns = reader.value(
        "SELECT max(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT)) FROM steps"
    )
    for name, phase in (("prefill", "prefill"), ("decode", "decode")):
        drawn = trace(figure, name)
        sums = dict.fromkeys(ids, 0.0)
        for request, length in zip(drawn["customdata"], drawn["x"], strict=True):
            sums[request] += length
        for request in ids:
            took = reader.value(
                "SELECT sum(t_step_s) FROM sequence_steps q JOIN steps s USING (run_id, step) "
                f"WHERE q.phase = '{phase}' AND q.request_id = {request}"
            )
            assert sums[request] == pytest.approx(took, abs=0.002)
    queue = trace(figure, "queue")
    for request in ids:
        arrived, admitted = reader.rows(
            f"SELECT arrived_ns, admitted_ns FROM requests WHERE request_id = {request}"
        )[0]
        assert queue["base"][request] == pytest.approx((arrived - end_ns) / 1e9, abs=1e-3)
        assert queue["x"][request] == pytest.approx((admitted - arrived) / 1e9, abs=1e-3)


def test_from_its_arrival_every_request_begins_at_zero(reader: Reader) -> None:
    figure = shown(reader).figures["waterfall"]
    assert set(trace(figure, "queue")["base"]) == {0}
    assert figure["layout"]["xaxis"]["range"][0] == 0
    assert figure["layout"]["meta"]["picks"]


@pytest.mark.parametrize(
    ("sort", "column"), [("E2EL", "e2el_s"), ("TTFT", "ttft_s"), ("queue", "queue_s")]
)
def test_orders_are_those_of_sql(reader: Reader, sort: str, column: str) -> None:
    want = reader.rows(
        f"SELECT request_id FROM request_latency ORDER BY {column} DESC, request_id DESC "
        f"LIMIT {ROWS}"
    )
    assert rows_of(shown(reader, sort=sort).figures["waterfall"]) == [r for (r,) in want]


def test_the_slowest_over_their_time_alone_come_first(reader: Reader) -> None:
    figure = shown(reader).figures["waterfall"]
    shares = [
        float(n.replace("</b>", "").split("× ")[1]) for n in figure["layout"]["yaxis"]["ticktext"]
    ]
    assert shares == sorted(shares, reverse=True)
    first = rows_of(figure)[0]
    row = queries.one(reader, RUN_ID, first, NEVER)
    alone = queries.step_alone(reader, RUN_ID)
    assert row is not None
    assert alone["alone_n"] >= 5
    own = reader.value(
        "SELECT sum(t_step_s * tokens / prefill_tokens) FROM sequence_steps q "
        f"JOIN steps s USING (run_id, step) WHERE q.phase = 'prefill' AND request_id = {first}"
    )
    by_itself = max(own, alone["alone_s"]) + (row["output_tokens"] - 1) * alone["alone_s"]
    assert shares[0] == pytest.approx(row["e2el_s"] / by_itself, rel=0.01)
    assert f"× {shares[0]:g} its time alone" in shown(reader).html["headline"].replace(".0 ", " ")


def test_filters(reader: Reader) -> None:
    assert rows_of(shown(reader, find="r-17").figures["waterfall"]) == [17]
    assert len(rows_of(shown(reader, find="SKEW").figures["waterfall"])) == ROWS
    nothing = shown(reader, find="no such label")
    assert "waterfall" not in nothing.figures
    assert "No request matches" in nothing.html["unlisted"]
    assert "unlisted" in shown(reader, show="preempted").html
    assert "unlisted" in shown(reader, show="waiting").html


def test_a_window_shows_who_lived_in_it(reader: Reader) -> None:
    start, end = reader.rows("SELECT t_start_ns FROM steps WHERE step IN (300, 400) ORDER BY step")
    rows = queries.placed(queries.lived(reader, RUN_ID, start[0], end[0], NEVER), end[0], NEVER)
    want = reader.rows(
        "SELECT request_id FROM requests WHERE arrived_ns <= $end AND finished_ns >= $start "
        f"ORDER BY request_id DESC LIMIT {queries.MOST_REQUESTS}",
        {"start": start[0], "end": end[0]},
    )
    assert sorted(rows["request_id"]) == sorted(r for (r,) in want)


# --- one request ---


def test_the_identity_with_its_numbers(reader: Reader) -> None:
    row = queries.one(reader, RUN_ID, 30, NEVER)
    assert row is not None
    html = shown(reader, request="30").html["opened"]
    more = row["output_tokens"] - 1
    assert f"+ {more} × " in html
    assert row["ttft_s"] + more * row["tpot_s"] == pytest.approx(row["e2el_s"], abs=1e-9)
    assert "TTFT + (N − 1) × TPOT = E2EL" in html


@pytest.mark.parametrize("request_id", [0, 15, 30, 61])
def test_the_parts_are_the_whole(reader: Reader, request_id: int) -> None:
    row = queries.one(reader, RUN_ID, request_id, NEVER)
    assert row is not None
    life = queries.slices(reader, RUN_ID, row, row["finished_ns"], NEVER)
    parts = split(row["queue_s"], life)
    assert parts.total == pytest.approx(row["e2el_s"], abs=1e-6)
    view = shown(reader, request=str(request_id))
    drawn = [t for t in view.figures["split"]["data"] if t["y"] == ["as it ran"]]
    assert sum(t["x"][0] for t in drawn) == pytest.approx(row["e2el_s"], rel=1e-4)


def life(*rows: tuple[float, str | None, int | None, int], next_phase: str = "decode") -> Any:
    """(slice_s, its phase, its tokens, prompt tokens of others) of each step."""
    frame = pd.DataFrame(rows, columns=["slice_s", "phase", "tokens", "others_tokens"])
    return frame.assign(decode_only=frame["others_tokens"] == 0, next_phase=next_phase)


def test_causes_by_hand() -> None:
    """0.4 s of a step were 30 of 40 prompt tokens of its own; others' prompts froze it twice."""
    plain = [(0.01, "decode", 1, 0)] * 6
    rows = [(0.4, "prefill", 30, 10), *plain, (0.21, "decode", 1, 500), (0.5, None, None, 900)]
    found = split(1.0, life(*rows))
    assert found.base_s == pytest.approx(0.01)
    assert found.own == pytest.approx(0.3)
    assert found.others == pytest.approx(0.1 + 0.2 + 0.5)
    assert found.decode == pytest.approx(0.06 + 0.01)
    assert found.total == pytest.approx(1.0 + 0.4 + 0.06 + 0.21 + 0.5)
    assert (found.lost, found.held) == (0, 0)


def test_a_preempted_request_loses_the_wait_and_the_second_prefill() -> None:
    out = life((0.2, None, None, 64), (0.3, "recompute", 40, 0), next_phase="recompute")
    assert split(0.0, out).lost == pytest.approx(0.5)
    idle = split(0.0, life((0.2, None, None, 0)))
    assert idle.held == pytest.approx(0.2)


def test_without_a_like_step_decode_is_not_parted() -> None:
    found = split(0.0, life((0.2, "decode", 1, 64), (0.3, "decode", 1, 64)))
    assert found.base_s is None
    assert (found.decode, found.others) == (0.5, 0)


def test_time_alone_is_measured_or_modelled_or_unknown() -> None:
    measured = Alone.of({"alone_s": 0.01, "alone_n": 7, "ratio": 1.2, "ratio_n": 9}, None, None)
    assert measured.total_s(0.3, 100, 11) == pytest.approx(0.3 + 10 * 0.01)
    assert measured.total_s(0.001, 100, 11) == pytest.approx(0.01 + 10 * 0.01)
    assert measured.source == "7 steps at batch 1"
    unknown = Alone.of({"alone_s": 0.01, "alone_n": 4}, None, None)
    assert unknown.total_s(0.3, 100, 11) is None
    assert "unknown" in unknown.source


def test_the_model_of_a_step_alone_is_labelled(store: Store) -> None:
    """Never alone: floors at batch 1, lengthened as the steps that ran were."""
    simulation = Simulation()
    simulation.arrive(4)
    for _ in range(14):
        simulation.advance()
    simulation.write(store)
    view = page.panels(store.reader(), RUN_ID, {}, LIGHT)
    assert "cost model at batch 1, × " in view.html["told"]
    bare = replace(Alone.of({}, None, None), ratio=1.3)
    assert bare.step_s(10) is None


def test_tokens_are_text_with_what_each_cost(reader: Reader) -> None:
    moment = replace(RECORDED, pieces=lambda ids: [f"<{i}>" for i, _ in enumerate(ids)])
    view = page.panels(reader, RUN_ID, {**ALL, "request": "30"}, DARK, moment)
    text = view.html["text"]
    rows = queries.tokens(reader, RUN_ID, 30, NEVER)
    assert text.count("<span") == len(rows)
    assert "&lt;1&gt;" in text
    second = rows.iloc[1]
    assert f"step {int(second['step']):,}, batch {int(second['batch'])}" in text
    itl = reader.rows('SELECT itl_s FROM itl WHERE request_id = 30 ORDER BY "index"')
    drawn = trace(view.figures["ribbon"], "ITL")
    assert drawn["y"] == pytest.approx([g * 1e3 for (g,) in itl], rel=1e-3)
    assert "at hand" not in text


def test_without_its_tokenizer_ids_are_shown_and_said(reader: Reader) -> None:
    text = shown(reader, request="30").html["text"]
    assert "The tokenizer of SmolLM2-135M-Instruct is not at hand: token ids." in text
    assert ">7 </span>" in text


def test_slow_tokens_have_the_colour_of_their_cause() -> None:
    def role(itl_s: float | None, prompts: int, lost: int = 0, base: float | None = 0.01) -> str:
        return tone({"itl_s": itl_s, "prompt_tokens": prompts, "lost_tokens": lost}, base)

    assert role(0.03, 40) == "prefill"
    assert role(0.03, 40, 40) == "lost"
    assert role(0.03, 0) == "overhead"
    assert role(0.015, 40) == role(0.03, 40, base=None) == role(None, 40) == "decode"
    rows = pd.DataFrame({"index": range(1, 1001), "itl_s": 0.01, "step": 5, "batch": 2.0})
    rows = rows.assign(prompt_tokens=0, lost_tokens=0)
    rows.loc[500, ["itl_s", "prompt_tokens"]] = [0.9, 64]
    drawn = trace(ribbon(rows, 0.01, LIGHT), "ITL")
    assert len(drawn["y"]) <= 241
    assert max(drawn["y"]) == 900
    assert drawn["marker"]["color"].count(LIGHT.prefill) == 1


def test_prompts_of_all_steps_of_a_gap_count(store: Store) -> None:
    """Steps in which the stream had no part stall it too: 900 prompt tokens before token 5."""
    simulation = finished()
    for table in ("sequence_steps", "tokens"):
        rows = simulation.rows[table]
        simulation.rows[table] = [r for r in rows if r["request_id"] != 0 or r["step"] != 4]
    simulation.rows["steps"][4]["prefill_tokens"] = 900
    simulation.write(store)
    rows = queries.tokens(store.reader(), RUN_ID, 0, NEVER).set_index("step")
    assert rows.loc[5, "prompt_tokens"] == 900
    assert rows.loc[3, "prompt_tokens"] == 0


def test_the_split_names_its_parts() -> None:
    figure = split_bars({"queue": 1.0, "own": 0.5, "others": 0.25}, {"own": 0.5}, LIGHT)
    names = ["queue", "own prefill", "others' prefill", "own prefill"]
    assert [t["name"] for t in figure["data"]] == names
    assert [t["base"][0] for t in figure["data"]] == [0, 1, 1.5, 0]
    assert "pattern" in figure["data"][2]["marker"]


def paused_run() -> Simulation:
    """Twelve requests on three slots; paused twice, once while some wait."""
    made = Simulation(slots=3)
    made.arrive(12)
    for number in range(200):
        if number in (4, 30):
            made.event("pause")
            made.now_ns += 2_000_000_000
            made.event("resume")
        made.advance()
    return made


def test_latencies_are_those_of_the_views_with_pauses_too(store: Store) -> None:
    paused_run().write(store)
    reader = store.reader()
    stopped = pauses_of(reader, RUN_ID)
    assert len(stopped.starts) == 2
    end_ns = reader.value("SELECT max(t_ns) FROM tokens")
    rows = queries.lived(reader, RUN_ID, 0, end_ns, stopped)
    assert len(rows) == 12
    names = ("queue_s", "ttft_s", "decode_s", "e2el_s", "tpot_s")
    for row in rows:
        where = f"WHERE request_id = {row['request_id']}"
        want = reader.row(f"SELECT {', '.join(names)} FROM request_latency {where}")
        assert {name: row[name] for name in names} == want
        gaps = reader.rows(f'SELECT "index", itl_s FROM itl {where} ORDER BY "index"')
        told = queries.tokens(reader, RUN_ID, row["request_id"], stopped).dropna(subset="itl_s")
        assert list(zip(told["index"], told["itl_s"], strict=True)) == gaps
        spent = queries.slices(reader, RUN_ID, row, end_ns, stopped)["slice_s"].sum()
        assert row["queue_s"] + spent == pytest.approx(row["e2el_s"], abs=1e-6)
    assert any(row["queue_s"] > 1 for row in rows)  # without the pauses: they are longer


# --- what is not reported ---


def test_a_source_without_sequence_steps(store: Store) -> None:
    simulation = finished()
    simulation.rows["sequence_steps"] = []
    simulation.write(store)
    view = page.panels(store.reader(), RUN_ID, {}, LIGHT)
    assert "not reported by this source" in view.html["told"]
    assert "split" not in view.figures
    assert trace(view.figures["waterfall"], "decode")["x"] == []
    assert "E2EL" in view.html["opened"]


def test_a_source_without_tokens(store: Store) -> None:
    simulation = finished()
    simulation.rows["tokens"] = []
    simulation.write(store)
    view = page.panels(store.reader(), RUN_ID, {}, LIGHT)
    assert "Single tokens are not reported by this source." in view.html["text"]
    assert "ribbon" not in view.figures


def test_a_source_without_requests(store: Store) -> None:
    simulation = finished()
    simulation.all_sequences = []
    simulation.write(store)
    view = page.panels(store.reader(), RUN_ID, {}, LIGHT)
    assert "Single requests are not reported by this source." in view.html["blank"]
    assert not view.figures


def test_a_run_without_steps_says_what_to_do(store: Store) -> None:
    Simulation().write(store)
    view = page.panels(store.reader(), RUN_ID, {}, LIGHT)
    assert "No step has run yet" in view.html["headline"]


def test_a_request_that_runs_counts_its_tokens_so_far(store: Store) -> None:
    simulation = Simulation(slots=1)
    simulation.arrive(3)
    for _ in range(9):
        simulation.advance()
    simulation.write(store)
    reader = store.reader()
    view = page.panels(reader, RUN_ID, {"request": "0"}, LIGHT)
    json.dumps(view.figures, allow_nan=False)
    assert "running" in view.html["opened"]
    assert "= so far" in view.html["opened"]
    assert "has taken" in view.html["headline"]
    waiting = page.panels(reader, RUN_ID, {"request": "2"}, LIGHT)
    assert "It still waits: nothing has run for it." in waiting.html["told"]
    assert "It has emitted no token yet." in waiting.html["text"]
    nobody = page.panels(reader, RUN_ID, {"request": "77"}, LIGHT)
    assert "r-77 is not a request of this run." in nobody.html["opened"]


def finished() -> Simulation:
    simulation = Simulation(slots=4)
    simulation.arrive(12)
    while simulation.advance():
        pass
    return simulation
