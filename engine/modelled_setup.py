"""From settings to a model on a device of the catalogue, with the room for its KV cache. No torch.

Fractions of peak that nobody states are what the device was seen to reach, where that is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from engine.config import AUTO, EngineConfig
from engine.errors import UserError
from engine.physics.catalogue import CatalogueModel, Device, devices, find_device, find_model
from engine.physics.deployment import Deployment
from engine.physics.model_spec import ModelSpec, dtype_bytes
from engine.physics.whatif import WhatIf, answer

USABLE_MEMORY = 0.9
MATMUL_FRACTION = 0.75
BANDWIDTH_FRACTION = 0.85
OVERHEAD_S = 100e-6
_ASSUMED = "assumed: nothing measured is in the catalogue"
_STATED = "stated when the run was started"


@dataclass(frozen=True, slots=True)
class ModelledSetup:
    """A model on a deployment.

    capacity: KV blocks of block_size tokens that fit beside the weights; offered: of them.

    sources: where the fractions and the overhead come from.
    """

    model: CatalogueModel
    spec: ModelSpec
    deployment: Deployment
    block_size: int
    capacity: int
    offered: int
    sources: dict[str, str]

    @property
    def device_title(self) -> str:
        """'NVIDIA H100 SXM 80 GB', '8 x NVIDIA …'."""
        count, title = self.deployment.devices, self.deployment.device.title
        return f"{count} x {title}" if count > 1 else title

    def assumptions(self) -> dict[str, Any]:
        """All that shapes a step's time, each with its source."""
        stated = self.deployment.assumptions()
        memory = f"{USABLE_MEMORY:.0%} of memory for weights and KV cache, the rest for activations"
        sources = {**stated["sources"], **self.sources, "usable_memory": memory}
        return {
            **stated,
            "usable_memory": USABLE_MEMORY,
            "kv_copies": self.deployment.kv_copies(self.spec),
            "sources": sources,
        }


def modelled_setup(config: EngineConfig) -> ModelledSetup:
    """Raises UserError: unknown names suggest the nearest, and what cannot fit says what would."""
    device, model = _device(config), find_model(config.model)
    if model.spec is None:
        raise UserError(
            f"{model.title} cannot be run on a modelled device, only asked about with whatif: "
            f"{model.unknown}"
        )
    deployment = _deployment(config, device)
    deployment.check(model.spec)
    capacity = _capacity(config, model, model.spec, deployment)
    offered = capacity if config.kv_blocks is None else config.kv_blocks
    if offered > capacity:
        raise UserError(
            f"KV blocks is {offered:,}: use 1 to {capacity:,}, the blocks of {config.block_size} "
            f"tokens that fit beside the weights of {model.title} in {deployment.weight_dtype}"
        )
    sources = _sources(config, device)
    return ModelledSetup(
        model, model.spec, deployment, config.block_size, capacity, offered, sources
    )


def _device(config: EngineConfig) -> Device:
    if config.device is None:
        raise UserError(f"a modelled run needs a --device: use one of {', '.join(devices())}")
    return find_device(config.device)


def _deployment(config: EngineConfig, device: Device) -> Deployment:
    weights = "bf16" if config.dtype == AUTO else config.dtype
    wide = weights if dtype_bytes(weights) >= 2 else "bf16"
    return Deployment(
        device=device,
        weight_dtype=weights,
        kv_dtype=wide if config.kv_dtype == AUTO else config.kv_dtype,
        math_dtype=wide if config.math_dtype == AUTO else config.math_dtype,
        tensor_parallel=config.tensor_parallel,
        expert_parallel=config.expert_parallel,
        matmul_fraction=_first(config.matmul_fraction, device.matmul_fraction, MATMUL_FRACTION),
        bandwidth_fraction=_first(config.bandwidth_fraction, BANDWIDTH_FRACTION),
        overhead_s=_first(config.overhead_s, OVERHEAD_S),
        link_bandwidth=config.link_bandwidth,
    )


def _first(*values: float | None) -> float:
    """The first that is known."""
    return next(value for value in values if value is not None)


def _sources(config: EngineConfig, device: Device) -> dict[str, str]:
    measured = device.sources.get("matmul_fraction", _ASSUMED)
    given = {
        "matmul_fraction": (config.matmul_fraction, measured),
        "bandwidth_fraction": (config.bandwidth_fraction, _ASSUMED),
        "overhead_s": (config.overhead_s, _ASSUMED),
        "link_bandwidth": (config.link_bandwidth, device.sources.get("link_bandwidth", _ASSUMED)),
    }
    return {name: otherwise if v is None else _STATED for name, (v, otherwise) in given.items()}


def _capacity(
    config: EngineConfig, model: CatalogueModel, spec: ModelSpec, deployment: Deployment
) -> int:
    """KV blocks beside the weights. Raises UserError where not even one fits."""
    room_bytes = deployment.kv_capacity_bytes(spec, USABLE_MEMORY)
    block_bytes = config.block_size * spec.kv_bytes_per_token(dtype_bytes(deployment.kv_dtype))
    blocks = math.floor(room_bytes / block_bytes)
    if blocks < 1:
        context = config.block_size if room_bytes else 0
        asked = WhatIf(model, deployment, usable_memory=USABLE_MEMORY, context=context)
        raise UserError(f"{model.title} does not fit: {answer(asked)['sentences']['fit']}")
    return blocks
