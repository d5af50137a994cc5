"""One buffer, byte by byte: how it was laid down, what lies there, and how it is taken up.

Lines of 32 bytes. Above the bytes the cells of the dtype in which they were written, below those of
the dtype in which they are read. What lies past the buffer's end is hatched.
"""

from __future__ import annotations

from html import escape

from app.panels.kernels_facts import Element, Slot
from app.panels.kernels_state import State, change

LINE_BYTES = 32
SIZES = {"int64": 8, "int32": 4}


def grid(slot: Slot, state: State) -> str:
    """The whole buffer and what is read behind it. A read that is clicked becomes the outlined."""
    chosen = outlined(slot, state)
    length = max(len(slot.data), slot.elements[-1].last)
    lines = range(0, length, LINE_BYTES)
    return "".join(_line(slot, state, start, chosen) for start in lines)


def outlined(slot: Slot, state: State) -> Element:
    """The element that the state asks for; the last where it has fewer."""
    return slot.elements[min(state.element, len(slot.elements) - 1)]


def title(slot: Slot) -> str:
    """What is drawn, in one line."""
    shape = " × ".join(str(size) for size in slot.shape)
    taker, maker = ("the caller", "the kernel") if slot.written else ("the kernel", "the caller")
    ways = f"{maker} writes {slot.writer}, {taker} reads {slot.reader}"
    return f"<b>{escape(slot.name)}</b> [{shape}], {len(slot.data)} B in memory: {ways}"


def _line(slot: Slot, state: State, start: int, chosen: Element) -> str:
    cells = "".join(
        [
            *_labels(slot),
            *(_written(slot, at, start) for at in _starts(slot, start, SIZES[slot.writer])),
            *(_byte(slot, at, start) for at in range(start, start + LINE_BYTES)),
            *(
                _read(slot, e, state, start)
                for e in slot.elements
                if start <= e.first < _end(start)
            ),
            _outline(chosen, start),
        ]
    )
    return f'<div class="kn-line">{cells}</div>'


def _end(start: int) -> int:
    return start + LINE_BYTES


def _labels(slot: Slot) -> list[str]:
    rows = ((1, f"written {slot.writer}"), (2, "bytes"), (3, f"read {slot.reader}"))
    return [f'<span class="kn-way" style="grid-area:{row}/1">{text}</span>' for row, text in rows]


def _place(row: int, first: int, last: int, start: int) -> str:
    return f"grid-area:{row}/{first - start + 2}/{row + 1}/{last - start + 2}"


def _starts(slot: Slot, start: int, size: int) -> range:
    """First bytes of the written cells of a line, as far as the buffer goes."""
    return range(start, min(_end(start), len(slot.data)), size)


def _written(slot: Slot, at: int, start: int) -> str:
    size = SIZES[slot.writer]
    value = int.from_bytes(slot.data[at : at + size], "little", signed=True)
    untouched = slot.written and at // size >= len(slot.values)
    style = _place(1, at, at + size, start)
    kind, text = ("kn-blank", "not written") if untouched else ("kn-written", f"{value:,}")
    if size > SIZES[slot.reader]:
        kind += " kn-low"  # a small number lies in the first of its halves
    return f'<span class="{kind}" style="{style}">{text}</span>'


def _byte(slot: Slot, at: int, start: int) -> str:
    inside = at < len(slot.data)
    text = f"{slot.data[at]:02X}" if inside else "··"
    kind = "kn-byte" if inside else "kn-byte kn-past"
    return f'<span class="{kind}" style="{_place(2, at, at + 1, start)}">{text}</span>'


def _read(slot: Slot, e: Element, state: State, start: int) -> str:
    past = e.last > len(slot.data)
    kind = "kn-gone" if past else "kn-right" if e.seen == e.meant else "kn-wrong"
    text = "past the end" if past else "nothing" if e.seen is None else f"{e.seen:,}"
    says = f"element {e.index}: bytes {e.first} to {e.last - 1}, {text}, meant {e.meant:,}"
    set_to = change(state, show=slot.name, element=e.index)
    return (
        f'<button type="button" class="{kind}" data-set="{escape(set_to)}" title="{says}" '
        f'style="{_place(3, e.first, e.last, start)}">{text}</button>'
    )


def _outline(e: Element, start: int) -> str:
    if not start <= e.first < _end(start):
        return ""
    columns = (e.first - start + 2, e.last - start + 2)
    return f'<i class="kn-outline" style="grid-area:1/{columns[0]}/4/{columns[1]}"></i>'
