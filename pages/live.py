"""Live: what the newest steps are made of, and what they give whom."""

import streamlit as st

from app.controls import ask, controls_row, load_controls
from app.figures import anatomy, strip
from app.frame import frame, headline, legend
from app.live.component import figure, html, live

page = frame("live")
headline(page)
with controls_row():
    load_controls(page.is_live)
    legend(
        [
            ("memory", "weights", ""),
            ("cached", "KV, cached", ""),
            ("compute", "math", ""),
            ("memory", "below roof", "hatch"),
            ("overhead", "host", ""),
            ("prefill", "prefill", ""),
            ("decode", "decode", ""),
            ("lost", "recomputed", ""),
        ]
    )
left, right = st.columns([3, 2], gap="small")
with left:
    live("live", [figure("anatomy", anatomy.HEIGHT_PX)], page.params(), "anatomy")
with right:
    live("live", [html("answer", 98)], page.params(), "answer")
    ask(page.is_live)
places = [
    html("blank"),
    figure("strip", strip.HEIGHT_PX, leads=True),
    html("tiles", 86),
    html("stream"),
]
live("live", places, page.params(), "strips")
