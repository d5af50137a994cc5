"""The Requests page: who waited, ran and lost what; one request opened down to its tokens."""

from __future__ import annotations

from typing import Any

import pandas as pd

from app.figures.select import by_time
from app.figures.waterfall import ROWS, Axis, waterfall
from app.panels import request_opened as opened
from app.panels import standing
from app.panels.live import waiting_view
from app.panels.markup import empty, headline
from app.panels.request_time import Alone
from app.panels.roofline_cost import decode_of, peaks_of
from app.panels.view import RECORDED, Moment, Params, View
from app.panels.window import Window, window
from app.theme import Theme
from app.units import count
from telemetry.queries import live, roofline
from telemetry.queries import requests as queries
from telemetry.queries.pauses import pauses_of
from telemetry.reader import Reader

SPAN_S = 30.0
SORTS = {
    "slowdown": ("slowdown", False),
    "E2EL": ("elapsed_s", False),
    "TTFT": ("ttft_s", False),
    "queue": ("queue_s", False),
    "tokens": ("output_tokens", False),
    "arrival": ("request_id", True),
}
"""Name of an order, its column, and whether the smallest is first. Unknown values are last."""
SHOWS = ("all", "finished", "running", "waiting", "preempted")


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """params: sort (SORTS), show (SHOWS), find (part of a label, or r-17), x = "arrival"
    or "clock", request = the one to open; else the slowest finished one is.
    """
    run, shown = live.run(reader, run_id), window(reader, run_id, params, SPAN_S)
    if run is None or shown is None:
        return waiting_view()
    stopped = pauses_of(reader, run_id)
    lived = queries.lived(reader, run_id, shown.start_ns, shown.end_ns, stopped)
    rows = queries.placed(lived, shown.end_ns, stopped)
    alone = _alone(reader, run_id, run)
    took = zip(lived, rows["elapsed_s"], strict=True)
    rows["slowdown"] = [_slowdown(row, elapsed_s, alone) for row, elapsed_s in took]
    listed = ordered(matching(rows, params), params)
    chosen = opened.chosen(params)
    request = chosen if chosen is not None else _slowest(listed)
    view = View(html={"counter": standing.window_counter(reader, run_id, shown, moment)})
    view.html["window"] = standing.window_control(shown, moment)
    if rows.empty:
        view.html["blank"] = empty(*_nothing(reader, run_id))
        view.html["headline"] = headline("No request in this window.")
        return view
    _list(view, reader, run_id, listed, shown, request, params, look)
    view.html["listed"] = _listed(len(listed), len(rows))
    if request is not None:
        by = opened.Beside(reader, run, stopped, alone, shown.end_ns, moment)
        row = next((r for r in lived if r["request_id"] == request), None) or by.row(request)
        opened.show(view, request, row, by, look)
    view.html.setdefault("headline", headline(*_summary(rows)))
    return view


def _nothing(reader: Reader, run_id: str) -> tuple[str, str]:
    if not queries.reported(reader, run_id)["requests"]:
        return "No requests to show", "Single requests are not reported by this source."
    return "No request in this window", "Choose another window, or start a load."


def _alone(reader: Reader, run_id: str, run: dict[str, Any]) -> Alone:
    decode = decode_of(roofline.decode_costs(reader, run_id), run)
    return Alone.of(queries.step_alone(reader, run_id), decode, peaks_of(run))


def _slowdown(row: dict[str, Any], elapsed_s: float, alone: Alone) -> float | None:
    """Its time so far over its time alone; None before its first token."""
    took = row["e2el_s"] or elapsed_s
    output = int(row["output_tokens"] or 0)
    by_itself = alone.total_s(row["own_prefill_s"], int(row["prompt_tokens"]), output)
    return took / by_itself if by_itself else None


def matching(rows: pd.DataFrame, params: Params) -> pd.DataFrame:
    """Those that the page's filter lets through."""
    show, find = params.get("show", "all"), params.get("find", "").strip().lower()
    if show == "preempted":
        rows = rows[rows["preemptions"] > 0]
    elif show in SHOWS[1:]:
        rows = rows[rows["status"] == show]
    if not find:
        return rows
    names = "r-" + rows["request_id"].astype(str)
    labels = rows["label"].fillna("").str.lower()
    return rows[(names == find) | labels.str.contains(find, regex=False)]


def ordered(rows: pd.DataFrame, params: Params) -> pd.DataFrame:
    """By the page's choice; the newest first among equals."""
    column, rising = SORTS.get(params.get("sort", "slowdown"), SORTS["slowdown"])
    rows = rows.assign(slowdown=rows["slowdown"].astype(float))
    newest = rows.sort_values("request_id", ascending=False)
    return newest.sort_values(column, ascending=rising, na_position="last", kind="stable")


def _slowest(listed: pd.DataFrame) -> int | None:
    """Of those that have ended, the first of the list: a running one would change all the time."""
    done = listed[listed["status"] == "finished"]
    first = done if len(done) else listed
    return int(first["request_id"].iloc[0]) if len(first) else None


def _list(
    view: View,
    reader: Reader,
    run_id: str,
    listed: pd.DataFrame,
    shown: Window,
    request: int | None,
    params: Params,
    look: Theme,
) -> None:
    """The waterfall of the first rows, or why it is empty."""
    if listed.empty:
        view.html["unlisted"] = empty("No request matches", "Change the filter above.")
        return
    first = listed.head(ROWS)
    ids = [int(i) for i in first["request_id"]]
    parts = queries.segments(reader, run_id, ids, shown.end_ns)
    by = Axis(shown.span_s, params.get("x") != "clock")
    figure = waterfall(first, parts, by, request, look)
    view.figures["waterfall"] = figure if by.from_arrival else by_time(figure, shown.end_ns)


def _listed(listed: int, rows: int) -> str:
    """How many are drawn, of how many that match, of how many there are."""
    drawn = f"the first {ROWS} of {count(listed)}" if listed > ROWS else f"all {count(listed)}"
    match = " that match" if listed < rows else ""
    cut = f"; of this window the newest {count(rows)}" if rows == queries.MOST_REQUESTS else ""
    return f'<div class="rq-note">{drawn}{match}{cut}</div>'


def _summary(rows: pd.DataFrame) -> tuple[str, str]:
    by = rows["status"].value_counts()
    parts = [f"{count(by[s])} {s}" for s in ("waiting", "running", "finished") if s in by]
    return f"{count(len(rows))} requests in this window: {', '.join(parts)}.", ""
