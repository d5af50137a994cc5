"""KV cache: who holds which block, what is shared, cached or lost, and how many more would fit."""

import streamlit as st

from app.controls import choice, controls_row, load_controls
from app.figures import kv_budget, kv_map, kv_series
from app.frame import frame, headline, legend
from app.live.component import figure, html, live

page = frame("kv-cache")
spot = st.container()
with controls_row():
    load_controls(page.is_live)
    params = {"map": choice("map", {"request": "by request", "address": "by address"})}
    legend(
        [
            ("decode", "used", ""),
            ("decode", "last, not full", "pale"),
            ("cached", "cached", ""),
            ("idle", "free, or held above", "outline"),
            ("lost", "preempted", ""),
        ]
    )
with spot:
    headline(page, **params)
places = [
    html("blank", area="1 / 1 / 2 / 3"),
    figure("budget", kv_budget.HEIGHT_PX, "2 / 1 / 3 / 2"),
    figure("map", kv_map.HEIGHT_PX, "3 / 1 / 4 / 2"),
    html("unmapped", kv_map.HEIGHT_PX, "3 / 1 / 4 / 2"),
    figure("cache", kv_series.HEIGHT_PX, "4 / 1 / 5 / 2"),
    html("side", area="2 / 2 / 5 / 3"),
]
live("kv-cache", places, page.params(**params), "charts", "minmax(0, 1fr) 196px")
