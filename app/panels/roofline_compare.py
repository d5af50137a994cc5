"""What the Roofline page draws beside the run: roofs of another dtype, and of another device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.figures.data import known
from app.figures.other_roofs import Other
from app.figures.plane import Decode, Peaks
from app.panels.modelled import short_device
from app.panels.roofline_cost import config_of, spec_of
from app.panels.view import Params
from engine.physics.catalogue import Device, devices
from engine.physics.model_spec import DTYPE_BYTES, ModelSpec

USUAL = "bf16"


@dataclass(frozen=True, slots=True)
class Rates:
    """Peak FLOP/s by dtype of a run's own device, their source, and which of them the run's is."""

    flops: Mapping[str, float]
    source: str
    own: str | None


def rates_of(run: Mapping[str, Any]) -> Rates:
    """What this machine's calibration measured, or the datasheet of a modelled device has."""
    config = config_of(run)
    flops, source = _measured(config), "measured"
    if not flops:
        flops, source = _published(config), "datasheet"
    peak = known(run["peak_flops"])
    same = (d for d, rate in flops.items() if peak and abs(rate / peak - 1) < 1e-9)
    # Rates of two dtypes may be equal: then the run's is the one it is named by.
    own = str(run["dtype"])
    own_is = own if flops.get(own) == peak else next(same, None)
    return Rates(flops, source, own_is)


def _measured(config: Mapping[str, Any]) -> dict[str, float]:
    found = (config.get("calibration") or {}).get("dtypes") or {}
    return {name: float(peak["peak_flops"]) for name, peak in found.items()}


def _published(config: Mapping[str, Any]) -> dict[str, float]:
    """Of all devices that share the model, as the run's own peak is."""
    stated = config.get("assumptions") or {}
    device = devices().get(str(stated.get("device")))
    if device is None:
        return {}
    return {name: rate * int(stated.get("devices", 1)) for name, rate in device.peak_flops.items()}


def dtype_choices(run: Mapping[str, Any], device: str) -> list[str]:
    """Dtypes of the math that the run's device, or the one beside it, has a peak for; its own is
    left out."""
    rates, beside = rates_of(run), devices().get(device)
    every = [*rates.flops, *(beside.peak_flops if beside else ())]
    return [d for d in dict.fromkeys(every) if d != rates.own]


def device_choices() -> dict[str, str]:
    """Name and title of every device of the catalogue."""
    return {name: short_device(d.title) for name, d in devices().items()}


def others(
    run: Mapping[str, Any], peaks: Peaks | None, decode: Decode | None, params: Params
) -> list[Other]:
    """params: compare_dtype and compare_device; names that are not known are none."""
    dtype = params.get("compare_dtype", "")
    device = devices().get(params.get("compare_device", ""))
    if not dtype and device is None:
        return []
    rates = rates_of(run)
    other = _with_weights(decode, run, dtype)
    found = []
    if peaks and dtype in rates.flops and dtype != rates.own:
        theirs = Peaks(rates.flops[dtype], peaks.bandwidth, rates.source)
        found.append(Other(theirs, dtype, other, is_device=False))
    if device is not None:
        found.append(_device(device, dtype, rates.own, decode, other))
    return found


def _device(
    device: Device, dtype: str, own: str | None, decode: Decode | None, other: Decode | None
) -> Other:
    """In the chosen dtype where the device has it, else in the run's, else in bf16."""
    name = next(d for d in (dtype, own, USUAL) if d in device.peak_flops)
    peaks = Peaks(device.peak_flops[name], device.bandwidth, "datasheet")
    title = f"{short_device(device.title)} {name}"
    return Other(peaks, title, other if name == dtype else decode, is_device=True)


def _with_weights(decode: Decode | None, run: Mapping[str, Any], dtype: str) -> Decode | None:
    """The same model with weights in that dtype; None where its shape or the width is unknown."""
    spec = spec_of(config_of(run))
    if decode is None or spec is None or dtype not in DTYPE_BYTES:
        return None
    width = DTYPE_BYTES[dtype]
    model = replace(
        decode.model,
        total_params=_read_params(spec) * width,
        expert_params=spec.all_expert_params * width,
    )
    return Decode(model, decode.context)


def _read_params(spec: ModelSpec) -> int:
    """Those that a step reads where it needs every expert: all but the embedding's rows."""
    return spec.linear_params + spec.norm_params + spec.head_params
