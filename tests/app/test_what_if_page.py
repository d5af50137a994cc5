"""The What-if page without a browser: addresses, answers, words, and the route that serves them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from app import state as registry
from app.cli import app as command_line
from app.live.still import still_route
from app.panels import what_if_table
from app.panels.view import View
from app.panels.what_if import panels, scale
from app.panels.what_if_controls import PRESETS, controls, page
from app.panels.what_if_state import (
    DEFAULTS,
    State,
    address,
    command,
    option,
    parse,
    question,
    text_of,
)
from app.theme import DARK, LIGHT
from engine.physics.catalogue import devices, models
from engine.physics.whatif import answer

SCRIPT = Path(__file__).resolve().parents[2] / "app" / "dashboard.py"
FIGURES = {"overlap", "budget", "curves", "phases"}
STATES = {preset.label: State(**preset.choices) for preset in PRESETS} | {
    "experts": State(model="mixtral-8x7b", batch=64, context=512, tensor_parallel=2),
    "latent": State(model="deepseek-v3", dtype="fp8", context=4096, tensor_parallel=8),
    "fractions": State(matmul_fraction=0.75, bandwidth_fraction=0.85, overhead_ms=1.5),
    "additive": State(composition="additive-kv", batch=512, context=8192),
    "money": State(price_per_hour=2.5, output_tokens=500, dtype="fp8", math_dtype="fp8"),
    "no target": State(tpot_slo_ms=None, devices=("l4",), dtypes=("int4",)),
}
ALL = pytest.mark.parametrize("state", STATES.values(), ids=list(STATES))


def shown(state: State) -> View:
    return panels(dict(parse_qsl(address(state), keep_blank_values=True)), LIGHT)


def beside(state: State) -> str:
    """The table of the page, which is asked for by itself."""
    return panels(dict(parse_qsl(address(state))) | {"part": "table"}, LIGHT).html["table"]


def preset(beginning: str) -> State:
    (found,) = [s for label, s in STATES.items() if label.startswith(beginning)]
    return found


def plain(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


# --- addresses ---


@ALL
def test_an_address_reproduces_the_state(state: State) -> None:
    assert parse(dict(parse_qsl(address(state), keep_blank_values=True))) == state


def test_the_shortest_address_says_what_matters() -> None:
    expected = "model=llama-3.1-70b&device=h100-sxm&dtype=fp16&batch=1&context=0&phase=decode"
    assert address(State()) == expected
    assert parse({}) == State()


def test_foreign_parameters_are_ignored() -> None:
    assert parse({"look": "dark", "run": "r-1"}) == State()


@ALL
def test_the_command_prints_the_same_answer(state: State) -> None:
    words = shlex.split(command(state))
    assert words[:2] == ["stepscope", "whatif"]
    result = CliRunner().invoke(command_line, [*words[1:], "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    mine = json.loads(json.dumps(answer(question(state))))
    for key in ("t_step_s", "t_memory_s", "max_batch", "fits", "prices", "e2el_s", "sentences"):
        assert printed[key] == mine[key], key


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"device": "h20x"}, "unknown device 'h20x'"),
        ({"model": "llama-3.1-7b"}, "Did you mean 'llama-3.1-"),
        ({"model": "/etc/hostname"}, "unknown model '/etc/hostname'"),
        ({"batch": "-3"}, "batch is -3"),
        ({"batch": "many"}, "batch is 'many': write a whole number"),
        ({"batch": "1.5"}, "batch is '1.5': write a whole number"),
        ({"context": "nan"}, "context is 'nan': write a whole number"),
        ({"overhead-ms": "inf"}, "overhead-ms is 'inf': write a number"),
        ({"tpot-slo": "0"}, "TPOT target is 0"),
        ({"dtype": "fp7"}, "unknown dtype 'fp7'"),
        ({"device": "a100-sxm-80gb", "math-dtype": "fp8"}, "no fp8 rate is known"),
        ({"matmul-fraction": "1.5"}, "matmul_fraction is 1.5"),
        ({"phase": "both"}, "unknown phase 'both'"),
    ],
)
def test_what_cannot_be_is_told_in_one_line_and_nothing_is_drawn(
    params: dict[str, str], says: str
) -> None:
    view = panels(params, LIGHT)
    assert not view.figures
    text = view.html["headline"].replace("&#x27;", "'")
    assert says in text
    assert "\n" not in text
    assert set(view.html) == {"headline", "blank", "badge", "assumptions", "scale"}
    assert "table" not in panels(params | {"part": "table"}, LIGHT).html


def test_an_address_cannot_inject_markup() -> None:
    view = panels({"device": "<img src=x>", "devices": "<b>"}, LIGHT)
    assert "<img" not in json.dumps(view.html)
    view = panels({"devices": "<img src=x>", "dtypes": "fp8", "part": "table"}, LIGHT)
    assert "unknown device" in view.html["table"]
    assert "<img" not in view.html["table"]


# --- what is shown ---


@ALL
@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_every_state_is_drawn(state: State, look: Any) -> None:
    view = panels(dict(parse_qsl(address(state), keep_blank_values=True)), look)
    assert set(view.figures) == FIGURES
    text = json.dumps(view.figures, allow_nan=False) + json.dumps(view.html)
    assert "NaN" not in text
    assert "None" not in text


@pytest.mark.parametrize("name", [str(n) for n in models()])
def test_every_model_has_a_page_in_both_phases(name: str) -> None:
    for phase in ("decode", "prefill"):
        assert set(shown(State(model=name, phase=phase, context=512)).figures) == FIGURES


@pytest.mark.parametrize("name", [str(n) for n in devices()])
def test_every_device_has_a_page(name: str) -> None:
    assert set(shown(State(device=name, model="llama-3.1-8b")).figures) == FIGURES


def test_the_articles_cases() -> None:
    html = shown(preset("70B fp16")).html
    assert "Reading takes 42.1 ms, the math 0.143 ms: memory-bound, ×295." in html["headline"]
    assert "2 × NVIDIA H100 SXM" in plain(html["fit"])
    assert "23.7 tok/s" in html["facts"]
    html = shown(preset("8B")).html
    assert "Reading takes 4.79 ms" in html["headline"]
    assert "209 tok/s" in html["facts"]
    html = shown(preset("70B FP8")).html
    assert "Reading takes 21.1 ms" in html["headline"]
    html = shown(preset("50 ms SLO")).html
    assert "At most 122 sequences of 4,000 tokens run within 50 ms a token:" in plain(html["slo"])
    assert "(capacity)" in html["slo"]
    html = shown(preset("DeepSeek")).html
    assert "9,639 is a direction, not a size" in html["footnotes"]
    html = shown(preset("4K prefill")).html
    assert "300 ms" in html["footnotes"]
    assert "584 ms" in html["footnotes"]
    assert "584 ms + attention 22.2 ms" in html["facts"]


def test_sixteen_long_conversations_read_more_cache_than_weights() -> None:
    kv, weights = (trace(shown(preset("16 × 32k")), "budget", n) for n in ("KV", "weights"))
    assert kv["x"][0] > 3 * weights["x"][0]
    found = answer(question(preset("16 × 32k")))
    assert found["kv_bytes"] == 64 * 2**30
    assert "batch 14" in plain(shown(preset("16 × 32k")).html["fit"])


def trace(view: View, figure: str, name: str) -> dict[str, Any]:
    (found,) = [t for t in view.figures[figure]["data"] if t["name"] == name]
    return dict(found)


def test_bars_are_the_answers_times() -> None:
    state = replace(State(), batch=64, context=2048, tensor_parallel=4)
    found = answer(question(state))
    view = shown(state)
    bars = {n: trace(view, "overlap", n)["x"][0] / 1e3 for n in ("weights", "KV", "math")}
    assert bars["weights"] == pytest.approx(found["t_weights_s"], rel=1e-3)
    assert bars["KV"] == pytest.approx(found["t_kv_s"], rel=1e-3)
    assert bars["math"] == pytest.approx(found["t_compute_s"], rel=1e-3)


@pytest.mark.parametrize("name", ["fractions", "additive", "experts", "latent"])
def test_parts_of_a_step_sum_to_it(name: str) -> None:
    state = STATES[name]
    rows = [t for t in shown(state).figures["overlap"]["data"] if t["y"] == [0]]
    ends = [t["base"][0] + t["x"][0] for t in rows]
    assert [t["base"][0] for t in rows] == pytest.approx([0, *ends[:-1]], rel=1e-3)
    assert ends[-1] == pytest.approx(answer(question(state))["t_step_s"] * 1e3, rel=1e-3)


def test_the_slider_moves_math_and_leaves_the_weights() -> None:
    few, many = (shown(State(batch=b)) for b in (2, 200))
    read = [trace(v, "overlap", "weights")["x"] for v in (few, many)]
    math = [trace(v, "overlap", "math")["x"][0] for v in (few, many)]
    assert read[0] == read[1]
    assert math[1] == pytest.approx(100 * math[0], rel=1e-3)


def test_at_the_crossover_both_take_as_long() -> None:
    star = round(answer(question(State()))["b_star"])
    assert "they are equal" in shown(State(batch=star)).html["headline"]
    assert "memory-bound" in shown(State(batch=star - 10)).html["headline"]
    assert "compute-bound" in shown(State(batch=star + 10)).html["headline"]


def test_the_curve_of_batches_goes_through_the_chosen_point() -> None:
    view = shown(State(batch=64, context=1024, matmul_fraction=0.7, overhead_ms=1.0))
    step, point = trace(view, "curves", "step"), trace(view, "curves", "live")
    assert point["y"][0] == pytest.approx(step["y"][step["x"].index(64)], rel=1e-3)


def test_unknown_is_told_as_unknown() -> None:
    view = shown(State(model="deepseek-v4-pro", context=4096, batch=8))
    assert "At least" in view.html["headline"]
    assert "unknown" in plain(view.html["slo"])
    notes = [a["text"] for a in view.figures["overlap"]["layout"]["annotations"]]
    assert any("KV cache, unknown" in text for text in notes)
    budget = [t["name"] for t in view.figures["budget"]["data"]]
    assert "KV" not in budget
    assert "≥" in beside(State(model="deepseek-v4-pro", context=4096, batch=8))
    assert models()["deepseek-v4-pro"].unknown in plain(view.html["assumptions"])


def test_assumptions_name_formulas_peaks_sources_and_the_command() -> None:
    html = plain(shown(STATES["fractions"]).html["assumptions"])
    found = answer(question(STATES["fractions"]))
    for said in (*found["formulas"].values(), *found["assumptions"]["sources"].values()):
        assert said.replace("&", "&amp;").replace("<", "&lt;")[:30] in html
    assert "matmul_fraction0.75" in html
    assert "peak_flops989 TFLOP/s" in html
    assert "matmul-fraction=0.803" in shown(STATES["fractions"]).html["assumptions"]
    assert "link_bandwidthunknown" not in html
    assert "stepscope whatif --model llama-3.1-70b" in html
    assert "75%, 85% of peak" in plain(shown(STATES["fractions"]).html["badge"])


def test_marks_of_the_slider() -> None:
    assert 'left:50.00%">32<' in scale(None)
    assert "<b" not in scale(None)
    assert "<b" not in scale(9640.0)
    assert '<b style="left:50.00%"' in scale(32.0)


# --- side by side ---


def test_devices_and_dtypes_stand_side_by_side() -> None:
    state = State(devices=("h100-sxm", "h200"), dtypes=("fp16", "fp8"))
    found = what_if_table.rows(state)
    assert [(r.device, r.dtype) for r in found] == [
        ("h100-sxm", "fp16"),
        ("h100-sxm", "fp8"),
        ("h200", "fp16"),
        ("h200", "fp8"),
    ]
    steps = [r.answer["t_step_s"] for r in found if r.answer]
    assert steps[0] == pytest.approx(2 * steps[1])
    assert steps[0] / steps[2] == pytest.approx(4800 / 3350)
    table = what_if_table.table(found, state)
    assert table.count('class="wi-here"') == 1
    assert 'data-set="device=h200&amp;dtype=fp8"' in table
    assert "needs 2" in table


def test_the_table_is_asked_for_by_itself() -> None:
    assert "table" not in shown(State()).html
    assert set(panels({"part": "table"}, LIGHT).html) == {"table"}


def test_the_chosen_one_is_always_in_the_table() -> None:
    found = what_if_table.rows(State(device="l4", devices=("h200",), dtypes=("fp8",)))
    assert [(r.device, r.dtype) for r in found] == [("l4", "fp16"), ("h200", "fp8")]


def test_a_row_that_cannot_be_says_why() -> None:
    state = State(math_dtype="fp8", devices=("a100-sxm-80gb", "nonsense"), dtypes=("fp8",))
    html = plain(beside(state))
    assert "no fp8 rate is known" in html
    assert "unknown device" in html


def test_given_rates_and_prices_are_of_the_chosen_device_only() -> None:
    state = State(bandwidth_gb=1000.0, price_per_hour=3.0, devices=("h100-sxm", "h200"))
    here, _, there, _ = what_if_table.rows(state)
    assert here.answer is not None
    assert there.answer is not None
    assert here.answer["assumptions"]["bandwidth"] == 1e12
    assert there.answer["assumptions"]["bandwidth"] == 4.8e12
    assert here.answer["prices"] is not None
    assert there.answer["prices"] is None
    assert "1M tokens out" in what_if_table.table([here, there], state)


# --- what the browser gets ---


def test_controls_cover_the_state_and_offer_what_exists() -> None:
    given = page()
    json.dumps(given, allow_nan=False)
    keys = [control["key"] for control in given["controls"]]
    assert set(keys) == {option(name) for name in DEFAULTS} == set(given["defaults"])
    offered = {c.field: [value for value, _ in c.options] for c in controls()}
    assert offered["model"] == list(models())
    assert offered["devices"] == list(devices())
    assert parse(given["defaults"]) == State()


@pytest.mark.parametrize("chosen", PRESETS, ids=lambda p: p.label)
def test_presets_set_what_controls_know(chosen: Any) -> None:
    facts = chosen.to_json()
    assert set(facts["set"]) <= set(page()["defaults"])
    assert parse(facts["set"]) == State(**chosen.choices)
    assert all(text_of(v) == facts["set"][option(k)] for k, v in chosen.choices.items())


@pytest.fixture
def client() -> Iterator[TestClient]:
    routes = [Route("/stepscope/still/{view}", still_route)]
    with TestClient(Starlette(routes=routes)) as made:
        yield made


def test_the_route_needs_neither_engine_nor_run(client: TestClient) -> None:
    registry.hold(None, "no engine")
    try:
        answered = client.get("/stepscope/still/what-if", params={"batch": 8, "look": "dark"})
    finally:
        registry.hold(None)
    assert answered.headers["cache-control"] == "no-store"
    view = answered.json()
    assert set(view["figures"]) == FIGURES
    assert view["figures"]["overlap"]["layout"]["font"]["color"] == DARK.text
    assert view["html"]["headline"].startswith("<b>Reading takes")


def test_the_route_knows_no_view_of_a_run(client: TestClient) -> None:
    answered = client.get("/stepscope/still/live")
    assert answered.status_code == 404
    assert "what-if" in answered.text


@pytest.mark.parametrize("page", ["what_if", "kernels"])
@pytest.mark.parametrize("failure", [None, "no such model file"])
def test_the_page_runs_without_an_engine(failure: str | None, page: str) -> None:
    registry.hold(None, failure)
    at = AppTest.from_file(str(SCRIPT), default_timeout=30)
    at.switch_page(f"../pages/{page}.py")
    try:
        assert not at.run().exception
    finally:
        registry.hold(None)
