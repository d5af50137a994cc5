"""Scheduling: who held which slot of the batch, what was padding, who waited; and the race."""

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from app import race_controls
from app.controls import controls_row, load_controls
from app.figures import gantt, race
from app.frame import Frame, frame, headline
from app.live.component import figure, html, live, race_bar
from app.replay.ask import ask_replay

NOW, RACE, WHAT_IF = "Now", "Race", "What if"
SPANS = {"5 s": "5", "20 s": "20", "60 s": "60", "5 min": "300"}
LANES = {
    "slots over time": ("slot", "time"),
    "slots over steps": ("slot", "steps"),
    "requests over time": ("request", "time"),
    "requests over steps": ("request", "steps"),
}
COLUMNS = "minmax(0, 1fr) 172px"


def choice(key: str, options: list[str], default: str) -> str:
    """A small switch, kept in the address so that a view can be shared."""
    return str(
        st.segmented_control(
            key,
            options,
            key=key,
            default=default,
            required=True,
            label_visibility="collapsed",
            bind="query-params",
        )
    )


def chosen(key: str, options: list[str], index: int, width: int) -> str:
    """As choice, in a box where a row has no room for more."""
    return str(
        st.selectbox(
            key,
            options,
            index,
            key=key,
            width=width,
            label_visibility="collapsed",
            bind="query-params",
        )
    )


def now_controls(page: Frame) -> dict[str, str]:
    load_controls(page.is_live)
    rows, x = LANES[chosen("lanes", list(LANES), 0, 176)]
    return {"x": x, "rows": rows, "span": SPANS[chosen("span", list(SPANS), 1, 84)]}


def charts(page: Frame, name: str, height: int, params: dict[str, str]) -> None:
    places = [
        html("blank", area="1 / 1 / 2 / 3"),
        figure(name, height, "2 / 1 / 3 / 2"),
        html("numbers", height, "2 / 2 / 3 / 3"),
    ]
    live(page.view, places, page.params(**params), f"charts-{name}", COLUMNS)


def shown(page: Frame, controls: Callable[[Frame], dict[str, str]]) -> dict[str, str]:
    with bar:
        params = controls(page)
    with spot:
        headline(page, **params)
    return params


page = frame("scheduling")
spot = st.container()
bar = controls_row()
with bar:
    view = choice("view", [NOW, RACE, WHAT_IF], NOW)
if view == WHAT_IF:
    ask_replay(page)
elif view == RACE:
    page = replace(page, view="race")
    charts(page, "race", race.HEIGHT_PX, shown(page, race_controls.controls))
    race_bar()
else:
    charts(page, "gantt", gantt.HEIGHT_PX, shown(page, now_controls))
