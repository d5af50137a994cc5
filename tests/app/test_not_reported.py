"""A past run of a source that tells of no sequence what it got in a step: every page opens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.live.views import STILL, VIEWS
from app.panels.view import View
from app.theme import LIGHT
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.raced import raced
from tests.app.synthetic import RUN_ID

HELD = {"first": "400", "last": "600"}
SAYS = {
    "live": "Who was in a step is not reported by this source.",
    "roofline": "the context of its sequences is not reported by this source",
    "interference": "who shared a step is not reported by this source",
    "scheduling": "Who held which slot is not reported by this source.",
    "race": "Who held which slot is not reported by this source.",
    "kv-cache": "Which sequence holds which block is not reported by this source.",
    "requests": "What its steps did for it is not reported by this source.",
    "kernels": "Kernel times are not reported by this source.",
}
DRAWN = [name for name in SAYS if name != "kernels"]  # all of it comes from kernel times


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    simulation = raced()
    simulation.rows["sequence_steps"] = []
    store = Store(None)
    simulation.write(store)
    yield store.reader()
    store.close()


def shown(reader: Reader, name: str, params: dict[str, str]) -> View:
    return VIEWS[name](reader, RUN_ID, params, LIGHT)


def text_of(view: View) -> str:
    """All that can be read on the page, as it is sent."""
    markup = re.sub(r"<[^>]*>", " ", " ".join(view.html.values()))
    return f"{markup} {json.dumps(view.figures, allow_nan=False)}"


def bars(figure: dict[str, Any]) -> set[str]:
    """Names of the traces in which something is drawn."""
    return {t["name"] for t in figure["data"] if t["type"] == "bar" and len(t["x"])}


def test_every_page_that_shows_a_run_is_here() -> None:
    assert set(SAYS) == set(VIEWS)
    assert set(STILL) == {"what-if", "kernels"}  # stand on their address alone: nobody reports


@pytest.mark.parametrize("name", SAYS)
def test_it_opens_and_says_what_is_not_reported(reader: Reader, name: str) -> None:
    step = {"step": "500", **HELD} if name == "live" else {}  # who got what, of the chosen step
    assert SAYS[name] in text_of(shown(reader, name, step))


@pytest.mark.parametrize("params", [{}, HELD], ids=["its end", "held"])
@pytest.mark.parametrize("name", DRAWN)
def test_what_is_reported_is_drawn(reader: Reader, name: str, params: dict[str, str]) -> None:
    view = shown(reader, name, params)
    assert view.figures
    assert view.html["headline"]
    assert not re.search(r"\bNone\b|\bnan\b", text_of(view))


@pytest.mark.parametrize("params", [{}, {"rows": "request"}, {"x": "steps"}])
def test_no_slot_is_drawn_as_idle(reader: Reader, params: dict[str, str]) -> None:
    view = shown(reader, "scheduling", params)
    assert bars(view.figures["gantt"]) == set()
    assert "slots wait" not in text_of(view)
    assert "tok/s" in view.html["numbers"]  # of the steps, which are reported


def test_who_holds_the_cache_is_unknown_and_not_nobody(reader: Reader) -> None:
    side = shown(reader, "kv-cache", HELD).html["side"]
    assert "sequences fit: their length is not reported" in side
    assert "blocks saved by sharing: not reported" in side
    assert "no sequence runs" not in side


def test_no_phase_of_a_request_is_guessed(reader: Reader) -> None:
    figure = shown(reader, "requests", HELD).figures["waterfall"]
    assert bars(figure) == {"life", "queue"}
