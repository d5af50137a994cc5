"""Interference's curve: what each token budget would have made of the recorded requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from app.figures.data import known
from app.figures.token_budget import Measured, token_budget
from app.panels.markup import empty, headline
from app.panels.view import Params, Replays, View, number
from app.replay.wording import remarks
from app.theme import Theme
from app.units import UNKNOWN, count, duration, three

_MARK = '<span class="ss-modelled">predicted by replay</span>'
_SAME = 0.05
_KEYS = (("worst_s", "itl_s", "max"), ("ttft_s", "ttft_s", "p50"), ("ttft_worst_s", None, None))


def curve(replays: Replays | None, params: Params, look: Theme) -> View:
    """params: budget, the one that is spoken of."""
    if replays is None:
        return _told("The curve of token budgets is asked for.", "It comes within seconds.")
    if replays.error is not None:
        return _told("No curve of token budgets.", replays.error)
    if replays.result is None:
        done = f"{replays.done} of {replays.total} budgets" if replays.total else "fitting"
        why = (
            "The recorded requests arrive again at each budget, on a clock that a step-time model "
            "moves, which is fitted to the recorded steps."
        )
        return _told(f"Replaying: {done}.", why)
    if not replays.result["rows"]:
        return _told("No curve of token budgets.", " ".join(replays.result["skipped"]))
    return _drawn(replays.result, int(number(params, "budget", 64, 1, 1e6)), look)


def _told(what: str, why: str) -> View:
    return View(html={"headline": headline(what), "blank": empty(what, why)})


def _drawn(result: Mapping[str, Any], budget: int, look: Theme) -> View:
    rows, measured = rows_of(result), measured_of(result)
    offered = [int(b) for b in rows["budget"].dropna()]
    chosen = min(offered, key=lambda b: abs(b - budget)) if offered else budget
    goals = result["goals"]
    targets = (goals["itl_slo_s"], goals["ttft_slo_s"])
    return View(
        figures={"interference": token_budget(rows, measured, chosen, targets, look)},
        html={
            "headline": sentence(rows, measured, chosen, int(result["requests"])),
            "blame": table(rows, measured, chosen, result),
            "window": f"{count(int(result['requests']))} requests replayed",
        },
    )


def rows_of(result: Mapping[str, Any]) -> pd.DataFrame:
    """One row a point: budget (NULL: none), tokens_per_s, and each time with its _low and _high."""
    return pd.DataFrame([_row(point["predicted"]) for point in result["rows"]])


def _row(predicted: Mapping[str, Any]) -> dict[str, Any]:
    settings = predicted["settings"]
    budget = settings["chunk_tokens"] if settings["scheduler"] == "chunked" else None
    found: dict[str, Any] = {"budget": budget, "tokens_per_s": predicted["output_tokens_per_s"]}
    for name, key, inner in _KEYS:
        for end, side in (
            ("", predicted),
            ("_low", predicted["low"]),
            ("_high", predicted["high"]),
        ):
            found[f"{name}{end}"] = side[key][inner] if key else side[name]
    return {k: float("nan") if v is None else v for k, v in found.items()}


def measured_of(result: Mapping[str, Any]) -> Measured:
    """What was recorded of the same requests, and what held while they ran."""
    m = result["measured"]
    chunked = m["scheduler"] == "chunked"
    budget = m["chunk_tokens"] if chunked else None
    name = m["scheduler"] or "several schedulers"
    if chunked:
        name = f"chunked, {budget} tokens a step" if budget else "chunked, several budgets"
    mixed = budget is None and m["scheduler"] != "continuous"
    return Measured(name, budget, mixed, m["worst_s"], m["ttft_s"], m["ttft_worst_s"])


def sentence(rows: pd.DataFrame, measured: Measured, chosen: int, requests: int) -> str:
    """The trade: "64 tokens a step: worst gap 46 ms instead of 642 ms, worst TTFT +210 ms".

    Against what was measured where that ran without a budget, else against the prediction of that.
    """
    mine, without = rows[rows["budget"] == chosen].iloc[0], rows[rows["budget"].isna()]
    was, name = (measured.worst_s, measured.ttft_worst_s), "as measured"
    if (measured.mixed or measured.budget is not None) and len(without):
        row = without.iloc[0]
        was, name = (known(row["worst_s"]), known(row["ttft_worst_s"])), "as without a budget"
    instead, late = _against(mine, was, name)
    said = f"{count(chosen)} tokens a step: worst gap {duration(mine['worst_s'])}{instead}{late}."
    how = f"Predicted by replay of {count(requests)} requests."
    return f'<div class="long">{headline(said, how)}</div>'


def _against(mine: Any, reference: tuple[float | None, float | None], name: str) -> tuple[str, str]:
    was, ttft_s = reference
    instead = f" instead of {duration(was)} {name.removeprefix('as ')}" if was else ""
    if was and abs(float(mine["worst_s"]) - was) < _SAME * was:
        instead = f", {name}"
    if not ttft_s or pd.isna(mine["ttft_worst_s"]):
        return instead, ""
    more_s = float(mine["ttft_worst_s"]) - ttft_s
    if abs(more_s) < _SAME * ttft_s:
        return instead, ", the same worst TTFT"
    sign = "+" if more_s > 0 else "−"
    return instead, f", worst TTFT {sign}{duration(abs(more_s))}"


# --- the table ---

_COLUMNS = (
    "token budget",
    "",
    "worst ITL",
    "range",
    "median TTFT",
    "worst TTFT",
    "range",
    "tokens/s",
)


def table(rows: pd.DataFrame, measured: Measured, chosen: int, result: Mapping[str, Any]) -> str:
    """Measured first, then each budget as predicted, the chosen one marked."""
    head = "".join(f"<th>{escape(c)}</th>" for c in _COLUMNS)
    body = _cells(
        "first",
        [
            escape(measured.name),
            "measured",
            _time(measured.worst_s),
            "",
            _time(measured.ttft_s),
            _time(measured.ttft_worst_s),
            "",
            "",
        ],
    )
    body += "".join(_predicted(row, chosen) for row in rows.to_dict("records"))
    notes = [*result["skipped"], *remarks(result, result["rows"][0]["predicted"])]
    small = "".join(f'<p class="small">{escape(n)}</p>' for n in notes)
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="blame budgets">{whole}{small}</div>'


def _predicted(row: Mapping[Any, Any], chosen: int) -> str:
    none = pd.isna(row["budget"])
    cells = [
        "none: whole prompts" if none else count(int(row["budget"])),
        _MARK,
        _time(row["worst_s"]),
        _range(row, "worst_s"),
        _time(row["ttft_s"]),
        _time(row["ttft_worst_s"]),
        _range(row, "ttft_worst_s"),
        three(row["tokens_per_s"]),
    ]
    return _cells("chosen" if not none and row["budget"] == chosen else "", cells)


def _cells(kind: str, cells: Sequence[str]) -> str:
    mark = f' class="{kind}"' if kind else ""
    return f"<tr{mark}>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"


def _time(value_s: float | None) -> str:
    return UNKNOWN if value_s is None or pd.isna(value_s) else duration(value_s)


def _range(row: Mapping[Any, Any], name: str) -> str:
    return f"{_time(row[f'{name}_low'])} – {_time(row[f'{name}_high'])}"
