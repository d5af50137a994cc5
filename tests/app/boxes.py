"""Controls that follow the engine, found by what they control: their keys change with its value."""

from __future__ import annotations

from typing import Any

from streamlit.testing.v1 import AppTest

from app.follow import Followed


def followed(at: AppTest, key: str) -> Followed:
    """What the tab knows of a control."""
    found: Followed = at.session_state[f"{key}:followed"]
    return found


def box(at: AppTest, key: str) -> Any:
    """The selectbox that shows it now."""
    return at.selectbox(key=followed(at, key).widget)


def switch(at: AppTest, key: str) -> Any:
    """The toggle that shows it now."""
    return at.toggle(key=followed(at, key).widget)


def value(at: AppTest, key: str) -> Any:
    """What its widget holds now."""
    return at.session_state[followed(at, key).widget]
