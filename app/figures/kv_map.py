"""Every KV block that is held or cached, as a cell: by request and place, or by address.

Colour is the block's state, never its owner. Above MAX_CELLS a cell stands for several blocks and
shows the fullest state among them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from app.figures.data import Figure, nice_ceiling
from app.theme import Theme, axis, layout, mixed, note

HEIGHT_PX = 208
MAX_CELLS = 4096
MAX_LABELS = 4
_LABEL_PX = 17
_PLOT_PX = HEIGHT_PX - 44
FREE, CACHED, ROOM, USED = range(4)
PALE = 0.45
_FADED = 0.16
_LABELLED_ROWS = 26
# How wide the map is for each pixel of its height: cells by address come out about square.
_ASPECT = 6
_NOTHING = -1
Cells = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Map:
    """blocks, holders: from `queries.kv_cache`, at one step.

    block_size, tokens: None where it is not reported, then no room is shown. owner: the request
    that was clicked; all others fade. extent: how many addresses there are.
    """

    blocks: pd.DataFrame
    holders: pd.DataFrame
    block_size: int | None
    extent: int
    owner: int | None = None

    @property
    def rows(self) -> list[int]:
        """Requests that are in the batch or hold a block, the oldest first."""
        used = self.blocks["request_id"].dropna().astype(int)
        return sorted({*used.tolist(), *self.holders["request_id"].astype(int).tolist()})


def by_request(state: Map, look: Theme) -> Figure:
    """A row per request, its blocks in order of their positions; a shared block once."""
    rows = state.rows
    used = state.blocks[state.blocks["state"] == "used"]
    longest = int(used["position"].max()) + 1 if len(used) else 1
    each = max(1, math.ceil(len(rows) * longest / MAX_CELLS))
    columns = math.ceil(nice_ceiling(max(longest, 16)) / each)
    owners: Cells = used["request_id"].to_numpy(np.int64)
    at_row, at = np.searchsorted(rows, owners), used["position"].to_numpy(np.int64)
    grid = _grid(used, at_row, at // each, (max(len(rows), 1), columns), state)
    data = [_cells(grid, look, dx=each, gap=len(rows) <= 64)]
    above = _elsewhere(owners, at, np.asarray(rows, np.int64))
    data.append(_outlines(above, look.idle, "shared, held above"))
    shared = _runs(used, at_row, at)
    data.append(_outlines(shared[["row", "start", "end"]], look.text, "shared"))
    shape = layout(look, HEIGHT_PX, margin=_MARGIN, meta={"picks": True})
    title = "block of the sequence" + (f", {each} to a cell" if each > 1 else "")
    shape["xaxis"] = axis(look, title, range=[-0.5, columns * each - 0.5], showgrid=False)
    shape["yaxis"] = _row_axis(rows, look)
    shape["annotations"] = _counts(shared, len(rows), look) + _preempted(state, look)
    return {"data": data, "layout": shape}


def by_address(state: Map, look: Theme) -> Figure:
    """All blocks of the cache in order of their numbers, row after row."""
    each = max(1, math.ceil(state.extent / MAX_CELLS))
    cells = math.ceil(max(state.extent, 1) / each)
    columns = max(16, math.ceil(math.sqrt(cells * _ASPECT) / 16) * 16)
    rows = math.ceil(cells / columns)
    cell: Cells = state.blocks["block"].to_numpy(np.int64) // each
    grid = _grid(state.blocks, cell // columns, cell % columns, (rows, columns), state)
    flat = grid.codes.reshape(-1)
    flat[:cells][flat[:cells] == _NOTHING] = FREE + (4 if state.owner is not None else 0)
    data = [_cells(grid, look, dx=each, dy=columns * each, gap=rows <= 64)]
    shape = layout(look, HEIGHT_PX, margin=_MARGIN, meta={"picks": True})
    title = "block within the row" + (f", {each} to a cell" if each > 1 else "")
    across, down = columns * each, rows * columns * each
    shape["xaxis"] = axis(look, title, range=[-0.5 * each, across - 0.5 * each], showgrid=False)
    ends = [down - across / 2, -across / 2]
    starts = [i * across for i in range(0, rows, max(1, math.ceil(rows / 8)))]
    shape["yaxis"] = axis(
        look, "first block", range=ends, showgrid=False, showline=False, ticks="", tickvals=starts
    )
    return {"data": data, "layout": shape}


_MARGIN = {"l": 64, "r": 8, "t": 6, "b": 38}


@dataclass(slots=True)
class _Grid:
    """Per cell its code (of _NOTHING, FREE … USED, four more where faded) and its owner."""

    codes: Cells
    owners: Cells
    refs: Cells


def _grid(
    blocks: pd.DataFrame, rows: Cells, columns: Cells, shape: tuple[int, int], state: Map
) -> _Grid:
    codes = _codes(blocks, state)
    owners = blocks["request_id"].fillna(_NOTHING).to_numpy(np.int64)
    if state.owner is not None:
        codes = np.where(owners == state.owner, codes, codes - 4)
    made = _Grid(*(np.full(shape, _NOTHING, np.int64) for _ in range(3)))
    # Where several blocks share a cell, the last one written stays: the fullest, never faded.
    order = np.argsort(codes, kind="stable")
    at = rows[order], columns[order]
    shown = codes[order]
    made.codes[at] = np.where(shown < 0, shown + 8, shown)
    made.owners[at] = owners[order]
    made.refs[at] = blocks["refs"].to_numpy(np.int64)[order]
    return made


def _codes(blocks: pd.DataFrame, state: Map) -> Cells:
    """CACHED, USED, or ROOM: the last block of its holder, not yet full."""
    used = (blocks["state"] == "used").to_numpy()
    codes = np.where(used, USED, CACHED)
    if state.block_size is None:
        return codes
    contexts = state.holders.set_index("request_id")["context_tokens"]
    context = blocks["request_id"].map(contexts).to_numpy(np.float64)
    end = (blocks["position"].to_numpy(np.float64) + 1) * state.block_size
    return np.where(used & (end > context), ROOM, codes)


def _cells(grid: _Grid, look: Theme, dx: int = 1, dy: int = 1, gap: bool = True) -> dict[str, Any]:
    """One heatmap; customdata of a cell is the request to pick."""
    scale: list[list[Any]] = []
    for i, colour in enumerate(_colours(look)):
        scale += [[i / 8, colour], [(i + 1) / 8, colour]]
    return {
        "type": "heatmap",
        "name": "blocks",
        "z": _or_none(grid.codes),
        "customdata": _or_none(grid.owners),
        "text": _texts(grid),
        "hovertemplate": "%{text}<extra></extra>",
        "x0": (dx - 1) / 2,
        "dx": dx,
        "y0": 0,
        "dy": dy,
        "zmin": -0.5,
        "zmax": 7.5,
        "colorscale": scale,
        "showscale": False,
        "xgap": 1,
        "ygap": 1 if gap else 0,
        "hoverongaps": False,
    }


def _colours(look: Theme) -> list[str]:
    """By code: as it is, then faded."""
    pale = mixed(look.decode, look.background, PALE)
    plain = [look.grid, look.cached, pale, look.decode]
    return plain + [look.grid] + [mixed(c, look.background, _FADED) for c in plain[1:]]


def _or_none(values: Cells) -> list[list[int | None]]:
    return [[None if v == _NOTHING else v for v in row] for row in values.tolist()]


def _texts(grid: _Grid) -> list[list[str]]:
    names = {FREE: "free", CACHED: "cached", ROOM: "last block, not full", USED: ""}
    return [
        [_text(code % 4, owner, refs, names) if code >= 0 else "" for code, owner, refs in cells]
        for cells in (zip(*lines, strict=True) for lines in _lines(grid))
    ]


def _lines(grid: _Grid) -> list[tuple[list[int], ...]]:
    parts = (grid.codes.tolist(), grid.owners.tolist(), grid.refs.tolist())
    return list(zip(*parts, strict=True))


def _text(code: int, owner: int, refs: int, names: dict[int, str]) -> str:
    if owner == _NOTHING:
        return names[code]
    shared = f" × {refs}" if refs > 1 else ""
    return f"r-{owner}{shared}" + (f": {names[code]}" if names[code] else "")


def _runs(used: pd.DataFrame, at_row: Cells, at: Cells) -> pd.DataFrame:
    """Neighbouring blocks of one row that as many share: row, start, end (exclusive), refs."""
    refs: Cells = used["refs"].to_numpy(np.int64)
    shared = np.flatnonzero(refs > 1)
    order = shared[np.lexsort((at[shared], at_row[shared]))]
    row, start, held = at_row[order], at[order], refs[order]
    opens = np.ones(len(order), bool)
    opens[1:] = (np.diff(row) != 0) | (np.diff(held) != 0) | (np.diff(start) != 1)
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(order))[: len(first)] - 1
    ends = {"start": start[first], "end": start[last] + 1}
    return pd.DataFrame({"row": row[first], **ends, "refs": held[first]})


def _elsewhere(owners: Cells, at: Cells, rows: Cells) -> pd.DataFrame:
    """What a request has in blocks that are drawn at another: its positions before its own."""
    holding, place = np.unique(owners, return_inverse=True)
    first = np.full(len(holding), np.iinfo(np.int64).max)
    np.minimum.at(first, place, at)
    begun = np.flatnonzero(first > 0)
    drawn = np.searchsorted(rows, holding[begun])
    return pd.DataFrame({"row": drawn, "start": 0, "end": first[begun]})


def _outlines(boxes: pd.DataFrame, colour: str, name: str) -> dict[str, Any]:
    """One trace of closed boxes, parted by None."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for row, start, end in boxes[["row", "start", "end"]].itertuples(index=False):
        left, right, top, low = start - 0.5, end - 0.5, row - 0.42, row + 0.42
        xs += [left, right, right, left, left, None]
        ys += [top, top, low, low, top, None]
    ink = {"color": colour, "width": 1.2}
    trace = {"type": "scatter", "mode": "lines", "name": name, "hoverinfo": "skip"}
    return {**trace, "x": xs, "y": ys, "line": ink}


def _row_axis(rows: list[int], look: Theme) -> dict[str, Any]:
    """Names as far as there is room for them."""
    every = max(1, math.ceil(len(rows) / _LABELLED_ROWS * 2))
    ticks = list(range(0, len(rows), every))
    names = [f"r-{rows[i]}" for i in ticks]
    ends = [max(len(rows), 4) - 0.5, -0.5]
    shape = {"showgrid": False, "showline": False, "ticks": ""}
    return axis(look, "request", range=ends, tickvals=ticks, ticktext=names, **shape)


def _counts(shared: pd.DataFrame, rows: int, look: Theme) -> list[dict[str, Any]]:
    """× n on the stretches that save most, none on top of another."""
    saved = (shared["end"] - shared["start"]) * (shared["refs"] - 1)
    apart = _LABEL_PX * max(rows, 4) / _PLOT_PX
    made: list[dict[str, Any]] = []
    for at in saved.sort_values(ascending=False, kind="stable").index:
        row, start, refs, end = shared.loc[at, ["row", "start", "refs", "end"]]
        if len(made) < MAX_LABELS and all(abs(m["y"] - row) >= apart for m in made):
            place = {"x": (start + end - 1) / 2, "y": int(row)}
            back = {"bgcolor": look.background, "borderpad": 1}
            made.append(note(look, f"<b>× {refs}</b>", **place, **back))
    return made


def _preempted(state: Map, look: Theme) -> list[dict[str, Any]]:
    """Who is in the middle of its answer and holds nothing."""
    holding = set(state.blocks["request_id"].dropna().astype(int))
    lost = [row for row, request in enumerate(state.rows) if request not in holding]
    colour = {"color": look.lost, "size": 13}
    side = {"xanchor": "left", "x": -0.4}
    text = "preempted: holds nothing"
    return [note(look, text, y=row, **side) | {"font": colour} for row in lost[:MAX_LABELS]]
