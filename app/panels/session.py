"""What the engine's owner knows and the database does not: progress, failure, the answer."""

from __future__ import annotations

from html import escape

from app.panels.markup import empty, headline
from app.panels.view import View
from app.units import percent

HINT = '<div class="answer hint">The answer streams here while its steps run below.</div>'


def starting(stage: str | None, fraction: float | None) -> View:
    """The engine loads or calibrates: where it is, and how far."""
    name = stage or "Starting the engine"
    share = f" {percent(fraction)}" if fraction is not None else ""
    width = f"{min(max(fraction, 0.0), 1.0) * 100:.0f}%" if fraction is not None else "30%"
    moving = "" if fraction is not None else " moving"
    bar = f'<div class="progress"><i class="fill{moving}" style="width:{width}"></i></div>'
    body = f'<div class="empty"><b>{escape(name)}{share}</b>{bar}<p>The first start takes longest: '
    body += "the weights are unpacked and this machine's peaks are measured once.</p></div>"
    return View(
        html={"headline": headline("The engine is starting.", f"{name}{share}"), "blank": body}
    )


def failed(message: str) -> View:
    """The engine could not start, or died: one line that says why."""
    text = "The server still shows recorded runs. Mend the cause, then start it again."
    return View(
        html={
            "headline": headline("The engine has stopped.", message),
            "blank": empty(message, text),
        }
    )


def answer(
    prompt: str | None,
    text: str,
    done: bool,
    reason: str | None,
    error: str | None,
    *,
    synthetic: bool = False,
) -> str:
    """The newest person's prompt and what came back so far; synthetic: no model has said it."""
    if error:
        return f'<div class="answer error">{escape(error)}</div>'
    if not text and prompt is None:
        return HINT
    mark = '<span class="ss-modelled">synthetic</span> ' if synthetic else ""
    asked = f'<div class="asked">{mark}{escape(prompt)}</div>' if prompt else mark
    caret = "" if done else '<i class="caret"></i>'
    ended = f'<div class="ended">{mark}ended: {escape(reason or "done")}</div>' if done else ""
    return f'<div class="answer">{asked}<div class="said">{escape(text)}{caret}</div>{ended}</div>'
