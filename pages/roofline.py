"""Roofline: where steps are under the measured roofs, and what one more sequence costs."""

import streamlit as st

from app import roofline_controls
from app.controls import controls_row
from app.figures import crossover, roofline
from app.frame import frame, headline, legend
from app.live.component import figure, html, live

page = frame("roofline")
spot = st.container()
with controls_row():
    params = roofline_controls.controls(page)
    legend(
        [
            ("memory", "read", "line"),
            ("compute", "math", "line"),
            ("prefill", "with prefill", ""),
            ("decode", "decode", ""),
        ]
    )
with spot:
    headline(page, **params)
places = [
    html("blank", area="1 / 1 / 2 / 3"),
    html("why", 40, "2 / 1 / 3 / 3"),
    figure("roofline", roofline.HEIGHT_PX, "3 / 1 / 5 / 2", leads=True),
    figure("intensity", crossover.INTENSITY_PX, "3 / 2 / 4 / 3"),
    figure("crossover", crossover.CROSSOVER_PX, "4 / 2 / 5 / 3"),
]
live("roofline", places, page.params(**params), "charts", "minmax(0, 61fr) minmax(0, 39fr)")
