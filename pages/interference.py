"""Interference: one long prompt among decoding streams, pinned beside what chunking makes of it."""

import streamlit as st

from app.controls import controls_row
from app.figures import lanes
from app.frame import frame, headline, legend
from app.interference_controls import controls
from app.live.component import figure, html, live

page = frame("interference")
spot = st.container()
with controls_row():
    params = controls(page)
    legend(
        [
            ("decode", "decode, height = rate", ""),
            ("prefill", "prefill", ""),
            ("idle", "no bar = stalled", "outline"),
            ("text", "baseline", "dash"),
        ]
    )
with spot:
    headline(page, **params)
places = [html("blank"), figure("interference", lanes.HEIGHT_PX), html("blame", 130)]
live("interference", places, page.params(**params), "charts")
