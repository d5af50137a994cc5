"""Scheduling: who held which slot of the batch, what was padding, who waited; and the race."""

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from app import race_controls, scheduling_controls
from app.controls import choice, controls_row
from app.figures import gantt, race
from app.frame import Frame, frame, headline
from app.live.component import figure, html, live, race_bar
from app.replay.ask import ask_replay

VIEWS = {"now": "Now", "race": "Race", "what-if": "What if"}
COLUMNS = "minmax(0, 1fr) 172px"


def shown(page: Frame, controls: Callable[[Frame], dict[str, str]]) -> dict[str, str]:
    with bar:
        params = controls(page)
    with spot:
        headline(page, **params)
    return params


def charts(page: Frame, name: str, height: int, params: dict[str, str]) -> None:
    places = [
        html("blank", area="1 / 1 / 2 / 3"),
        figure(name, height, "2 / 1 / 3 / 2"),
        html("numbers", height, "2 / 2 / 3 / 3"),
    ]
    live(page.view, places, page.params(**params), f"charts-{name}", COLUMNS)


page = frame("scheduling")
spot = st.container()
bar = controls_row()
with bar:
    view = choice("view", VIEWS)
if view == "what-if":
    shown(page, lambda _: {})
    ask_replay(page)
elif view == "race":
    page = replace(page, view="race")
    charts(page, "race", race.HEIGHT_PX, shown(page, race_controls.controls))
    race_bar()
else:
    charts(page, "gantt", gantt.HEIGHT_PX, shown(page, scheduling_controls.controls))
