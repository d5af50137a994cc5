"""Scheduling: who held which slot of the batch, what was padding, who waited."""

import streamlit as st

from app.controls import load_controls
from app.figures import gantt
from app.frame import frame, headline, legend
from app.live.component import figure, html, live

SPANS = {"5": "5 s", "20": "20 s", "60": "60 s", "300": "5 min"}


def choice(key: str, options: list[str]) -> str:
    """A small switch, kept in the address so that a view can be shared."""
    return str(
        st.segmented_control(
            key,
            options,
            key=key,
            default=options[0],
            required=True,
            label_visibility="collapsed",
            format_func=lambda o: SPANS.get(o, o),
            bind="query-params",
        )
    )


page = frame("scheduling")
spot = st.container()
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    load_controls(page.is_live)
    params = {
        "x": choice("x", ["time", "steps"]),
        "rows": choice("rows", ["slot", "request"]),
        "span": choice("span", ["20", "5", "60", "300"]),
    }
with spot:
    headline(page, **params)
legend(
    [
        ("prefill", "prefill", ""),
        ("decode", "decode", ""),
        ("padding", "padding", "hatch"),
        ("lost", "recomputed", ""),
        ("decode", "held by others' prefill", "outline"),
        ("idle", "idle", "outline"),
    ]
)
places = [
    html("blank", area="1 / 1 / 2 / 3"),
    figure("gantt", gantt.HEIGHT_PX, "2 / 1 / 3 / 2"),
    html("numbers", gantt.HEIGHT_PX, "2 / 2 / 3 / 3"),
]
live("scheduling", places, page.params(**params), "charts", "minmax(0, 1fr) 170px")
