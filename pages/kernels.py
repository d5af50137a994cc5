"""Kernels: a step by kernel, each under its roof; and the contract lab: what a kernel may be given.

The lab is made from its address alone: it needs no run.
"""

import streamlit as st

from app import scene_menu
from app.controls import controls_row
from app.figures import kernel_roofline, kernel_share
from app.frame import frame, headline, legend
from app.kernels_controls import LAB, LEGEND, phase, shown_tab, tab
from app.live.component import figure, html, live, still
from app.panels.kernels import page as lab

shown = shown_tab()
if shown == LAB:
    with controls_row():
        tab(shown)
    still("kernels", lab())
    scene_menu.alone("kernels")
else:
    page = frame("kernels")
    spot = st.container()
    with controls_row():
        tab(shown)
        params = {"phase": phase()}
        legend(LEGEND)
    with spot:
        headline(page, **params)
    places = [
        html("blank", area="1 / 1 / 2 / 3"),
        figure("kernel-share", kernel_share.HEIGHT_PX, "2 / 1 / 3 / 3", leads=True),
        figure("kernel-roofline", kernel_roofline.HEIGHT_PX, "3 / 1 / 5 / 2"),
        html("kernel-table", area="3 / 2 / 4 / 3"),
        html("device", area="4 / 2 / 5 / 3"),
    ]
    live("kernels", places, page.params(**params), "charts", "minmax(0, 57fr) minmax(0, 43fr)")
