"""The live component: places for panels on a page, which the browser fills from an event stream."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from app import window_choice
from app.engine_state import fingerprint
from app.live.stream import expect

_STATIC = Path(__file__).resolve().parent.parent / "static"
_ROOT = '<div class="ss-root"></div>'


def _loader(script: str) -> str:
    """Streamlit sends inline code again with every update, so it only fetches the real script.

    The tag is of all scripts, since one may import another.
    """
    every = b"".join(path.read_bytes() for path in sorted(_STATIC.glob("*.js")))
    tag = hashlib.sha256(every).hexdigest()[:12]
    return f"""
let ready;
export default function (component) {{
  let end = null, ended = false;
  (ready ??= import(location.origin + "/stepscope/static/{script}?{tag}")).then((m) => {{
    if (!ended) end = m.mount(component);
  }});
  return () => {{ ended = true; end?.(); }};
}}
"""


def figure(name: str, height: int, area: str | None = None, leads: bool = False) -> dict[str, Any]:
    """A place for a figure of fixed height, px; area is a CSS grid area.

    leads: it shows the newest step, and is drawn before the page's other figures.
    """
    return {"id": name, "kind": "figure", "height": height, "area": area, "leads": leads}


def html(name: str, height: int | None = None, area: str | None = None) -> dict[str, Any]:
    """A place for a fragment of HTML."""
    return {"id": name, "kind": "html", "height": height, "area": area}


def live(
    view: str,
    panels: Sequence[Mapping[str, Any]],
    params: Mapping[str, str],
    key: str,
    columns: str | None = None,
) -> None:
    """Mount panels of a view (see `app.live.views`). params: run, and what the view takes.

    What is dragged over or clicked in its charts becomes the window (`app.window_choice`).
    """
    component = st.components.v2.component(
        "stepscope_live", html=_ROOT, js=_loader("live.js"), isolate_styles=False
    )
    data = {"view": view, "panels": list(panels), "params": dict(params), "columns": columns}
    expect(view, {**params, **_picked()}, st.context.theme.type or "light")
    component(key=key, data=data, on_window_change=partial(window_choice.reported, key))


def _picked() -> dict[str, str]:
    """As the browser asks for it (live.js)."""
    request = st.query_params.get("request")
    return {"request": request} if request else {}


def redraw(key: str) -> None:
    """In a fragment of controls: run it again once the engine is not as it was when it ran.

    A run by the clock would cost the server and the browser as much each time, changed or not.
    """
    component = st.components.v2.component(
        "stepscope_redraw", html=_ROOT, js=_loader("redraw.js"), isolate_styles=False
    )
    data = {"shown": fingerprint()}
    component(key=f"redraw-{key}", data=data, on_changed_change=lambda: None)


def still(name: str, data: Mapping[str, Any]) -> None:
    """Mount a page that no run stands behind: what_if or kernels, drawn by the script of that name.

    data: what its module in `app.panels` says that the browser needs (`page`).
    """
    component = st.components.v2.component(
        f"stepscope_{name}", html=_ROOT, js=_loader(f"{name}.js"), isolate_styles=False
    )
    component(key=name, data=dict(data))


def race_bar() -> None:
    """Mount the bar that replays a drawn race in the browser (see `app.figures.race`)."""
    component = st.components.v2.component(
        "stepscope_race", html=_ROOT, js=_loader("race.js"), isolate_styles=False
    )
    component(key="race-bar", data={})
