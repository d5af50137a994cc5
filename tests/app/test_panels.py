"""Panels over runs as they come: empty, without peaks, past, with a hostile answer."""

from __future__ import annotations

import json

import pytest

from app.panels import live, roofline, scheduling, session
from app.panels.view import Panels, number
from app.theme import DARK, LIGHT, Theme
from app.units import percent
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.synthetic import RUN_ID, Simulation, race

ALL: list[Panels] = [live.panels, roofline.panels, scheduling.panels]
NAMES = ["live", "roofline", "scheduling"]


@pytest.mark.parametrize("panels", ALL, ids=NAMES)
@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_a_view_is_plain_json_with_a_headline(panels: Panels, look: Theme, reader: Reader) -> None:
    view = panels(reader, RUN_ID, {}, look)
    json.dumps(view.figures, allow_nan=False)
    assert view.figures
    assert view.html["headline"].startswith("<b>")
    assert view.html["counter"] == "step 967"


@pytest.mark.parametrize("panels", ALL, ids=NAMES)
def test_the_same_snapshot_gives_the_same_view(panels: Panels, reader: Reader) -> None:
    assert panels(reader, RUN_ID, {}, LIGHT) == panels(reader, RUN_ID, {}, LIGHT)


@pytest.mark.parametrize("panels", ALL, ids=NAMES)
def test_a_run_without_steps_says_what_to_do(panels: Panels, store: Store) -> None:
    Simulation().write(store)
    view = panels(store.reader(), RUN_ID, {}, LIGHT)
    assert not view.figures
    assert "No step has run yet" in view.html["headline"]
    assert "Type a prompt" in view.html["blank"]


@pytest.mark.parametrize("panels", ALL, ids=NAMES)
def test_one_step_is_enough(panels: Panels, store: Store) -> None:
    simulation = Simulation()
    simulation.arrive(1)
    simulation.advance()
    simulation.write(store)
    view = panels(store.reader(), RUN_ID, {}, LIGHT)
    json.dumps(view.figures, allow_nan=False)
    assert view.html["counter"] == "step 0"


@pytest.mark.parametrize("panels", ALL, ids=NAMES)
def test_unknown_peaks_are_never_drawn_as_zero(panels: Panels, store: Store) -> None:
    race(peaks=(None, None)).write(store)
    view = panels(store.reader(), RUN_ID, {}, LIGHT)
    text = json.dumps(view.figures, allow_nan=False) + json.dumps(view.html)
    assert "NaN" not in text
    if panels is not scheduling.panels:
        assert "not reported by this source" in text


def test_live_headline_names_scheduler_and_the_binding_term(reader: Reader) -> None:
    text = live.panels(reader, RUN_ID, {}, LIGHT).html["headline"]
    assert "continuous, 1 stream" in text
    assert "Reading takes at least" in text


def test_five_tiles_and_a_missed_target(reader: Reader) -> None:
    tiles = live.panels(reader, RUN_ID, {}, LIGHT).html["tiles"]
    assert tiles.count('class="name"') == 5
    assert tiles.count("<svg") == 5
    worst = reader.value(
        "SELECT max(itl_s) FROM itl WHERE run_id = $run AND t_ns > "
        "(SELECT max(t_ns) FROM tokens) - 10000000000",
        {"run": RUN_ID},
    )
    assert f"{worst * 1e3:.0f} ms" in tiles
    assert "target 50.0 ms" in tiles
    assert tiles.count("alert") == 1


def kv_tile(store: Store, **newest: int) -> str:
    """The KV tile of a run whose newest step has these."""
    simulation = Simulation()
    simulation.arrive(4)
    while simulation.advance():
        pass
    simulation.rows["steps"][-1].update(newest)
    simulation.write(store)
    return live.panels(store.reader(), RUN_ID, {}, LIGHT).html["tiles"].split("KV cache")[1]


def test_the_kv_tile_tells_of_hits(store: Store) -> None:
    prompts = kv_tile(store, prefix_hit_tokens=0)
    assert "of 640 blocks" in prompts
    assert "hits" not in prompts


def test_hits_are_a_share_of_the_prompt_tokens(store: Store) -> None:
    tile = kv_tile(store, prefix_hit_tokens=90, prefill_tokens=30)
    asked = store.reader().value("SELECT sum(prefill_tokens) + 90 FROM steps")
    assert f"of 640 · {percent(90 / float(asked))} hits" in tile


def test_preemption_is_an_alert(store: Store) -> None:
    tile = kv_tile(store, prefix_hit_tokens=90, preemptions=2, recomputed_tokens=50)
    assert "of 640 · 2 preempted" in tile
    headline = scheduling.panels(store.reader(), RUN_ID, {}, LIGHT).html["headline"]
    assert "KV blocks ran out: 2 preemptions, 50 tokens were computed again." in headline
    numbers = scheduling.panels(store.reader(), RUN_ID, {}, LIGHT).html["numbers"]
    assert "tokens recomputed" in numbers


def test_scheduling_headline_compares_the_two(reader: Reader) -> None:
    view = scheduling.panels(reader, RUN_ID, {"span": "12"}, LIGHT)
    text = view.html["headline"]
    assert "static" in text
    assert "continuous" in text
    assert "×" in text
    assert "slot-steps were padding" in text
    assert view.html["numbers"].count("<h4>") == 2


def finished_at_once(store: Store, scheduler: str, more: str | None = None) -> str:
    """The headline after two requests of equal length, under a scheduler, then another."""
    simulation = Simulation(slots=2, scheduler=scheduler)
    for then in (None, "continuous") if more else (None,):
        if then:
            simulation.switch(then)
            simulation.event(str(more))
        simulation.arrive(2)
        for _ in range(8):
            simulation.advance()
    simulation.write(store)
    return scheduling.panels(store.reader(), RUN_ID, {}, LIGHT).html["headline"]


def test_static_never_claims_to_free_a_slot_at_once(store: Store) -> None:
    text = finished_at_once(store, "static")
    assert "No slot-step is padding" in text
    assert "at once" not in text


@pytest.mark.parametrize("scheduler", ["continuous", "no-batching", "chunked"])
def test_the_others_free_a_slot_at_once(store: Store, scheduler: str) -> None:
    assert "frees its slot at once" in finished_at_once(store, scheduler)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("load", "the load"),
        ("max_batch", "max batch"),
        ("chunk_tokens", "the token budget"),
        ("prefix_cache", "the prefix cache"),
        ("kv_blocks", "the KV cache"),
    ],
)
def test_unlike_conditions_are_not_compared(store: Store, kind: str, name: str) -> None:
    text = finished_at_once(store, "static", kind)
    assert "static" in text
    assert "continuous" in text
    assert "×" not in text
    assert f"{name} changed" in text


def test_the_load_that_was_there_before_them_does_not_forbid_it(store: Store) -> None:
    simulation = Simulation(slots=2, scheduler="static")
    simulation.event("load")
    for scheduler in ("static", "continuous"):
        simulation.switch(scheduler)
        simulation.arrive(2)
        for _ in range(8):
            simulation.advance()
    simulation.write(store)
    assert "×" in scheduling.panels(store.reader(), RUN_ID, {}, LIGHT).html["headline"]


def test_a_pause_does_not_forbid_to_compare(store: Store) -> None:
    assert "×" in finished_at_once(store, "static", "pause")


def test_roofline_scale_comes_from_the_address(reader: Reader) -> None:
    figure = roofline.panels(reader, RUN_ID, {"scale": "normalised"}, LIGHT).figures["roofline"]
    assert figure["layout"]["xaxis"]["title"]["text"] == "intensity / ridge"


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("x", 20), ("nan", 20), ("1e9", 600)])
def test_numbers_from_the_address_are_bounded(text: str, value: float) -> None:
    assert number({"span": text}, "span", 20.0, 1.0, 600.0) == value


def test_an_answer_cannot_inject_markup() -> None:
    html = session.answer("<b>hi</b>", "<script>x</script>", True, "stop", None)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<b>hi</b>" not in html
    assert "<i" not in session.answer("a", "b", False, None, "<i>refused</i>")


def test_progress_and_failure_have_their_own_pages() -> None:
    view = session.starting("measuring bf16 matmul", 0.25)
    assert "width:25%" in view.html["blank"]
    assert "measuring bf16 matmul" in view.html["headline"]
    assert "moving" in session.starting("loading", None).html["blank"]
    assert "&lt;x&gt;" in session.failed("no file <x>").html["headline"]
