"""`stepscope whatif`: what one model step costs on a device that is not here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from app.options_command import options_command
from app.whatif_options import Options
from engine.errors import UserError, unknown

if TYPE_CHECKING:
    from engine.physics.catalogue import CatalogueModel, Device
    from engine.physics.sweep import Grid
    from engine.physics.whatif import WhatIf

EXAMPLE = "Example: stepscope whatif --model llama-3.1-70b --device h100-sxm --dtype fp16 --batch 8"
_WIDE = ("bf16", "fp16", "fp32")


def whatif_command() -> Callable[..., None]:
    """The command, with Options' fields as its options."""
    about = "One model step on a device of the catalogue: reading against computing."
    return options_command("whatif", about, Options, run)


def run(o: Options) -> None:
    """Print the answer, several side by side, or a grid. Raises UserError."""
    from app.whatif_report import print_answer
    from app.whatif_tables import print_side_by_side, print_sweep
    from engine.physics.sweep import sweep
    from engine.physics.whatif import answer

    if o.sweep:
        found = sweep(question(o), grid(o))
        _print(o, found, lambda: print_sweep(found))
        return
    answers = [answer(w) for w in questions(o)]
    if len(answers) == 1:
        _print(o, answers[0], lambda: print_answer(answers[0]))
    else:
        _print(o, {"compare": answers}, lambda: print_side_by_side(answers))


def _print(o: Options, found: dict[str, Any], for_people: Callable[[], None]) -> None:
    if o.as_json:
        print(json.dumps(found))
    else:
        for_people()


def questions(o: Options) -> Iterator[WhatIf]:
    """One for each device and dtype that was asked about."""
    if o.batches or o.tensor_parallels:
        raise UserError("--batches and --tensor-parallels belong to a grid: add --sweep")
    devices, dtypes = _names(o.devices) or [o.device], _names(o.dtypes) or [o.dtype]
    if o.price_per_hour is not None and len(devices) > 1:
        raise UserError("--price-per-hour is of one device: leave --devices out")
    for device, dtype in product(devices, dtypes):
        yield question(o, device, dtype)


def question(o: Options, device: str | None = None, dtype: str | None = None) -> WhatIf:
    """What the options ask, of one device and dtype. Raises UserError."""
    from engine.physics.deployment import Deployment
    from engine.physics.whatif import WhatIf

    dtype = _dtype("dtype", dtype or o.dtype)
    at_least_16_bits = dtype if dtype in _WIDE else "bf16"
    math_dtype = o.math_dtype or at_least_16_bits
    deployment = Deployment(
        device=_device(o, device or o.device, math_dtype),
        weight_dtype=dtype,
        kv_dtype=_dtype("kv-dtype", o.kv_dtype or at_least_16_bits),
        math_dtype=math_dtype,
        tensor_parallel=o.tensor_parallel,
        expert_parallel=o.expert_parallel,
        matmul_fraction=o.matmul_fraction,
        bandwidth_fraction=o.bandwidth_fraction,
        overhead_s=_scaled("--overhead-ms", o.overhead_ms or None, 1e-3) or 0.0,
        link_bandwidth=_scaled("--link-bandwidth-gb", o.link_bandwidth_gb, 1e9),
    )
    return WhatIf(
        model=_model(o),
        deployment=deployment,
        batch=o.batch,
        context=o.context,
        phase=o.phase,
        prompt_tokens=o.prompt_tokens,
        tpot_slo_s=_scaled("--tpot-slo", o.tpot_slo, 1e-3),
        price_per_hour=o.price_per_hour,
        composition=o.composition,
        usable_memory=o.usable_memory,
        kv_bytes_per_token=_scaled("--kv-bytes-per-token", o.kv_bytes_per_token, 1),
        output_tokens=o.output_tokens,
    )


def grid(o: Options) -> Grid:
    """The axes of a sweep; what was not given stays as the question has it."""
    from engine.physics.catalogue import find_device
    from engine.physics.sweep import BATCHES, Grid

    math_dtype = o.math_dtype or "bf16"
    devices = [_device(o, find_device(name).name, math_dtype) for name in _names(o.devices)]
    dtypes = [_dtype("dtype", name) for name in _names(o.dtypes)]
    batches = _wholes("--batches", o.batches) or BATCHES
    return Grid(batches, dtypes, devices, _wholes("--tensor-parallels", o.tensor_parallels))


def _model(o: Options) -> CatalogueModel:
    """A model by name, by its size alone, or by name with another size."""
    from engine.physics.catalogue import find_model
    from engine.physics.overrides import of_size, with_params

    if o.model is not None:
        return with_params(find_model(o.model), o.params, o.active_params)
    if o.params is None:
        raise UserError("which model? Give --model with a name, or --params with a size")
    return of_size(o.params, o.active_params)


def _device(o: Options, name: str, math_dtype: str) -> Device:
    from engine.physics.catalogue import find_device
    from engine.physics.overrides import with_rates

    return with_rates(
        find_device(name),
        math_dtype,
        _scaled("--peak-tflops", o.peak_tflops, 1e12),
        _scaled("--bandwidth-gb", o.bandwidth_gb, 1e9),
        _scaled("--memory-gb", o.memory_gb, 1e9),
    )


def _dtype(kind: str, name: str) -> str:
    from engine.physics.model_spec import DTYPE_BYTES

    if name not in DTYPE_BYTES:
        raise unknown(kind, name, DTYPE_BYTES)
    return name


def _scaled(option: str, value: float | None, unit: float) -> float | None:
    """An amount in SI units. UserError names the option."""
    if value is None:
        return None
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{option} is {value:g}: use more than 0")
    return value * unit


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _wholes(option: str, text: str | None) -> list[int]:
    """Whole numbers from 1 with commas between. UserError names the option."""
    names = _names(text)
    if any(not name.isdecimal() or int(name) < 1 for name in names):
        raise UserError(f"{option} is '{text}': use whole numbers from 1, such as 1,2,4")
    return [int(name) for name in names]
