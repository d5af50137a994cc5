"""Pages of a modelled run say so, and the run selector starts another engine; no browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import new_run, state
from app.live import views
from app.panels import modelled
from app.panels.session import answer
from engine.build_modelled import build_modelled_engine
from engine.config import EngineConfig
from engine.messages import Load, Pace, Start
from engine.sink import NullSink
from telemetry.clock import NS_PER_S, now_ns
from telemetry.schema import RunRecord
from telemetry.store import Store
from tests.app.fake import FakeSession
from tests.app.synthetic import race
from tests.app.test_pages import opened

H100_NAMES = ("modelled", "h100-sxm", "llama-3.1-8b")
H100 = EngineConfig("llama-3.1-8b", backend="modelled", device="h100-sxm")


def record(config: EngineConfig = H100) -> RunRecord:
    """The run that a modelled engine really announces."""
    return build_modelled_engine(config, NullSink(), lambda m: None, lambda *_: None).run


def row(config: EngineConfig = H100) -> dict[str, Any]:
    made = record(config)
    return {name: getattr(made, name) for name in made.__slots__}


@pytest.fixture
def fake() -> Iterator[FakeSession]:
    """A session whose live run has the steps of a synthetic race, on a modelled device."""
    store = Store(None)
    made = FakeSession(store)
    made.run_id = store.start_run(record())
    steps = race()
    steps.opened = True  # its run is the modelled one
    steps.write(store, made.run_id)
    store.flush()
    assert made.ready is not None
    made.ready = replace(made.ready, run={**made.ready.run, "clock": "modelled"})
    state.hold(made)
    yield made
    state.hold(None)
    store.close()


def test_the_assumptions_are_complete_and_sourced() -> None:
    html = modelled.assumptions(row())
    for said in ("989 TFLOP/s", "3.35 TB/s", "80.3% of peak", "85.0% of peak", "100 µs"):
        assert said in html
    assert "NVIDIA H100 datasheet (2023)" in html
    assert "max(t_compute / matmul_fraction" in html
    assert "8.03B parameters" in html
    assert "link" not in html.split("<table>")[1], "one device exchanges nothing"
    pair = modelled.assumptions(row(replace(H100, tensor_parallel=2)))
    assert "tensor parallel 2" in pair
    assert "450 GB/s per direction" in pair


def test_what_came_from_outside_is_escaped() -> None:
    bad = row()
    details = json.loads(bad["config"])
    details["assumptions"]["device_title"] = "<script>x</script>"
    assert "<script>" not in modelled.assumptions({**bad, "config": json.dumps(details)})


def test_a_device_fits_the_badge() -> None:
    assert modelled.summary(row()) == "MODELLED · H100 SXM 80 GB · llama-3.1-8b bf16"
    assert modelled.took(row()) == "modelled"
    assert modelled.took({"clock": "real"}) == "measured"
    assert modelled.took(None) == "measured"


@pytest.mark.parametrize(
    ("behind", "said"),
    [(None, ""), (0.004, ""), (0.03, " · 3.00% behind real time"), (0.2, "<b>20.0% behind")],
)
def test_falling_behind_is_told(behind: float | None, said: str) -> None:
    text = modelled.counter("step 7", behind)
    assert "modelled</span> step 7" in text
    assert said in text
    assert ("behind" in text) == bool(said)


def test_synthetic_text_is_marked_wherever_it_shows() -> None:
    shown = answer("Why?", "Because.", True, "length", None, synthetic=True)
    assert shown.count("synthetic</span>") == 2
    assert "synthetic" not in answer("Why?", "Because.", True, "length", None)


@pytest.mark.parametrize("view", ["live", "roofline", "scheduling"])
def test_every_page_marks_its_counter(view: str, fake: FakeSession) -> None:
    fake.pace = Pace(lag_s=0.5, behind=0.08)
    with fake.store.reader() as reader:
        live = views.render(views.Request(view), reader).html["counter"]
        past = views.render(views.Request(view, run=str(fake.run_id)), reader).html["counter"]
    assert "modelled" in live
    assert "8.00% behind real time" in live
    assert "modelled" in past
    assert "behind" not in past, "a recording keeps no pace"


def test_what_a_model_says_is_never_called_measured(fake: FakeSession) -> None:
    with fake.store.reader() as reader:
        live = views.render(views.Request("live"), reader).figures["anatomy"]
        roofline = views.render(views.Request("roofline"), reader).figures
    assert '"modelled","math","read"' in live
    assert "modelled median" in roofline["crossover"]
    assert "measured" not in "".join(roofline.values())
    assert "(datasheet)" in roofline["roofline"]


def test_now_is_the_engines_now(fake: FakeSession) -> None:
    fake.pace = Pace(lag_s=7.0, behind=0.0)
    moment = views._moment(views.Request("live"))
    assert now_ns() - moment.now_ns == pytest.approx(7 * NS_PER_S, abs=NS_PER_S)


def test_the_badge_opens_the_assumptions(fake: FakeSession) -> None:
    at = opened()
    assert not at.exception
    bodies = [e.body for e in at.get("html")]
    assert any("No such device is here" in body for body in bodies)
    assert at.selectbox(key="run").options[0].endswith("modelled H100 SXM 80 GB")
    assert at.get("chat_input")[0].placeholder == "Ask a modelled SmolLM2-135M-Instruct: its " + (
        "text is synthetic"
    )


def choose(at: AppTest, entry: str) -> AppTest:
    label = next(o for o in at.selectbox(key="run").options if entry in o)
    return at.selectbox(key="run").select(label).run()


def keep_open(at: AppTest) -> None:
    """A browser reruns the dialog alone; the testing tool reruns the page, which closes it."""
    at.session_state["new_run"] = new_run.MODELLED


def test_a_new_modelled_run_starts_from_the_selector(fake: FakeSession) -> None:
    at = choose(opened(), "new run: modelled")
    assert not at.exception
    assert at.selectbox(key="run").value == "live", "nothing has started yet"
    assert any("426,784 tokens of KV cache" in c.value for c in at.caption)
    keep_open(at)
    at.button(key="start_modelled").click().run()
    (asked,) = [a for a in fake.asked if a[0] == "new_run"]
    _, config, load = asked
    assert (config.backend, config.device, config.model) == tuple(H100_NAMES)
    assert (config.live, config.paced, config.max_batch) == (True, True, 64)
    assert config.scheduler == "continuous", "as the running engine is set"
    assert load == Load("steady", 4)


def test_what_does_not_fit_cannot_be_started(fake: FakeSession) -> None:
    at = choose(opened(), "new run: modelled")
    keep_open(at)
    at.selectbox(key="new_model").select("Llama 3.1 70B").run()
    assert "2 x NVIDIA H100 SXM 80 GB" in at.error[0].value
    assert at.button(key="start_modelled").disabled


def test_the_way_back_leads_to_the_cpu_as_it_was(fake: FakeSession) -> None:
    fake.cpu_config = EngineConfig("some/model", dtype="int8", max_batch=4, live=True)
    choose(opened(), "new run: this CPU")
    (asked,) = [a for a in fake.asked if a[0] == "new_run"]
    assert asked[1] == replace(fake.cpu_config, scheduler="continuous", chunk_tokens=256)


def test_an_engine_that_is_still_starting_hands_on_what_it_was_started_with(
    fake: FakeSession,
) -> None:
    """It has said nothing yet: neither its load nor its modes may be lost."""
    fake.phase, fake.ready, fake.status = "starting", None, None
    begun = EngineConfig(scheduler="static", ttft_slo_s=0.5, tpot_slo_s=0.02)
    fake.started_with = Start(begun, Load("chat", 2))
    choose(opened(), "new run: this CPU")
    (asked,) = [a for a in fake.asked if a[0] == "new_run"]
    assert asked[1].scheduler == "static"
    assert (asked[1].ttft_slo_s, asked[1].tpot_slo_s) == (0.5, 0.02)
    assert asked[2] == Load("chat", 2)


def test_a_refusal_is_shown(fake: FakeSession) -> None:
    fake.refuses = "another run is being started: wait until it is there"
    at = choose(opened(), "new run: this CPU")
    assert at.error[0].value == fake.refuses
