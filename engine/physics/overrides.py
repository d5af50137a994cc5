"""Numbers given in place of the catalogue's: a model by its size, a device by its rates."""

from __future__ import annotations

from typing import Any

from engine.errors import UserError
from engine.physics.catalogue import CatalogueModel, Device

GIVEN = "given with the question"


def of_size(total_params: float, active_params: float | None = None) -> CatalogueModel:
    """A model known by its size alone: no KV cache, no attention. UserError for no size."""
    active = total_params if active_params is None else active_params
    _check_params(total_params, active)
    sparse = "" if active == total_params else f", {active / 1e9:g}B active"
    return CatalogueModel(
        name=f"{total_params / 1e9:g}b",
        title=f"A model of {total_params / 1e9:g}B parameters{sparse}",
        total_params=total_params,
        active_params=active,
        unknown="only its size is given",
        sources={"total_params": GIVEN, "active_params": GIVEN},
    )


def with_params(
    model: CatalogueModel, total_params: float | None, active_params: float | None
) -> CatalogueModel:
    """The model with other counts, such as the round 8e9 of an article; the shape stays.

    A dense model's active parameters follow its total. UserError for no size.
    """
    if total_params is None and active_params is None:
        return model
    total = model.total_params if total_params is None else total_params
    dense = model.active_params == model.total_params
    kept = total if dense else model.active_params
    active = kept if active_params is None else active_params
    _check_params(total, active)
    counts = {"total_params": total, "active_params": active}
    title = f"{model.title} taken as {total / 1e9:g}B parameters"
    sources = {**model.sources, **dict.fromkeys(counts, GIVEN)}
    return CatalogueModel(**{**dict(model), **counts, "title": title, "sources": sources})


def _check_params(total: float, active: float) -> None:
    for name, value in (("parameters", total), ("active parameters", active)):
        if not 0 < value <= 1e16:
            raise UserError(f"{name} is {value:g}: use more than 0 and at most 1e16")
    if active > total:
        raise UserError(f"active parameters is {active:g}: use at most all of them, {total:g}")


def with_rates(
    device: Device,
    math_dtype: str,
    peak_flops: float | None = None,
    bandwidth: float | None = None,
    memory_bytes: float | None = None,
) -> Device:
    """The device with other rates, SI units: its title and sources say so. UserError for none."""
    rates = {"peak_flops": peak_flops, "bandwidth": bandwidth, "memory_bytes": memory_bytes}
    changes: dict[str, Any] = {name: rate for name, rate in rates.items() if rate is not None}
    if not changes:
        return device
    for name, rate in changes.items():
        if not 0 < rate <= 1e21:
            raise UserError(f"{name} is {rate:g}: use more than 0 and at most 1e21")
    sources = {**device.sources, **dict.fromkeys(changes, GIVEN)}
    title = f"{device.title} with {', '.join(_words(name, rate) for name, rate in changes.items())}"
    if peak_flops is not None:
        changes["peak_flops"] = {**device.peak_flops, math_dtype: peak_flops}
    return Device(**{**dict(device), **changes, "title": title, "sources": sources})


_UNITS = {
    "peak_flops": (1e12, "TFLOP/s"),
    "bandwidth": (1e9, "GB/s"),
    "memory_bytes": (1e9, "GB"),
}


def _words(name: str, rate: float) -> str:
    scale, unit = _UNITS[name]
    return f"{rate / scale:g} {unit}"
