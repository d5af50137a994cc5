"""Live's requests: their text, their latencies and goodput, against the views of the store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from app import state
from app.live import views
from app.panels import live, live_stream
from app.panels.view import Moment, View
from app.theme import LIGHT
from app.units import duration, three
from telemetry.queries import live as queries
from telemetry.queries import live_requests, live_tokens
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.fake import FakeSession
from tests.app.synthetic import RUN_ID, Simulation, race

SECOND = 1_000_000_000


def pieces(ids: Sequence[int]) -> list[str]:
    return [f" <w{i}>" for i in ids]


RECORDED = Moment(pieces=pieces)


class Targets(Simulation):
    """Requests that meet their targets and some that do not, with a pause among them."""

    modelled = False

    def run_row(self) -> dict[str, Any]:
        clock = "modelled" if self.modelled else "real"
        return super().run_row() | {"ttft_slo_s": 0.3, "tpot_slo_s": 0.0152, "clock": clock}


def paused_run(store: Store) -> Reader:
    simulation = Targets(slots=4)
    simulation.arrive(6)
    for _ in range(10):
        simulation.advance()
    simulation.event("pause")
    simulation.now_ns += 40 * SECOND
    simulation.event("resume")
    simulation.arrive(4)
    for _ in range(40):
        simulation.advance()
    simulation.write(store)
    return store.reader()


def end_of(reader: Reader) -> int:
    newest = queries.newest(reader, RUN_ID)
    assert newest is not None
    return int(newest["end_ns"])


@pytest.mark.parametrize("span_s", [0.2, 0.5, 60.0])
def test_gaps_are_those_of_the_view(span_s: float, store: Store) -> None:
    """Also those that began before the window, or before a pause."""
    reader = paused_run(store)
    end = end_of(reader)
    start = queries.since_ns(end, span_s)
    paused = live_tokens.pauses(reader, RUN_ID)
    assert len(paused) == 1
    found = live_tokens.tokens(reader, RUN_ID, start, end, paused)
    wanted = reader.frame(
        "SELECT itl_s FROM itl WHERE run_id = $run AND t_ns > $start AND t_ns <= $end",
        {"run": RUN_ID, "start": start, "end": end},
    )
    gaps = sorted(g for g in found.gap_s.tolist() if g == g)
    assert gaps == pytest.approx(sorted(wanted["itl_s"]))
    assert len(gaps) > 4
    count = "SELECT count(*) FROM tokens WHERE t_ns > $start AND t_ns <= $end"
    assert len(found.t_ns) == reader.value(count, {"start": start, "end": end})


def test_bins_hold_every_token_and_their_worst_gap(reader: Reader) -> None:
    end = end_of(reader)
    start = queries.since_ns(end, 5.0)
    found = live_tokens.tokens(reader, RUN_ID, start, end, live_tokens.pauses(reader, RUN_ID))
    bins = live_tokens.per_bin(found, end, 1.0, 5)
    wanted = reader.frame(
        "SELECT ($end - t_ns) // 1000000000 AS second, max(itl_s) AS gap_s FROM itl "
        "WHERE run_id = $run AND t_ns > $start GROUP BY 1 ORDER BY 1 DESC",
        {"run": RUN_ID, "start": start, "end": end},
    )
    assert bins["gap_s"].tolist() == pytest.approx(wanted["gap_s"].tolist())
    assert bins["tokens"].sum() == len(found.t_ns)


def test_tokens_stored_in_any_order_have_the_same_gaps(store: Store) -> None:
    simulation = race()
    simulation.rows["tokens"].reverse()
    simulation.write(store)
    reader = store.reader()
    end = end_of(reader)
    found = live_tokens.tokens(reader, RUN_ID, 0, end, live_tokens.pauses(reader, RUN_ID))
    wanted = reader.value("SELECT sum(itl_s) FROM itl WHERE run_id = $run", {"run": RUN_ID})
    assert sum(g for g in found.gap_s.tolist() if g == g) == pytest.approx(wanted)


def test_latencies_are_those_of_the_view(store: Store) -> None:
    reader = paused_run(store)
    paused = live_tokens.pauses(reader, RUN_ID)
    rows = live_requests.requests(reader, RUN_ID, 0, end_of(reader), paused)
    wanted = reader.frame("SELECT * FROM request_latency").set_index("request_id")
    wanted = wanted.loc[rows.request_id.tolist()]
    assert len(rows) == 10
    for name in ("ttft_s", "tpot_s"):
        made = getattr(rows, name).tolist()
        assert made == pytest.approx(wanted[name].tolist(), nan_ok=True)
    queued = wanted["queue_s"].notna().to_numpy()
    assert rows.waited_s[queued].tolist() == pytest.approx(wanted["queue_s"][queued].tolist())


def test_states_are_those_of_the_instant_that_is_asked_for(store: Store) -> None:
    reader = paused_run(store)
    paused = live_tokens.pauses(reader, RUN_ID)
    ends = reader.rows("SELECT finished_ns FROM requests WHERE finished_ns > 0 ORDER BY 1")
    until = int(ends[2][0])
    rows = live_requests.requests(reader, RUN_ID, 0, until, paused, until)
    assert (rows.state == "finished").sum() == 3
    sql = "SELECT count(*) FROM requests WHERE arrived_ns <= $t AND NOT admitted_ns <= $t"
    waiting = reader.value(sql, {"t": until})
    assert (rows.state == "waiting").sum() == waiting


def rows_of(html: str) -> list[str]:
    return re.findall(r'<div class="row (?:decode|prefill|waiting|ended)">.*?</div>', html)


def listed(html: str, reader: Reader, table: str) -> list[tuple[str, dict[str, Any]]]:
    """Each row of the stream with what the store has of its request."""
    found = reader.frame(f"SELECT * FROM {table}").set_index("request_id", drop=False)
    return [(r, found.loc[int(r.split("<b>r-")[1].split("<")[0])].to_dict()) for r in rows_of(html)]


def test_the_stream_says_who_where_and_what(store: Store) -> None:
    reader = paused_run(store)
    html = live.panels(reader, RUN_ID, {}, LIGHT, RECORDED).html["stream"]
    shown = listed(html, reader, "requests")
    states = "SELECT count(*) FROM requests WHERE finish_reason IS NULL"
    running = [line for line, _ in shown if 'class="row decode"' in line]
    assert len(running) == reader.value(states) > 0
    assert len(shown) - len(running) == live_stream.MOST["ended"]
    for line, row in shown:
        assert f"<span>{row['prompt_tokens']} prompt</span>" in line
        assert "<span>skew</span>" in line
        words = "decode {}" if line in running else "{} tokens"
        assert f"<span>{words.format(row['output_tokens'])}</span>" in line
        assert "&lt;w7&gt; &lt;w7&gt;" in line
    assert "<w7>" not in html, "what a model says is no markup"


def test_those_that_wait_longest_are_named(store: Store) -> None:
    simulation = Targets(slots=2)
    simulation.arrive(8)
    for _ in range(3):
        simulation.advance()
    simulation.write(store)
    reader = store.reader()
    html = live.panels(reader, RUN_ID, {}, LIGHT, RECORDED).html["stream"]
    waiting = [line for line in rows_of(html) if 'class="row waiting"' in line]
    assert ["r-2" in waiting[0], "r-3" in waiting[1], len(waiting)] == [True, True, 2]
    waited = (end_of(reader) - reader.value("SELECT min(arrived_ns) FROM requests")) / 1e9
    assert f"<span>waits {duration(waited)}</span>" in waiting[0]
    assert "2 running · 6 waiting" in html


def test_a_missed_target_is_marked(store: Store) -> None:
    reader = paused_run(store)
    html = live.panels(reader, RUN_ID, {}, LIGHT, RECORDED).html["stream"]
    for line, row in listed(html, reader, "request_latency"):
        for value, target in ((row["ttft_s"], 0.3), (row["tpot_s"], 0.0152)):
            if value == value:
                marked = f'<span class="late">{duration(value)} over {duration(target)}</span>'
                plain = f"<span>{duration(value)}</span>"
                assert (marked if value > target else plain) in line
    assert html.count('class="late"') > 2


def test_goodput_is_that_of_the_view(store: Store) -> None:
    """The whole run is in the window, so both are over the same requests."""
    reader = paused_run(store)
    steps = reader.value("SELECT max(step) FROM steps")
    view = live.panels(reader, RUN_ID, {"first": "0", "last": str(steps)}, LIGHT, RECORDED)
    row = reader.row("SELECT met, completed FROM goodput")
    assert row is not None
    assert 0 < row["met"] < row["completed"]
    ran_s = reader.value("SELECT sum(t_step_s) FROM steps")
    assert f"goodput {three(row['met'] / ran_s)} req/s" in view.html["tiles"]
    met = f"{row['met']} of {row['completed']} that finished in {duration(ran_s)} met"
    assert met in view.html["stream"]
    assert "targets, TTFT 300 ms and TPOT 15.2 ms" in view.html["stream"]


def test_the_worst_ttft_stands_beside_its_target(store: Store) -> None:
    reader = paused_run(store)
    steps = reader.value("SELECT max(step) FROM steps")
    view = live.panels(reader, RUN_ID, {"first": "0", "last": str(steps)}, LIGHT, RECORDED)
    worst = reader.value("SELECT max(ttft_s) FROM request_latency")
    assert f"TTFT to {duration(worst)}, target 300 ms" in view.html["tiles"]
    waiting = view.html["tiles"].split('"name">waiting')[0].rsplit("<div", 2)
    assert "alert" in "".join(waiting), "later than its target"


def test_without_targets_there_is_no_goodput(reader: Reader) -> None:
    assert "goodput: no targets set" in live.panels(reader, RUN_ID, {}, LIGHT).html["tiles"]


def test_a_held_stream_tells_nothing_that_came_later(reader: Reader) -> None:
    held = {"first": "330", "last": "450"}
    html = live.panels(reader, RUN_ID, held, LIGHT, RECORDED).html["stream"]
    end = reader.value(
        "SELECT t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT) FROM steps WHERE step = 450"
    )
    later = reader.rows("SELECT request_id FROM requests WHERE arrived_ns > $t", {"t": end})
    assert later
    for (request,) in later:
        assert f"<b>r-{request}</b>" not in html
    running = reader.rows(
        "SELECT request_id, count(*) FROM tokens WHERE t_ns <= $t GROUP BY 1 HAVING request_id IN "
        "(SELECT request_id FROM requests WHERE finished_ns > $t)",
        {"t": end},
    )
    listed = [line for line in rows_of(html) if 'class="row decode"' in line]
    made = {f"<b>r-{r}</b>": f"<span>decode {n}</span>" for r, n in running}
    assert listed
    for line in listed:
        name = next(name for name in made if name in line)
        assert made[name] in line


def test_without_its_tokenizer_the_text_is_missing_and_says_so(reader: Reader) -> None:
    html = live.panels(reader, RUN_ID, {}, LIGHT).html["stream"]
    assert "this run&#x27;s tokenizer is not at hand" in html


def test_a_source_without_requests_says_so(store: Store) -> None:
    simulation = race()
    simulation.write(store)
    with_requests = live.panels(store.reader(), RUN_ID, {}, LIGHT)
    assert "not reported" not in with_requests.html["stream"]
    other = Store(None)
    try:
        blind = race()
        blind.all_sequences = []
        blind.write(other)
        view: View = live.panels(other.reader(), RUN_ID, {}, LIGHT)
    finally:
        other.close()
    assert "Single requests are not reported by this source." in view.html["stream"]
    assert "goodput not reported" in view.html["tiles"]


@pytest.fixture
def fake(store: Store) -> Iterator[FakeSession]:
    paused_run(store)
    made = FakeSession(store)
    state.hold(made)
    yield made
    state.hold(None)


def test_the_requests_stand_where_no_answer_does(fake: FakeSession) -> None:
    """To a prompt of a person, or on a past run, which nobody asked."""
    with fake.store.reader() as reader:
        before = views.render(views.Request("live"), reader).html
        fake.last_ticket = fake.submit_text("Why?")
        asked = views.render(views.Request("live"), reader).html
        past = views.render(views.Request("live", run=RUN_ID), reader).html
    assert before["answer"].count('class=\\"row ') == live_stream.SHORT
    assert "Why?" in asked["answer"]
    assert 'class=\\"row ' in past["answer"]
    assert "Why?" not in past["answer"]
    assert "short" not in before


def test_a_modelled_run_says_that_its_text_is_synthetic(store: Store) -> None:
    simulation = Targets(slots=4)
    simulation.arrive(4)
    for _ in range(9):
        simulation.advance()
    simulation.modelled = True
    simulation.write(store)
    html = live.panels(store.reader(), RUN_ID, {}, LIGHT, RECORDED).html
    mark = '<span class="ss-modelled">synthetic text</span>'
    assert mark in html["stream"]
    assert mark in html["short"]
