"""Scheduling: who held which slot of the batch, what was padding, who waited."""

import streamlit as st

from app.controls import controls_row, load_controls
from app.figures import gantt
from app.frame import frame, headline
from app.live.component import figure, html, live
from app.replay.ask import ask_replay

SPANS = {"5 s": "5", "20 s": "20", "60 s": "60", "5 min": "300"}


def choice(key: str, options: list[str], default: str) -> str:
    """A small switch, kept in the address so that a view can be shared."""
    return str(
        st.segmented_control(
            key,
            options,
            key=key,
            default=default,
            required=True,
            label_visibility="collapsed",
            bind="query-params",
        )
    )


page = frame("scheduling")
spot = st.container()
with controls_row():
    load_controls(page.is_live)
    params = {
        "x": choice("x", ["time", "steps"], "time"),
        "rows": choice("rows", ["slot", "request"], "slot"),
        "span": SPANS[choice("span", list(SPANS), "20 s")],
    }
with spot:
    headline(page, **params)
places = [
    html("blank", area="1 / 1 / 2 / 3"),
    figure("gantt", gantt.HEIGHT_PX, "2 / 1 / 3 / 2"),
    html("numbers", gantt.HEIGHT_PX, "2 / 2 / 3 / 3"),
]
live("scheduling", places, page.params(**params), "charts", "minmax(0, 1fr) 172px")
ask_replay(page)
