"""Widgets show the engine's real state, whoever changed it, and never fight the hand on them.

A browser sends the values of all its widgets with every rerun, a timed one included, and it may not
have drawn yet what the server has put there since. Were a widget set to another value, such an echo
of the older one would look like a choice and undo what somebody else has just changed. So no widget
is ever set: where another value is to be shown, one of the next generation takes its place, under a
key of its own. What a browser then still says of an older generation is either what was heard or
shown last, an echo, or something else, which only a hand can have put there: Streamlit keeps a box
whose list is open until the choice is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from app import state
from app.race import races
from telemetry.clock import now_ns

# A change that the engine has not confirmed by then was refused: show what is real again.
PATIENCE_S = 2.5
# A browser forgets widgets that are gone as soon as it has drawn what came instead.
_REMEMBERED = 50
Send = Callable[[state.Session, Any], Any]


@dataclass(slots=True)
class Followed:
    """One control in one tab. known: by generation, the value that was shown or heard last."""

    key: str
    generation: int = 0
    known: dict[int, Any] = field(default_factory=dict)
    sent: Any = None
    deadline_ns: int | None = None

    @property
    def widget(self) -> str:
        """The key of the widget that shows it now."""
        return self.named(self.generation)

    def named(self, generation: int) -> str:
        """The key of a generation's widget."""
        return f"{self.key}~{generation}" if generation else self.key

    @property
    def value(self) -> Any:
        """What it shows, and its default: a browser may see it for the first time in any run."""
        return self.known[self.generation]

    @property
    def waits(self) -> bool:
        """Whether a change of this tab is on its way to the engine."""
        return self.deadline_ns is not None

    def show(self, actual: Any) -> None:
        """Show the engine's value, or what this tab has asked for until the engine answers."""
        if self.waits and (self.sent == actual or now_ns() >= (self.deadline_ns or 0)):
            self.forget()
        wanted = self.sent if self.waits else actual
        held = st.session_state.get(self.widget, self.known.get(self.generation, wanted))
        if held == wanted:
            self.known[self.generation] = wanted
        else:
            self._replace(held, wanted)

    def _replace(self, held: Any, wanted: Any) -> None:
        self.known[self.generation] = held
        self.generation += 1
        self.known[self.generation] = wanted
        self.known.pop(self.generation - _REMEMBERED, None)

    def heard(self, generation: int) -> bool:
        """Whether the widget of a generation says what it did not say before: somebody's choice."""
        value = st.session_state.get(self.named(generation))
        if generation not in self.known or self.known[generation] == value:
            return False
        self.known[generation] = value
        return True

    def ask(self, value: Any) -> None:
        """A change of this tab is sent."""
        self.sent, self.deadline_ns = value, now_ns() + int(PATIENCE_S * 1e9)

    def forget(self) -> bool:
        """Nothing is on its way any more; whether something was."""
        waited, self.sent, self.deadline_ns = self.waits, None, None
        return waited


def followed(key: str) -> Followed:
    """The control of this name in this tab."""
    name = f"{key}:followed"
    if name not in st.session_state:
        st.session_state[name] = Followed(key)
    found: Followed = st.session_state[name]
    return found


def follow(key: str, actual: Any) -> Followed:
    """Before the widget is made, with the key and the default that this says: the engine's value.

    While a change of this tab is on its way to the engine the widget keeps the new value.
    """
    control = followed(key)
    control.show(actual)
    return control


def changed(key: str, generation: int, send: Send) -> None:
    """on_change of a followed widget: send its new value to the engine.

    send may return how the engine's confirmation will read, where a person typed it otherwise.
    """
    control, current = followed(key), state.session()
    if not control.heard(generation):
        return
    value = control.known[generation]
    if current is None or value is None or races().holds:
        return
    control.ask(value)
    try:
        confirmed = send(current, value)
    except Exception as error:  # one line for the person; the widget goes back by itself
        control.forget()
        st.toast(str(error), icon=":material/error:")
        return
    if confirmed is not None:
        control.sent = confirmed


def tell_refusals(current: state.Session, keys: Sequence[str]) -> None:
    """Where the engine refused a change of this tab: say why, and show what is real at once."""
    newest = current.rejections[-1] if current.rejections else None
    seen = st.session_state.get("refusal")
    st.session_state["refusal"] = newest
    if newest is None or newest is seen:
        return
    mine = [key for key in keys if followed(key).forget()]
    if mine:
        st.toast(newest.message, icon=":material/error:")
