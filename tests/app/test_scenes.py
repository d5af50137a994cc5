"""Scenes as data, against what engine and workloads allow; and what each asks of a session."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from app import scene_setup
from app.arrivals import MAX_STREAMS
from app.scene_setup import SceneError, fitted, set_up
from app.scenes import SCENES, Scene, Streams
from engine.config import EngineConfig
from engine.messages import Load
from engine.modelled_setup import modelled_setup
from engine.schedulers import check_chunk_tokens, check_max_batch, check_scheduler
from engine.workloads import WORKLOADS, load_workload
from telemetry.store import Store
from tests.app.fake import FakeSession, ready, status

PAGES = Path(__file__).resolve().parents[2] / "pages"
SCENE = pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
LOADED = [s for s in SCENES.values() if s.load is not None]
CLIMB, CONTEXTS = SCENES["Climb the roof"], SCENES["Long contexts"]
H100, RACE = SCENES["Modelled H100"], SCENES["The race"]


LIMITS = {**ready().limits, "kv_blocks_capacity": 1456}  # of a CPU without bf16


@pytest.fixture
def fake() -> Iterator[FakeSession]:
    store = Store(None)
    yield FakeSession(store, ready=replace(ready(), limits=LIMITS))
    store.close()


# --- as data ---


@SCENE
def test_its_modes_are_what_an_engine_takes(scene: Scene) -> None:
    check_scheduler(scene.scheduler)
    check_max_batch(scene.max_batch)
    check_chunk_tokens(scene.chunk_tokens)
    assert EngineConfig(**scene.modes).max_batch == scene.max_batch


@SCENE
def test_its_page_exists_and_a_sentence_says_what_to_look_for(scene: Scene) -> None:
    assert (PAGES / f"{scene.page}.py").exists()
    assert re.fullmatch(r"[A-Z0-9].{20,110}\.", scene.look_for)


@pytest.mark.parametrize("scene", LOADED, ids=lambda s: s.name)
def test_its_streams_fit_the_slots_and_hold_what_it_says(scene: Scene) -> None:
    load = scene.load
    assert load is not None
    assert load.workload in WORKLOADS
    assert list(load.levels) == sorted(set(load.levels))
    assert 1 <= load.most <= min(scene.max_batch, MAX_STREAMS)
    items = list(islice(load_workload(load.workload, seed=0).items, 400))
    documents = {item.pieces[0] for item in items if item.pieces}
    assert sum(piece.tokens for piece in documents) == load.shared_tokens
    own = [
        item.prompt_tokens - sum(p.tokens for p in item.pieces[:1]) + item.output_tokens
        for item in items
    ]
    assert 0.9 * load.own_tokens < max(own) <= load.own_tokens


def test_the_climb_doubles_from_one_to_thirty_two_and_contexts_keep_its_batch() -> None:
    assert CLIMB.load is not None
    assert CLIMB.load.levels == (1, 2, 4, 8, 16, 32)
    assert CONTEXTS.load is not None
    assert CONTEXTS.load.most == CLIMB.load.most


def test_an_injected_prompt_has_a_slot_of_its_own() -> None:
    scene = SCENES["One long prompt"]
    assert scene.load is not None
    assert scene.load.most < scene.max_batch


def test_its_device_holds_its_model_and_its_load() -> None:
    assert H100.on is not None
    assert H100.load is not None
    setup = modelled_setup(scene_setup.modelled_config(H100.on.device, H100.on.model))
    assert setup.capacity * setup.block_size > H100.load.most * H100.load.own_tokens


def test_the_demo_script_tells_every_scene_as_it_is() -> None:
    script = (PAGES.parent / "docs" / "demo.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) (.+?) \| (.+?) \|", script, re.MULTILINE)
    assert [(number, name) for number, name, _ in rows] == [
        (str(n), name) for n, name in enumerate(SCENES, 1)
    ]
    for _, name, sets in rows:
        scene = SCENES[name]
        words = [scene.page.capitalize(), *(value.lower() for value in scene.address.values())]
        if scene.load is not None:
            words += [f"`{scene.load.workload}`", f"{scene.load.most} streams"]
        told = [w for w in words if w not in ("absolute", "live")]
        assert all(word.lower() in sets.lower() for word in told), name


# --- what it asks for ---


@SCENE
def test_it_sets_modes_and_load_and_nothing_twice(fake: FakeSession, scene: Scene) -> None:
    assert set_up(fake, scene) == []
    if scene.on is not None:
        kind, config, load = fake.asked[0]
        assert (kind, config.device, config.model) == ("new_run", "h100-sxm", "llama-3.1-8b")
        assert {name: getattr(config, name) for name in scene.modes} == scene.modes
        assert (config.paced, config.live) == (True, True)
        assert load == Load("longoutput", 64)
        assert len(fake.asked) == 1
        return
    assert fake.asked[0] == ("configure", {**scene.modes, "kv_blocks": 1456})
    assert len(fake.asked) == 2
    assert fake.status is not None
    wanted = None if scene.load is None else Load(scene.load.workload, scene.load.levels[0])
    assert fake.status.load == wanted


def test_the_climb_is_a_ramp(fake: FakeSession) -> None:
    set_up(fake, CLIMB)
    ramp = fake.asked[-1][1]
    assert (ramp.workload, ramp.levels, ramp.hold_s) == ("longoutput", (1, 2, 4, 8, 16, 32), 3.0)


def test_a_paused_engine_goes_on(fake: FakeSession) -> None:
    fake.status = status(paused=True)
    set_up(fake, CLIMB)
    assert [name for name, *_ in fake.asked] == ["configure", "ramp", "resume"]


def test_it_plays_on_a_modelled_engine_and_says_that_its_words_are_synthetic(
    fake: FakeSession,
) -> None:
    modelled(fake, "l4", "llama-3.1-8b")
    assert set_up(fake, CLIMB) == []
    (line,) = set_up(fake, SCENES["Type a prompt"])
    assert "synthetic" in line


def modelled(fake: FakeSession, device: str, model: str) -> None:
    known = replace(ready(), limits=LIMITS)
    config = json.dumps({"engine": {"device": device, "model": model}})
    fake.ready = replace(known, run={**known.run, "clock": "modelled", "config": config})


def test_the_device_that_runs_already_is_not_started_again(fake: FakeSession) -> None:
    modelled(fake, "h100-sxm", "llama-3.1-8b")
    set_up(fake, H100)
    assert [name for name, *_ in fake.asked] == ["configure", "load"]
    modelled(fake, "l4", "llama-3.1-8b")
    set_up(fake, H100)
    assert fake.asked[-1][0] == "new_run"


# --- what it cannot have ---


def test_fewer_streams_where_the_blocks_hold_no_more() -> None:
    limits = {**LIMITS, "kv_blocks_capacity": 70}  # of 16 tokens
    load, lines = fitted(CLIMB, limits)
    assert load == Streams("longoutput", (1, 2, 4), own_tokens=272)
    assert lines == ["The KV blocks here hold 4 of its 32 streams at once."]


@pytest.mark.parametrize(("blocks", "streams"), [(256 + 10 * 13, 10), (256, 1), (100, 1)])
def test_shared_documents_take_their_blocks_once(blocks: int, streams: int) -> None:
    load, lines = fitted(CONTEXTS, {**LIMITS, "kv_blocks_capacity": blocks})
    assert load is not None
    assert load.levels == (streams,)
    assert lines == [f"The KV blocks here hold {streams} of its 32 streams at once."]


def test_a_prompt_too_long_for_the_cache_is_told() -> None:
    load, lines = fitted(SCENES["One long prompt"], {**LIMITS, "kv_blocks_capacity": 60})
    assert load is not None
    assert lines[0] == "A prompt of 1,024 tokens does not fit: inject a shorter one."


def test_no_scene_before_the_engine_is_ready(fake: FakeSession) -> None:
    for lacking in ({"phase": "starting"}, {"status": None}, {"ready": None}):
        for name, value in lacking.items():
            setattr(fake, name, value)
        with pytest.raises(SceneError, match="the engine is starting"):
            set_up(fake, CLIMB)
        fake.phase, fake.status, fake.ready = "ready", status(), replace(ready(), limits=LIMITS)
    with pytest.raises(SceneError, match="the engine is starting"):
        set_up(None, CLIMB)
    assert fake.asked == []


def test_a_race_keeps_its_engine(fake: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    class Racing:
        running = True

    monkeypatch.setattr(scene_setup, "races", Racing)
    for scene in (CLIMB, H100):
        with pytest.raises(SceneError, match="a race holds the engine"):
            set_up(fake, scene)
    assert fake.asked == []


def test_what_a_new_run_refuses_is_one_line(fake: FakeSession) -> None:
    fake.refuses = "another run is being started: wait until it is there"
    with pytest.raises(SceneError, match="another run is being started"):
        set_up(fake, H100)
