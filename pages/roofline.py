"""Roofline: where steps are under the measured roofs, and what one more sequence costs."""

import streamlit as st

from app.controls import controls_row, load_controls
from app.figures import crossover, roofline
from app.frame import frame, headline, legend
from app.live.component import figure, html, live

page = frame("roofline")
spot = st.container()
with controls_row():
    load_controls(page.is_live)
    # The widget itself says what is chosen: on the first run an address knows before the state.
    scale = str(
        st.segmented_control(
            "Scale",
            ["absolute", "normalised"],
            key="scale",
            default="absolute",
            required=True,
            label_visibility="collapsed",
            bind="query-params",
        )
    )
    legend(
        [
            ("memory", "read", "line"),
            ("compute", "math", "line"),
            ("prefill", "with prefill", ""),
            ("decode", "decode", ""),
            ("cached", "KV cap", "dash"),
        ]
    )
with spot:
    headline(page, scale=scale)
places = [
    html("blank", area="1 / 1 / 2 / 3"),
    figure("roofline", roofline.HEIGHT_PX, "2 / 1 / 4 / 2"),
    figure("intensity", crossover.INTENSITY_PX, "2 / 2 / 3 / 3"),
    figure("crossover", crossover.CROSSOVER_PX, "3 / 2 / 4 / 3"),
]
live("roofline", places, page.params(scale=scale), "charts", "minmax(0, 61fr) minmax(0, 39fr)")
