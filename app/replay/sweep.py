"""A grid of settings, each predicted, and the point that meets the targets best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from app.replay.predict import Predictor
from app.replay.wording import label
from engine.errors import UserError
from engine.replay.recording import Settings

DRAWS = 3
MOST_POINTS = 200
BEST_BY = "most output tokens/s, then the shortest worst gap, among the points that meet the target"


@dataclass(frozen=True, slots=True)
class Targets:
    """Most that a run may take, seconds: P99 TTFT, P99 TPOT, and any gap between two tokens."""

    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None
    itl_slo_s: float | None = None

    def met(self, predicted: dict[str, Any]) -> bool:
        """Whether the predicted figures keep to all that is set."""
        pairs = (
            (self.ttft_slo_s, predicted["ttft_s"]["p99"]),
            (self.tpot_slo_s, predicted["tpot_s"]["p99"]),
            (self.itl_slo_s, predicted["itl_s"]["max"]),
        )
        return all(slo is None or (value is not None and value <= slo) for slo, value in pairs)


@dataclass(frozen=True, slots=True)
class Grid:
    """Values of each axis; an empty axis keeps the setting as it is. MOST_POINTS at most."""

    schedulers: Sequence[str] = ()
    chunk_tokens: Sequence[int] = ()
    max_batch: Sequence[int] = ()
    kv_blocks: Sequence[int] = ()

    def points(self, base: Settings) -> list[Settings]:
        """A token budget is an axis of `chunked` alone. Raises UserError."""
        found: dict[Settings, None] = {}
        for scheduler, batch, blocks in product(
            self.schedulers or (base.scheduler,),
            self.max_batch or (base.max_batch,),
            self.kv_blocks or (base.kv_blocks,),
        ):
            other = base.changed(scheduler=scheduler, max_batch=batch, kv_blocks=blocks)
            budgets = self.chunk_tokens if scheduler == "chunked" else ()
            for budget in budgets or (base.chunk_tokens,):
                found[other.changed(chunk_tokens=budget)] = None
        if len(found) > MOST_POINTS:
            raise UserError(f"the grid has {len(found):,} points: use at most {MOST_POINTS}")
        return list(found)


def sweep(
    predictor: Predictor,
    base: Settings,
    grid: Grid,
    targets: Targets,
    draws: int = DRAWS,
    tell: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """rows: one a point, in the grid's order; best: the one by BEST_BY, None where none meets it.

    skipped: points at which a request could never run, with the reason.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    points = grid.points(base)
    for number, settings in enumerate(points):
        try:
            predicted = predictor.predict(settings, draws)
        except UserError as error:
            skipped.append(f"{label(asdict(settings))}: {error}")
        else:
            rows.append({"predicted": predicted, "meets_target": targets.met(predicted)})
        tell(number + 1)
    return {
        "rows": rows,
        "best": _best([row for row in rows if row["meets_target"]]),
        "best_by": BEST_BY,
        "targets": asdict(targets),
        "skipped": skipped,
    }


def _best(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Rates within 1% of the highest differ by noise alone: the worst gap decides among them."""
    if not rows:
        return None
    rates = [row["predicted"]["output_tokens_per_s"] or 0.0 for row in rows]
    fast = [row for row, rate in zip(rows, rates, strict=True) if rate >= 0.99 * max(rates)]
    return min(fast, key=lambda row: row["predicted"]["itl_s"]["max"] or 0.0)
