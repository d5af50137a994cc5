"""Devices and models that can be asked about without having them: data/catalogue/*.toml.

Rates are dense datasheet rates, never those with sparsity; what is not published is None.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.errors import UserError, unknown
from engine.physics.hf_config import read_config
from engine.physics.model_spec import ModelSpec

_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Device(BaseModel):
    """One device as its datasheet has it.

    peak_flops: FLOP/s by dtype of the math; bandwidth: bytes/s of its memory; link_bandwidth:
    bytes/s per direction to the other devices of its machine; matmul_fraction: the part of the
    bf16 peak that a large matmul was seen to reach. `sources` names where each value is from.
    """

    model_config = _STRICT

    name: str
    title: str
    peak_flops: dict[str, float]
    bandwidth: float = Field(gt=0)
    memory_bytes: float = Field(gt=0)
    link_bandwidth: float | None = Field(default=None, gt=0)
    matmul_fraction: float | None = Field(default=None, gt=0, le=1)
    sources: dict[str, str]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if "bf16" not in self.peak_flops or min(self.peak_flops.values()) <= 0:
            raise ValueError("peak_flops needs bf16, and rates above 0")
        _need_sources(self, ("peak_flops", "bandwidth", "memory_bytes"))
        return self

    def peak(self, math_dtype: str) -> float:
        """Peak FLOP/s of a dtype of the math; UserError names those the device is known to have."""
        if math_dtype in self.peak_flops:
            return self.peak_flops[math_dtype]
        raise UserError(
            f"no {math_dtype} rate is known for {self.title}: use {' or '.join(self.peak_flops)} "
            "for the math (weights may be in fewer bytes than the math)"
        )


class CatalogueModel(BaseModel):
    """A model as published, and its shape where that is known.

    total_params and active_params: as published (of a config.json: as counted). spec None: no
    formula for its KV cache, and `unknown` says why.
    """

    model_config = _STRICT

    name: str
    title: str
    total_params: float = Field(gt=0)
    active_params: float = Field(gt=0)
    spec: ModelSpec | None = None
    unknown: str | None = None
    max_context: int | None = Field(default=None, ge=1)
    sources: dict[str, str]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.active_params > self.total_params:
            raise ValueError("active_params is more than total_params")
        if (self.spec is None) == (self.unknown is None):
            raise ValueError("give either a shape or why it is unknown")
        _need_sources(self, ("total_params", "active_params", "spec"))
        return self


def _need_sources(entry: Device | CatalogueModel, needed: tuple[str, ...]) -> None:
    optional = ("link_bandwidth", "matmul_fraction", "max_context")
    given = [name for name in optional if getattr(entry, name, None) is not None]
    for field in (*needed, *given):
        if getattr(entry, field) is not None and field not in entry.sources:
            raise ValueError(f"{entry.name}: {field} has no source")


@cache
def devices() -> Mapping[str, Device]:
    """All devices by name."""
    entries = _read("devices.toml").items()
    return MappingProxyType({name: Device(name=name, **raw) for name, raw in entries})


@cache
def models() -> Mapping[str, CatalogueModel]:
    """All models by name."""
    return MappingProxyType({name: _model(name, raw) for name, raw in _read("models.toml").items()})


def find_device(name: str) -> Device:
    """A device by name; UserError lists the known ones and the nearest."""
    try:
        return devices()[name]
    except KeyError:
        raise unknown("device", name, devices()) from None


def find_model(name_or_path: str) -> CatalogueModel:
    """A model by name, or of a Hugging Face config.json (the file or its folder).

    Raises UserError: an unknown name lists the known ones and the nearest.
    """
    if name_or_path in models():
        return models()[name_or_path]
    path = Path(name_or_path)
    if path.suffix == ".json" or os.path.exists(path):  # which, unlike Path's, never raises
        return _of_config(path)
    raise unknown("model", name_or_path, models())


def _of_config(path: Path) -> CatalogueModel:
    """Nobody published a count for it, so the parameters are as counted."""
    spec = read_config(path)
    source = f"counted from {path}"
    return CatalogueModel(
        name=spec.name,
        title=spec.name,
        total_params=spec.total_params,
        active_params=spec.active_params,
        spec=spec,
        max_context=spec.max_context,
        sources=dict.fromkeys(("total_params", "active_params", "spec", "max_context"), source),
    )


def _read(file: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("data") / "catalogue" / file).read_text(encoding="utf-8"))


def _model(name: str, raw: dict[str, Any]) -> CatalogueModel:
    shape = raw.pop("shape", None)
    if shape is None:
        return CatalogueModel(name=name, **raw)
    spec = ModelSpec.from_dict({"name": name, **shape})
    return CatalogueModel(name=name, spec=spec, max_context=spec.max_context, **raw)
