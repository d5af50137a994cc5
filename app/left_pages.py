"""A rerun that a page asked for is dropped once another page has taken its place."""

from __future__ import annotations

from contextlib import nullcontext
from functools import wraps

from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

from app.live.page_runs import page_runs


def drop_reruns_of_left_pages() -> None:
    """Let no fragment of a page that was left run on the page that is shown.

    A browser asks for them until it hears of the switch, longer over a slow line. Streamlit (1.67)
    would run each under the address of the left page: the browser then takes every element of the
    shown page away, and the next update has no place in what is left ("Cannot set a node at a delta
    path"), which blanks the tab. It guards links against that, but not st.switch_page.
    """
    run_script = ScriptRunner._run_script

    @wraps(run_script)
    def run_unless_left(self: ScriptRunner, rerun_data: RerunData) -> None:
        if _is_left(rerun_data, self._pages_manager.current_page_script_hash):
            return
        with nullcontext() if rerun_data.fragment_id_queue else page_runs().one():
            run_script(self, rerun_data)

    ScriptRunner._run_script = run_unless_left  # type: ignore[method-assign]


def _is_left(asked: RerunData, shown: str) -> bool:
    """Whether a fragment was asked for by another page than the one that is shown (hashes)."""
    return bool(asked.fragment_id_queue) and asked.page_script_hash not in ("", shown)
