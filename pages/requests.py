"""Requests: who waited, was computed and decoded when; one of them opened down to its tokens."""

import streamlit as st

from app.controls import choice, controls_row
from app.figures import request_parts, waterfall
from app.frame import frame, headline, legend
from app.live.component import figure, html, live
from app.panels.requests import SHOWS, SORTS

LEGEND = [("overhead", "queue", "outline")]
LEGEND += [("prefill", "prefill", ""), ("prefill", "others' prefill", "hatch")]
LEGEND += [("decode", "decode", ""), ("lost", "lost", ""), ("overhead", "host", "")]

page = frame("requests")
spot = st.container()
with controls_row():
    params = {
        "sort": str(
            st.selectbox(
                "Sort by",
                list(SORTS),
                key="sort",
                format_func=lambda name: "slowest first" if name == "slowdown" else f"by {name}",
                label_visibility="collapsed",
                width=142,
                bind="query-params",
            )
        ),
        "show": choice("state", {name: name for name in SHOWS}),
        "find": str(
            st.text_input(
                "Find",
                key="find",
                placeholder="label or r-17",
                label_visibility="collapsed",
                width=130,
                bind="query-params",
            )
            or ""
        ),
        "x": choice("align", {"arrival": "since arrival", "clock": "clock"}),
    }
    legend(LEGEND)
with spot:
    headline(page, **params)
places = [
    html("blank", area="1 / 1 / 2 / 3"),
    figure("waterfall", waterfall.HEIGHT_PX, "2 / 1 / 7 / 2"),
    html("unlisted", area="2 / 1 / 7 / 2"),
    html("listed", 18, "7 / 1 / 8 / 2"),
    html("opened", 80, "2 / 2 / 3 / 3"),
    figure("split", request_parts.SPLIT_PX, "3 / 2 / 4 / 3"),
    html("told", 36, "4 / 2 / 5 / 3"),
    figure("ribbon", request_parts.RIBBON_PX, "5 / 2 / 6 / 3"),
    html("text", area="6 / 2 / 8 / 3"),
]
live("requests", places, page.params(**params), "charts", "minmax(0, 57fr) minmax(0, 43fr)")
