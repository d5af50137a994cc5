"""The state of the What-if page: a question in the words of `stepscope whatif`, as an address."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlencode

from app.panels.view import Params
from engine.errors import UserError, unknown
from engine.physics.catalogue import CatalogueModel, find_device, models
from engine.physics.deployment import Deployment
from engine.physics.model_spec import DTYPE_BYTES
from engine.physics.overrides import with_params, with_rates
from engine.physics.whatif import WhatIf

OPTIONS = {"tpot_slo_ms": "tpot-slo"}
"""Options of the command that are not spelled like the field."""
COMPARED = ("a100-sxm-80gb", "h100-sxm", "h200", "b200", "mi300x")
COMPARED_DTYPES = ("fp16", "fp8")
ALWAYS = ("model", "device", "dtype", "batch", "context", "phase")
"""What an address says even where it is the default."""
_COMMAND = (*ALWAYS, "kv_dtype", "math_dtype", "prompt_tokens", "tpot_slo_ms")
"""What a command says always, since its defaults are not those of the page."""


@dataclass(frozen=True, slots=True)
class State:
    """Every choice of the page. Fields without a default of their own start as the first article's
    case: a 70B model in fp16 on one H100, one sequence without context."""

    model: str = "llama-3.1-70b"
    device: str = "h100-sxm"
    dtype: str = "fp16"
    kv_dtype: str = "fp16"
    math_dtype: str = "bf16"
    batch: int = 1
    context: int = 0
    phase: str = "decode"
    prompt_tokens: int = 4096
    tensor_parallel: int = 1
    expert_parallel: int = 1
    tpot_slo_ms: float | None = 50.0
    price_per_hour: float | None = None
    matmul_fraction: float = 1.0
    bandwidth_fraction: float = 1.0
    overhead_ms: float = 0.0
    link_bandwidth_gb: float | None = None
    usable_memory: float = 1.0
    params: float | None = None
    active_params: float | None = None
    peak_tflops: float | None = None
    bandwidth_gb: float | None = None
    memory_gb: float | None = None
    kv_bytes_per_token: float | None = None
    output_tokens: int | None = None
    composition: str = "overlap"
    devices: tuple[str, ...] = COMPARED
    dtypes: tuple[str, ...] = COMPARED_DTYPES


def option(field: str) -> str:
    """The name of a field in an address and on the command line."""
    return OPTIONS.get(field, field.replace("_", "-"))


DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(State)}
_OPTIONAL = {name for name, value in DEFAULTS.items() if value is None} | {"tpot_slo_ms"}


def parse(params: Params) -> State:
    """The state of an address; UserError names the option, what it was, and what is allowed."""
    given = {}
    for name, default in DEFAULTS.items():
        text = params.get(option(name))
        if text is not None:
            given[name] = _value(name, text.strip(), default)
    return State(**given)


def _value(name: str, text: str, default: Any) -> Any:
    if isinstance(default, tuple):
        return tuple(part for part in text.split(",") if part)
    if isinstance(default, str):
        return text
    if not text and name in _OPTIONAL:
        return None
    return _number(name, text, isinstance(default, int) or name == "output_tokens")


def _number(name: str, text: str, whole: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise UserError(f"{option(name)} is '{text[:40]}': write {kind}")
    return int(value) if whole else value


def to_params(state: State) -> dict[str, str]:
    """The shortest parameters that reproduce the state."""
    out = {}
    for name, default in DEFAULTS.items():
        value = getattr(state, name)
        if value != default or name in ALWAYS:
            out[option(name)] = text_of(value)
    return out


def text_of(value: Any) -> str:
    """A value as an address has it; None is empty."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def address(state: State) -> str:
    """The query string that reproduces the page."""
    return urlencode(to_params(state), safe=",")


_ONLY_HERE = ("devices", "dtypes")


def command(state: State) -> str:
    """The command line that prints the same answer."""
    words = ["stepscope", "whatif"]
    for name, default in DEFAULTS.items():
        value = getattr(state, name)
        wanted = name in _COMMAND or value != default
        if wanted and value is not None and name not in _ONLY_HERE:
            words += [f"--{option(name)}", shlex.quote(text_of(value))]
    return " ".join(words)


def question(state: State) -> WhatIf:
    """What the state asks; UserError where something cannot be."""
    return WhatIf(
        model=with_params(_model(state.model), state.params, state.active_params),
        deployment=deployment(state),
        batch=state.batch,
        context=state.context,
        phase=state.phase,
        prompt_tokens=state.prompt_tokens,
        tpot_slo_s=_scaled(state.tpot_slo_ms, 1e-3),
        price_per_hour=state.price_per_hour,
        composition=state.composition,
        usable_memory=state.usable_memory,
        kv_bytes_per_token=state.kv_bytes_per_token,
        output_tokens=state.output_tokens,
    )


def _model(name: str) -> CatalogueModel:
    """Of the catalogue only: an address that somebody sends must not name files of this machine."""
    known = models()
    if name not in known:
        raise unknown("model", name, known)
    return known[name]


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def deployment(state: State) -> Deployment:
    """The devices that the state asks about."""
    for dtype in (state.dtype, state.kv_dtype):
        if dtype not in DTYPE_BYTES:
            raise unknown("dtype", dtype, DTYPE_BYTES)
    return Deployment(
        device=with_rates(
            find_device(state.device),
            state.math_dtype,
            _scaled(state.peak_tflops, 1e12),
            _scaled(state.bandwidth_gb, 1e9),
            _scaled(state.memory_gb, 1e9),
        ),
        weight_dtype=state.dtype,
        kv_dtype=state.kv_dtype,
        math_dtype=state.math_dtype,
        tensor_parallel=state.tensor_parallel,
        expert_parallel=state.expert_parallel,
        matmul_fraction=state.matmul_fraction,
        bandwidth_fraction=state.bandwidth_fraction,
        overhead_s=state.overhead_ms / 1e3,
        link_bandwidth=_scaled(state.link_bandwidth_gb, 1e9),
    )
