"""The KV cache page: who holds which block, what of it is room, and how many more would fit."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd

from app.figures.kv_budget import kv_budget
from app.figures.kv_map import Map, by_address, by_request
from app.figures.kv_series import kv_series
from app.figures.select import by_time
from app.panels import standing
from app.panels.kv_facts import Facts, block_size, facts, memory
from app.panels.live import waiting_view
from app.panels.markup import empty, headline, numbers
from app.panels.view import RECORDED, Moment, Params, View
from app.panels.window import window
from app.theme import Theme
from app.units import count, percent
from telemetry.queries import kv_cache as queries
from telemetry.queries import live
from telemetry.reader import Reader

SPAN_S = 30.0
MOST_OWNERS = 8


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """params: map = "request" or "address", request = the one whose blocks stay bright."""
    run, shown = live.run(reader, run_id), window(reader, run_id, params, SPAN_S)
    state = queries.state(reader, run_id, shown.last_step) if shown else None
    if run is None or shown is None or state is None:
        return waiting_view()
    size, step = block_size(run), shown.last_step
    blocks = queries.blocks(reader, run_id, step)
    holders = queries.holders(reader, run_id, step)
    found = facts(state, blocks, holders, size)
    rows = queries.series(reader, run_id, shown.first_step, step, shown.end_ns, size)
    spent = memory(run, state, found, queries.token_bytes(reader, run_id))
    owner = owner_of(params)
    view = View(
        figures={
            "budget": kv_budget(spent, look),
            "cache": by_time(kv_series(rows, size, shown.span_s, look), shown.end_ns),
        },
        html={
            "headline": _headline(found, rows, blocks, holders, owner),
            "counter": standing.window_counter(reader, run_id, shown, moment),
            "window": standing.window_control(shown, moment),
            "side": _side(found, rows, blocks, holders, size, owner),
        },
    )
    _draw_map(view, reader, run_id, Map(blocks, holders, size, 0, owner), params, look)
    return view


def owner_of(params: Params) -> int | None:
    """The request that was clicked; nonsense in an address is nobody."""
    text = params.get("request", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None


def _draw_map(
    view: View, reader: Reader, run_id: str, state: Map, params: Params, look: Theme
) -> None:
    """The map, or in its place why there is none."""
    if state.blocks.empty and not queries.reported(reader, run_id):
        text = "Which sequence holds which block is not reported by this source."
        view.html["unmapped"] = empty("No map of the blocks", text)
    elif params.get("map") == "address":
        extent = queries.extent(reader, run_id)
        every = Map(state.blocks, state.holders, state.block_size, extent, state.owner)
        view.figures["map"] = by_address(every, look)
    else:
        view.figures["map"] = by_request(state, look)
    lost = queries.dropped(reader, run_id)
    if lost:
        note = f"{count(lost)} block changes were dropped by telemetry: the map may be wrong."
        view.html["headline"] = headline(note)


def _headline(
    found: Facts,
    rows: pd.DataFrame,
    blocks: pd.DataFrame,
    holders: pd.DataFrame,
    owner: int | None,
) -> str:
    if owner is not None:
        return _owned(owner, blocks, holders)
    if found.total is None or found.used is None:
        return headline("KV blocks are not reported by this source.")
    strong = f"{count(found.used)} of {count(found.total)} KV blocks used"
    if found.fits is None:
        return headline(f"{strong}.", _story(found, rows))
    more = "1 more sequence" if found.fits == 1 else f"{count(found.fits)} more sequences"
    fit = "fits" if found.fits == 1 else "fit"
    return headline(
        f"{strong}: {more} of {count(found.context)} tokens {fit}.", _story(found, rows)
    )


def _story(found: Facts, rows: pd.DataFrame) -> str:
    """The most telling thing of the window."""
    preempted, again = _sum(rows, "preemptions"), _sum(rows, "recomputed_tokens")
    if preempted:
        times = "preemption" if preempted == 1 else "preemptions"
        return f"{count(preempted)} {times}: {count(again)} tokens computed again."
    if found.saved:
        return f"Sharing saves {count(found.saved)} blocks."
    evicted = _sum(rows, "evictions")
    return f"{count(evicted)} cached blocks were evicted." if evicted else ""


def _sum(rows: pd.DataFrame, column: str) -> int | None:
    """Over the window; None where the source reports none of it."""
    values = rows[column].dropna()
    return int(values.sum()) if len(values) else None


def _owned(owner: int, blocks: pd.DataFrame, holders: pd.DataFrame) -> str:
    """What a clicked request holds."""
    own = blocks[blocks["request_id"] == owner]
    known = holders[holders["request_id"] == owner]
    if own.empty:
        what = "has no block" if len(known) else "is not in the batch"
        return headline(f"r-{owner} {what} at this step.", "Click it again to see all.")
    first = int(own["position"].min())
    shared = own[own["refs"] > 1]
    strong = f"r-{owner} holds {_blocks(len(own))}"
    if len(known):
        strong += f" for {count(int(known['context_tokens'].iloc[0]))} tokens"
    if first:
        return headline(f"{strong}.", f"Its first {_blocks(first)} it shares with others.")
    if len(shared):
        most = int(shared["refs"].max())
        return headline(f"{strong}.", f"{_blocks(len(shared)).capitalize()} are shared by {most}.")
    return headline(f"{strong}.", "None is shared.")


def _blocks(number: int) -> str:
    return "1 block" if number == 1 else f"{count(number)} blocks"


def _side(
    found: Facts,
    rows: pd.DataFrame,
    blocks: pd.DataFrame,
    holders: pd.DataFrame,
    size: int | None,
    owner: int | None,
) -> str:
    fits = f"{count(found.fits)} more" if found.fits is not None else "–"
    room = found.room_share(size)
    told = f"of used KV is room in last blocks ({count(found.room_tokens)} tokens)"
    saved = "blocks saved by sharing" + ("" if found.saved is not None else ": not reported")
    if found.most_shared:
        saved += f" (one has {found.most_shared} holders)"
    items = [
        (fits, _fit(found, holders)),
        (percent(room), told if room is not None else "room in last blocks: not reported"),
        (count(found.saved), saved),
        (count(_sum(rows, "evictions")), "blocks evicted in the window"),
        (count(_sum(rows, "recomputed_tokens")), "tokens computed again"),
    ]
    return (
        f'<div class="side kv-side">{numbers("KV cache", items)}'
        f"{_owners(blocks, holders, owner)}</div>"
    )


def _fit(found: Facts, holders: pd.DataFrame) -> str:
    """Of what length more sequences fit; a step in which nobody is told was not empty."""
    if found.context:
        return f"sequences fit at {count(found.context)} tokens"
    why = "no sequence runs" if len(holders) else "their length is not reported"
    return f"sequences fit: {why}"


def _owners(blocks: pd.DataFrame, holders: pd.DataFrame, owner: int | None) -> str:
    """The largest holders as buttons; the one that was clicked always among them."""
    sizes = blocks["request_id"].dropna().astype(int).value_counts(sort=False)
    order = sorted(sizes.index, key=lambda r: (r != owner, -sizes[r], r))[:MOST_OWNERS]
    if not order:
        return ""
    labels = holders.set_index("request_id")["label"]
    rows = "".join(_owner(int(r), int(sizes[r]), labels.get(r), r == owner) for r in order)
    every = '<button type="button" data-request="">show all</button>' if owner is not None else ""
    return f'<div class="kv-owners"><h4>Largest holders {every}</h4>{rows}</div>'


def _owner(request: int, size: int, label: Any, chosen: bool) -> str:
    name = escape(str(label)) if isinstance(label, str) else ""
    return (
        f'<button type="button" data-request="{request}" aria-pressed="{str(chosen).lower()}" '
        f'title="{name}"><b>r-{request}</b> {_blocks(size)}</button>'
    )
