"""What another schedule would have made of a recorded run: predicted beside recorded, as HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from app.panels.markup import empty, headline
from app.replay.wording import FIGURES, change, label, model_lines, remarks, shown, value
from app.units import UNKNOWN, duration, three

_STYLE = """<style>
.ss-replay { font-size: 15px; color: var(--ss-text); font-variant-numeric: tabular-nums; }
.ss-replay table { border-collapse: collapse; width: 100%; }
.ss-replay th { font-weight: 400; font-size: 13px; color: var(--ss-muted); text-align: right; }
.ss-replay th:first-child, .ss-replay td:first-child { text-align: left; }
.ss-replay td { text-align: right; padding: 3px 12px 3px 0; border-top: 1px solid var(--ss-line); }
.ss-replay td, .ss-replay th { white-space: nowrap; }
.ss-replay .scale { width: 38%; padding: 3px 0 3px 20px; text-align: left; }
.ss-replay .axis { position: relative; height: 18px; }
.ss-replay .axis i { position: absolute; top: 0; height: 18px; border-left: 2px dotted; }
.ss-replay .axis i.target { border-left: 3px solid var(--ss-lost); }
.ss-replay .axis b { position: absolute; top: 7px; height: 4px; min-width: 4px; opacity: 0.45;
  background: var(--ss-text); }
.ss-replay .axis u { position: absolute; top: 3px; width: 12px; height: 12px; margin-left: -6px;
  border-radius: 50%; background: var(--ss-text); }
.ss-replay tr.best td { font-weight: 700; background: var(--ss-soft); }
.ss-replay .said { font-size: 20px; line-height: 28px; margin: 0 0 6px; }
.ss-replay .small { font-size: 13px; line-height: 18px; color: var(--ss-muted); margin: 6px 0 0; }
</style>"""
_SAME = 0.05  # a change that is none
_FAR = 2.0  # a TTFT so many times another is told first
_MARK = '<span class="ss-modelled">predicted</span>'


def invitation() -> str:
    """What stands here before anything was asked."""
    return empty(
        "What would another schedule have done to this run?",
        "Choose one and predict: the recorded requests arrive again and the real scheduler runs "
        "them, on a clock moved by a step-time model that is fitted to the steps recorded so far.",
    )


def prediction(found: Mapping[str, Any]) -> str:
    """One prediction: its sentence, the figures with their ranges on one axis, what to know."""
    rows = [row for row in (_figures(found, *figure) for figure in FIGURES) if row]
    reach = max(2.0, *(max(r, 1 / r) for row in rows for r in row[2]))
    body = "".join(_row(name, cells, ratios, reach) for name, cells, ratios in rows)
    head = "".join(f"<th>{t}</th>" for t in ("", "recorded", _MARK, "range", "change"))
    axis = f'<th class="scale">less ← dotted: as recorded, log axis to × {three(reach)} → more</th>'
    table = f"<table><tr>{head}{axis}</tr>{body}</table>"
    notes = [f"{label(found['predicted']['settings'])}.", *remarks(found, found["predicted"])]
    return _block(sentence(found), table, [*notes, *model_lines(found["model"])])


def sentence(found: Mapping[str, Any]) -> str:
    """What would have changed to a person: the worst gap, the throughput, and a far other TTFT."""
    recorded, predicted = found["recorded"], found["predicted"]
    name = label(predicted["settings"]).split(",")[0]
    before, after = recorded["itl_s"]["max"], predicted["itl_s"]["max"]
    gap = f"{name}: worst gap {duration(after)} instead of {duration(before)}"
    rest = [_rate(recorded, predicted), _first_token(recorded, predicted)]
    words = ", ".join(part for part in rest if part)
    return headline(f"{gap},", f"{words}.") if words else headline(f"{gap}.")


def _rate(recorded: Mapping[str, Any], predicted: Mapping[str, Any]) -> str:
    was, rate = recorded["output_tokens_per_s"], predicted["output_tokens_per_s"]
    if not was or not rate:
        return ""
    if abs(rate / was - 1) < _SAME:
        return f"the same {three(was)} tokens/s"
    return f"{three(rate)} tokens/s instead of {three(was)}"


def _first_token(recorded: Mapping[str, Any], predicted: Mapping[str, Any]) -> str:
    was, now = recorded["ttft_s"]["p50"], predicted["ttft_s"]["p50"]
    if not was or not now or 1 / _FAR < now / was < _FAR:
        return ""
    return f"median TTFT {duration(now)} instead of {duration(was)}"


_Row = tuple[str, list[str], list[float]]


def _figures(found: Mapping[str, Any], name: str, key: str, inner: str | None) -> _Row | None:
    """Texts, and predicted, low and high over recorded; None for what neither run has."""
    predicted = found["predicted"]
    before, after = value(found["recorded"], key, inner), value(predicted, key, inner)
    low, high = (value(predicted[end], key, inner) for end in ("low", "high"))
    if not before and not after:
        return None
    spread = f"{shown(key, low)} – {shown(key, high)}"
    cells = [shown(key, before), shown(key, after), spread, change(before, after)]
    ends = [v / before for v in (after, low, high) if v and before]
    return name, cells, ends if len(ends) == 3 else []


def _row(name: str, cells: list[str], ratios: list[float], reach: float) -> str:
    texts = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    drawn = _interval(ratios, reach) if ratios else ""
    scale = f'<td class="scale"><div class="axis">{drawn}</div></td>'
    return f"<tr><td>{escape(name)}</td>{texts}{scale}</tr>"


def _interval(ratios: list[float], reach: float) -> str:
    after, low, high = (50 + 49 * math.log(r) / math.log(reach) for r in ratios)
    bar = f'<b style="left:{low:.2f}%;width:{high - low:.2f}%"></b>'
    return f'<i style="left:50%"></i>{bar}<u style="left:{after:.2f}%"></u>'


def grid(found: Mapping[str, Any]) -> str:
    """A sweep: one row a point, worst gaps on a log axis, the best one marked."""
    rows, target = found["rows"], found["targets"]["itl_slo_s"]
    gaps = [g for g in (*(r["predicted"]["itl_s"]["max"] for r in rows), target) if g]
    low, high = (min(gaps) / 1.3, max(gaps) * 1.1) if gaps else (1.0, 2.0)
    body = "".join(_point(row, row == found["best"], target, (low, high)) for row in rows)
    heads = ("", "tokens/s", "TTFT P99", "TPOT P99", "worst gap")
    head = "".join(f"<th>{t}</th>" for t in heads)
    axis = f'<th class="scale">worst gap, {duration(low)} to {duration(high)}, log axis</th>'
    notes = [*found["skipped"], *(remarks(found, rows[0]["predicted"]) if rows else [])]
    return _block(_best(found), f"<table><tr>{head}{axis}</tr>{body}</table>", notes)


def _best(found: Mapping[str, Any]) -> str:
    best, target = found["best"], found["targets"]["itl_slo_s"]
    goal = f" for a worst gap of at most {duration(target)}" if target else ""
    if best is None:
        return headline(f"No point of the grid{goal}.", "Relax the target, or widen the grid.")
    p = best["predicted"]
    rate, gap = three(p["output_tokens_per_s"]), duration(p["itl_s"]["max"])
    return headline(f"Best{goal}: {label(p['settings'])},", f"{rate} tokens/s, worst gap {gap}.")


def _point(
    row: Mapping[str, Any], best: bool, target: float | None, ends: tuple[float, float]
) -> str:
    p, mark = row["predicted"], ' class="best"' if best else ""
    cells = [
        label(p["settings"]) + ("" if row["meets_target"] else " (misses)"),
        three(p["output_tokens_per_s"]),
        duration(p["ttft_s"]["p99"]),
        duration(p["tpot_s"]["p99"]),
        duration(p["itl_s"]["max"]) if p["itl_s"]["max"] else UNKNOWN,
    ]
    texts = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    line = f'<i class="target" style="left:{_at(target, ends):.2f}%"></i>' if target else ""
    drawn = _gap(p, ends) if p["itl_s"]["max"] else ""
    return f'<tr{mark}>{texts}<td class="scale"><div class="axis">{line}{drawn}</div></td></tr>'


def _gap(predicted: Mapping[str, Any], ends: tuple[float, float]) -> str:
    after, low, high = (
        _at(side["itl_s"]["max"], ends) for side in (predicted, predicted["low"], predicted["high"])
    )
    bar = f'<b style="left:{low:.2f}%;width:{high - low:.2f}%"></b>'
    return f'{bar}<u style="left:{after:.2f}%"></u>'


def _at(value_s: float, ends: tuple[float, float]) -> float:
    low, high = ends
    share = math.log(value_s / low) / math.log(high / low)
    return min(100.0, max(0.0, 100 * share))


def _block(said: str, table: str, notes: list[str]) -> str:
    small = "".join(f'<p class="small">{escape(note)}</p>' for note in notes)
    return f'{_STYLE}<div class="ss-replay"><p class="said">{said}</p>{table}{small}</div>'
