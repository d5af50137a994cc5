"""The Kernels page: the contract lab, from what `app.contract_lab` computed."""

from __future__ import annotations

from html import escape

from app.panels import kernels_bytes, kernels_stack, kernels_text, markup
from app.panels.kernels_facts import Attempt, Element, Lab, Slot
from app.panels.kernels_state import ALWAYS, ARGUMENTS, DEFAULTS, DTYPES, State, change
from app.panels.view import View


def view(lab: Lab, state: State) -> View:
    """Fragments of HTML by place; a button in them carries the choice that it stands for."""
    slot = lab.slot(state.show or _first_wrong(lab))
    text = kernels_text
    return View(
        html={
            "headline": text.headline(lab),
            "slots": "".join(_card(s, state, s is slot) for s in lab.slots),
            "message": text.message(lab),
            "title": kernels_bytes.title(slot),
            "bytes": kernels_bytes.grid(slot, state),
            "elements": _elements(slot, kernels_bytes.outlined(slot, state)),
            "routes": text.routes(lab),
            "tried": _tried(lab, state),
            "ops": text.operations(lab),
            "stack": kernels_stack.table(),
            "notes": text.notes(lab),
        }
    )


def refused(message: str) -> View:
    """One line for an address that cannot be."""
    return View(html={"headline": markup.headline("This cannot be shown.", message)})


def page() -> dict[str, object]:
    """What the browser needs to draw the page: `app/static/kernels.js`."""
    return {
        "defaults": DEFAULTS,
        "always": list(ALWAYS),
        "keep": [],
        "loose": ["show", "element"],
        "presets": PRESETS,
        "legend": markup.legend(_LEGEND),
    }


def _first_wrong(lab: Lab) -> str:
    return next((slot.name for slot in lab.slots if slot.wrong), "input_tokens")


def _set(dtypes: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(ALWAYS, dtypes, strict=True)) | {"show": "", "element": "0"}


_LEGEND = (
    ("memory", "written", ""),
    ("cached", "read right", ""),
    ("lost", "read wrong", ""),
    ("lost", "past the end", "outline"),
)
PRESETS = [
    {"label": label, "help": told, "set": _set(dtypes)}
    for label, told, dtypes in (
        ("As it crashed", "int64 routing, int32 metadata", ("int64", "int32", "int32", "int32")),
        ("Cast all to int64: the error moves", "The fourth is int32, always", ("int64",) * 4),
        ("Half a fix", "Tokens only", ("int64", "int64", "int32", "int32")),
        ("The fix", "The hash pair as topk_indices", ("int64", "int64", "int64", "int32")),
        ("TP: all int32", "No all-to-all asks for int64", ("int32",) * 4),
        ("A silent one", "int64 read as int32", ("int32", "int64", "int64", "int32")),
    )
]


# --- the four arguments ---


def _card(slot: Slot, state: State, shown: bool) -> str:
    name = escape(change(state, show=slot.name, element=0))
    kinds = f"{'kn-card kn-shown' if shown else 'kn-card'}{' kn-bad' if slot.wrong else ''}"
    picks = "".join(_pick(slot, state, dtype) for dtype in DTYPES)
    return (
        f'<div class="{kinds}"><button type="button" class="kn-name" data-set="{name}" '
        f'aria-pressed="{str(shown).lower()}">{slot.name}</button>'
        f'<div class="wi-segments" role="radiogroup" aria-label="{slot.name}">{picks}</div>'
        f"<p>{_verdict(slot)}</p></div>"
    )


def _pick(slot: Slot, state: State, dtype: str) -> str:
    choices = {slot.name: dtype, "show": slot.name, "element": 0}
    checked = str(slot.given == dtype).lower()
    return (
        f'<button type="button" role="radio" aria-checked="{checked}" '
        f'data-set="{escape(change(state, **choices))}">{dtype}</button>'
    )


def _verdict(slot: Slot) -> str:
    does = "writes" if slot.written else "reads"
    if slot.wrong:
        said = f"reported as “{kernels_text.scalar(slot)}”"
        return f"kernel {does} <b>{slot.pointer}</b>{_reason(slot)}; {said}"
    return f"kernel {does} {slot.pointer}{_reason(slot)}"


def _reason(slot: Slot) -> str:
    if slot.like:
        return f", as {slot.like} is"
    if slot.name == ARGUMENTS[0]:
        return ", and takes the two hash tensors for the same"
    return ", whatever the others are"


# --- tables ---


def _elements(slot: Slot, chosen: Element) -> str:
    heads = ("#", "bytes", "meant", f"read as {slot.reader}", "in hex")
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(_element(slot, element, element is chosen) for element in slot.elements)
    return f'<table class="kn-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _element(slot: Slot, e: Element, chosen: bool) -> str:
    right = e.seen == e.meant
    seen = "unknown" if e.seen is None else f"{e.seen:,}"
    hexed = "past the end" if e.seen is None else f"0x{e.seen:X}"
    kinds = " ".join(filter(None, ("kn-here" if chosen else "", "" if right else "kn-bad")))
    cells = (str(e.index), f"{e.first}–{e.last - 1}", f"{e.meant:,}", seen, hexed)
    return f'<tr class="{kinds}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _tried(lab: Lab, state: State) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("what was tried", "why", "the contract's word"))
    body = "".join(_attempt(a, state, lab.attempts[0]) for a in lab.attempts)
    return f'<table class="kn-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _word(a: Attempt, first: Attempt) -> str:
    if a is not first and a.dtypes == first.dtypes:
        return "the same"
    passed = "passes" if a.fused else "not asked: no router runs"
    return a.message.partition(": ")[2] or passed


def _attempt(a: Attempt, state: State, first: Attempt) -> str:
    here = a.dtypes == tuple(state.dtypes.values())
    choices = dict(zip(ARGUMENTS, a.dtypes, strict=True)) | {"show": "", "element": 0}
    button = (
        f'<button type="button" data-set="{escape(change(state, **choices))}">'
        f"{escape(a.what)}</button>"
    )
    kinds = " ".join(filter(None, ("kn-here" if here else "", "kn-bad" if a.message else "kn-ok")))
    word = escape(_word(a, first))
    return f'<tr class="{kinds}"><td>{button}</td><td>{escape(a.why)}</td><td>{word}</td></tr>'
