"""The choice of a scene in every page's toolbar: one click sets load, modes, page and controls."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app import state, window_choice
from app.live.views import LIVE
from app.scene_setup import SceneError, set_up
from app.scenes import SCENES, Scene

_PAGES = Path(__file__).resolve().parent.parent / "pages"
_CHOSEN, _TOLD, _TURN = "scene_chosen", "scene_told", "scene_turn"


def menu() -> None:
    """Draw it. Every choice is followed by a new box, so that any scene can be chosen again."""
    turn = int(st.session_state.get(_TURN, 0))
    st.selectbox(
        "Scene",
        list(SCENES),
        index=None,
        format_func=_numbered,
        placeholder="Scene",
        key=f"scene~{turn}",
        label_visibility="collapsed",
        width=150,
        on_change=_choose,
        args=(turn,),
    )


def alone(view: str) -> None:
    """The menu of a page without a toolbar of ours: it stands at the end of the navigation."""
    enter(view)
    with st.container(key="scene_alone", width="content"):
        menu()


def _numbered(name: str) -> str:
    return f"{list(SCENES).index(name) + 1}  {name}"


def _choose(turn: int) -> None:
    if turn == st.session_state.get(_TURN, 0):  # else a browser's echo of a choice that was played
        st.session_state[_CHOSEN] = st.session_state[f"scene~{turn}"]
        st.session_state[_TURN] = turn + 1


def enter(view: str) -> None:
    """First thing on a page: play the scene that was chosen, which may be on another page."""
    scene = SCENES.get(st.session_state.pop(_CHOSEN, None) or "")
    if scene is not None:
        _play(scene, view)
    for line, icon in st.session_state.pop(_TOLD, []):
        st.toast(line, icon=f":material/{icon}:", duration="long")


def _play(scene: Scene, view: str) -> None:
    try:
        lines = set_up(state.session(), scene)
    except SceneError as error:
        st.session_state[_TOLD] = [(str(error), "error")]
        return
    caption = (f"**{scene.name}.** {scene.look_for}", "theaters")
    st.session_state[_TOLD] = [caption, *((line, "info") for line in lines)]
    st.session_state["shown_run"] = LIVE
    window_choice.release()
    _set_controls(scene)
    if scene.page != view:
        page = _PAGES / f"{scene.page.replace('-', '_')}.py"
        st.switch_page(page, query_params=dict(scene.address))
    st.session_state.update(scene.address)


def _set_controls(scene: Scene) -> None:
    """Those that are there: on a page that is opened they begin as the scene wants them."""
    for key, value in scene.controls.items():
        st.query_params.pop(key, None)
        if key in st.session_state:
            st.session_state[key] = value
