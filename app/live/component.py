"""The live component: places for panels on a page, which the browser fills from an event stream."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

_SCRIPT = Path(__file__).resolve().parent.parent / "static" / "live.js"


def _loader() -> str:
    """Streamlit sends inline code again with every update, so it only fetches the real script."""
    tag = hashlib.sha256(_SCRIPT.read_bytes()).hexdigest()[:12]
    return f"""
let ready;
export default function (component) {{
  let end = null, ended = false;
  (ready ??= import(location.origin + "/stepscope/static/live.js?{tag}")).then((m) => {{
    if (!ended) end = m.mount(component);
  }});
  return () => {{ ended = true; end?.(); }};
}}
"""


def figure(name: str, height: int, area: str | None = None) -> dict[str, Any]:
    """A place for a figure of fixed height, px; area is a CSS grid area."""
    return {"id": name, "kind": "figure", "height": height, "area": area}


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
    """Mount panels of a view (see `app.live.views`). params: run, and what the view takes."""
    component = st.components.v2.component(
        "stepscope_live", html='<div class="ss-root"></div>', js=_loader(), isolate_styles=False
    )
    data = {"view": view, "panels": list(panels), "params": dict(params), "columns": columns}
    component(key=key, data=data)
