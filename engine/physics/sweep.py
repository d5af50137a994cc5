"""A grid of what-ifs as rows, and the point that meets a target best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from engine.errors import UserError
from engine.physics.catalogue import Device
from engine.physics.max_batch import largest_batch
from engine.physics.memory_budget import budget
from engine.physics.whatif_step import field_step

if TYPE_CHECKING:
    from engine.physics.whatif import WhatIf

BATCHES = tuple(2**n for n in range(11))
MOST_POINTS = 20_000


@dataclass(frozen=True, slots=True)
class Grid:
    """Values of each axis; an empty axis keeps the question's own. MOST_POINTS at most."""

    batches: Sequence[int] = BATCHES
    dtypes: Sequence[str] = ()
    devices: Sequence[Device] = ()
    tensor_parallels: Sequence[int] = ()

    def __post_init__(self) -> None:
        axes = (self.batches, self.dtypes, self.devices, self.tensor_parallels)
        points = 1
        for axis in axes:
            points *= max(1, len(axis))
        if points > MOST_POINTS:
            raise UserError(f"the grid has {points:,} points: use at most {MOST_POINTS:,}")


def sweep(w: WhatIf, grid: Grid) -> dict[str, Any]:
    """rows: one a point, in the grid's order; best: of those that fit and meet the target.

    The target is the question's tpot_slo_s (none: whatever fits). The best point has the most
    tokens/s of one device, so that deployments of several sizes compare; with several equal ones
    the first. best None: no point meets it. deployments: the largest batch of each, also between
    the grid's batches, and its limit. skipped: deployments that cannot be, with the reason.
    Raises UserError for a TPOT target over prefills.
    """
    if w.phase == "prefill" and w.tpot_slo_s is not None:
        raise UserError("a TPOT target is about decode: leave it out of a sweep over prefills")
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    deployments: list[dict[str, Any]] = []
    for ask in _deployments(w, grid, skipped):
        rows += [_row(replace(ask, batch=batch)) for batch in grid.batches or (w.batch,)]
        deployments.append(_deployment(ask))
    meeting = [row for row in rows if row["meets_target"]]
    best = max(meeting, key=lambda row: row["tokens_per_s_per_device"], default=None)
    return {
        "model": w.model.name,
        "phase": w.phase,
        "context": w.context,
        "tpot_slo_s": w.tpot_slo_s,
        "rows": rows,
        "deployments": deployments,
        "best": best,
        "best_by": "most tokens/s per device among the points that fit and meet the target",
        "skipped": skipped,
    }


def _deployments(w: WhatIf, grid: Grid, skipped: list[str]) -> Iterator[WhatIf]:
    d = w.deployment
    axes = (
        grid.devices or (d.device,),
        grid.dtypes or (d.weight_dtype,),
        grid.tensor_parallels or (d.tensor_parallel,),
    )
    for device, dtype, parallel in product(*axes):
        try:
            changed = replace(d, device=device, weight_dtype=dtype, tensor_parallel=parallel)
            other = replace(w, deployment=changed)
            field_step(other)
        except UserError as error:
            skipped.append(f"{parallel} x {device.name} in {dtype}: {error}")
        else:
            yield other


def _deployment(w: WhatIf) -> dict[str, Any]:
    most = largest_batch(w)
    return {
        **_names(w),
        "max_batch": most.batch if most else None,
        "max_batch_limit": most.limit if most else None,
    }


def _names(w: WhatIf) -> dict[str, Any]:
    d = w.deployment
    return {
        "device": d.device.name,
        "devices": d.devices,
        "tensor_parallel": d.tensor_parallel,
        "dtype": d.weight_dtype,
    }


def _row(w: WhatIf) -> dict[str, Any]:
    d, step, memory = w.deployment, field_step(w), budget(w)
    in_time = w.tpot_slo_s is None or step.t_step_s <= w.tpot_slo_s * (1 + 1e-9)
    return {
        **_names(w),
        "batch": w.batch,
        "t_step_s": step.t_step_s,
        "t_compute_s": step.t_compute_s,
        "t_memory_s": step.t_memory_s,
        "bound": step.bound,
        "tokens_per_s": step.tokens_per_s,
        "tokens_per_s_per_device": step.tokens_per_s / d.devices,
        "needed_bytes": memory.needed_bytes,
        "memory_bytes": memory.memory_bytes,
        "fits": memory.fits,
        "meets_target": memory.fits and in_time,
        "per_million_output_tokens": _price(w, step.tokens_per_s),
    }


def _price(w: WhatIf, tokens_per_s: float) -> float | None:
    if w.price_per_hour is None:
        return None
    return w.price_per_hour * w.deployment.devices / 3600 / tokens_per_s * 1e6
