"""Interference: one long prompt among decoding streams, pinned beside what chunking makes of it."""

import streamlit as st

from app.controls import controls_row
from app.figures import lanes
from app.frame import frame, headline, legend
from app.interference_controls import ask_curve, controls, legend_of
from app.live.component import figure, html, live
from app.panels.interference_window import BUDGET

page = frame("interference")
spot = st.container()
with controls_row():
    params = controls(page)
    legend(legend_of(params))
with spot:
    headline(page, **params)
places = [html("blank"), figure("interference", lanes.HEIGHT_PX), html("blame", 130)]
live("interference", places, page.params(**params), "charts")
if params["show"] == BUDGET:
    ask_curve(page)
