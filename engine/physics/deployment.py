"""A model on devices that are not here: what one step takes, and every number that shaped it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.errors import UserError
from engine.physics.catalogue import Device
from engine.physics.cost import StepCost
from engine.physics.links import link_time_s
from engine.physics.model_spec import ModelSpec, dtype_bytes

MAX_PARALLEL = 1024
MAX_OVERHEAD_S = 10.0
FORMULA = (
    "t_step = max(t_compute / matmul_fraction, t_memory / bandwidth_fraction) + t_link + overhead"
)


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """Modelled times of a step, seconds.

    t_compute_s, t_memory_s and its parts t_weights_s and t_kv_s are at the datasheet's peaks;
    t_link_s is what devices spend exchanging; t_step_s puts them together.
    """

    t_compute_s: float
    t_memory_s: float
    t_link_s: float
    overhead_s: float
    t_step_s: float
    t_weights_s: float
    t_kv_s: float

    @property
    def floor_s(self) -> float:
        """The least time the step can take at the datasheet's peaks."""
        return max(self.t_compute_s, self.t_memory_s)


@dataclass(frozen=True)
class Deployment:
    """`tensor_parallel` · `expert_parallel` devices that serve one copy of a model.

    Tensor parallel cuts every matrix (Shoeybi et al., Megatron-LM, 2019). Expert parallel spreads
    the experts, and the sequences; the other weights are then on each of its groups (DeepSeek-V3,
    2024, section 3.4). matmul_fraction and bandwidth_fraction: the part of the datasheet's peaks
    that is reached; overhead_s: seconds a step that neither term holds. link_bandwidth: bytes/s
    per direction, None for the device's own. Raises UserError for what cannot be.
    """

    device: Device
    weight_dtype: str
    kv_dtype: str
    math_dtype: str
    tensor_parallel: int = 1
    expert_parallel: int = 1
    matmul_fraction: float = 1.0
    bandwidth_fraction: float = 1.0
    overhead_s: float = 0.0
    link_bandwidth: float | None = None

    def __post_init__(self) -> None:
        dtype_bytes(self.weight_dtype)
        dtype_bytes(self.kv_dtype)
        self.device.peak(self.math_dtype)
        for name in ("tensor_parallel", "expert_parallel"):
            _whole(name, getattr(self, name), MAX_PARALLEL)
        for name in ("matmul_fraction", "bandwidth_fraction"):
            _within(name, getattr(self, name), 0, 1, above=True)
        _within("overhead_s", self.overhead_s, 0, MAX_OVERHEAD_S)
        if self.link_bandwidth is not None:
            _within("link_bandwidth", self.link_bandwidth, 0, 1e15, above=True)
        if self.devices > 1 and self.link is None:
            raise UserError(
                f"no link bandwidth is known for {self.device.title}: state one (bytes/s per "
                "direction), or use one device"
            )

    @cached_property
    def devices(self) -> int:
        """How many devices."""
        return self.tensor_parallel * self.expert_parallel

    @cached_property
    def peak_flops(self) -> float:
        """FLOP/s of all devices in the dtype of the math."""
        return self.devices * self.device.peak(self.math_dtype)

    @cached_property
    def bandwidth(self) -> float:
        """Memory bandwidth of all devices, bytes/s."""
        return self.devices * self.device.bandwidth

    @cached_property
    def memory_bytes(self) -> float:
        """Memory of all devices, bytes."""
        return self.devices * self.device.memory_bytes

    @cached_property
    def link(self) -> float | None:
        """Bytes/s per direction between devices: the stated one, else the device's."""
        return self.link_bandwidth or self.device.link_bandwidth

    def check(self, spec: ModelSpec) -> None:
        """Raise UserError for a model that cannot be cut so."""
        if spec.heads % self.tensor_parallel:
            raise UserError(
                f"tensor_parallel is {self.tensor_parallel}, but {spec.name} has {spec.heads} "
                "query heads: use a divisor of that"
            )
        experts = spec.moe.experts if spec.moe else 1
        if experts % self.expert_parallel:
            has = f"{experts} experts" if spec.moe else "no experts"
            raise UserError(
                f"expert_parallel is {self.expert_parallel}, but {spec.name} has {has}: use "
                f"{'a divisor of that' if spec.moe else '1'}"
            )

    def kv_copies(self, spec: ModelSpec) -> float:
        """Cache that the fullest device holds, over an even share of it.

        A KV head cannot be cut: with more devices than heads it is held more than once, and MLA's
        one latent, which serves every head, on every device.
        """
        heads = 1 if spec.mla else spec.kv_heads
        return math.ceil(heads / self.tensor_parallel) * self.tensor_parallel / heads

    def weight_bytes(self, spec: ModelSpec) -> int:
        """All weights over all devices, bytes: N_total · b, and what expert parallel repeats."""
        self.check(spec)
        repeated = (self.expert_parallel - 1) * (spec.total_params - spec.all_expert_params)
        return round((spec.total_params + repeated) * dtype_bytes(self.weight_dtype))

    def kv_capacity_bytes(self, spec: ModelSpec, usable: float = 0.9) -> int:
        """KV cache that fits beside the weights, bytes as one device would count them.

        usable: the part of memory that an engine may take, the rest is for activations. 0 where
        the weights do not fit.
        """
        room = self.memory_bytes * usable - self.weight_bytes(spec)
        return max(0, math.floor(room / self.kv_copies(spec)))

    def repeated_weight_bytes(self, spec: ModelSpec) -> float:
        """What a step reads more because expert parallel repeats all but the experts, bytes."""
        shared = spec.shared_linear_params + spec.norm_params
        return (self.expert_parallel - 1) * shared * dtype_bytes(self.weight_dtype)

    def step_times(self, spec: ModelSpec, cost: StepCost, rows: int) -> DeviceTimes:
        """What a counted step of `rows` rows takes here. Raises UserError as `check` does."""
        self.check(spec)
        repeated = self.repeated_weight_bytes(spec) if rows else 0
        t_weights_s = (cost.weight_bytes + repeated) / self.bandwidth
        t_kv_s = cost.kv_bytes * self.kv_copies(spec) / self.bandwidth
        t_memory_s = t_weights_s + t_kv_s
        t_compute_s = cost.flops / self.peak_flops
        t_link_s = link_time_s(spec, rows, self.tensor_parallel, self.expert_parallel, self.link)
        roof_s = max(t_compute_s / self.matmul_fraction, t_memory_s / self.bandwidth_fraction)
        return DeviceTimes(
            t_compute_s=t_compute_s,
            t_memory_s=t_memory_s,
            t_link_s=t_link_s,
            overhead_s=self.overhead_s,
            t_step_s=roof_s + t_link_s + self.overhead_s,
            t_weights_s=t_weights_s,
            t_kv_s=t_kv_s,
        )

    def assumptions(self) -> dict[str, Any]:
        """All that shapes a number, with the sources: rates are of one device, SI units."""
        return {
            "device": self.device.name,
            "device_title": self.device.title,
            "devices": self.devices,
            "tensor_parallel": self.tensor_parallel,
            "expert_parallel": self.expert_parallel,
            "weight_dtype": self.weight_dtype,
            "kv_dtype": self.kv_dtype,
            "math_dtype": self.math_dtype,
            "peak_flops": self.device.peak(self.math_dtype),
            "bandwidth": self.device.bandwidth,
            "memory_bytes": self.device.memory_bytes,
            "link_bandwidth": self.link if self.devices > 1 else None,
            "matmul_fraction": self.matmul_fraction,
            "bandwidth_fraction": self.bandwidth_fraction,
            "overhead_s": self.overhead_s,
            "formula": FORMULA,
            "sources": dict(self.device.sources),
        }


def _whole(name: str, value: int, most: int) -> None:
    """Raise UserError unless value is one of 1 to most."""
    if not isinstance(value, int) or not 1 <= value <= most:
        raise UserError(f"{name} is {value}: use a whole number from 1 to {most}")


def _within(name: str, value: float, least: float, most: float, above: bool = False) -> None:
    """Raise UserError unless least <= value <= most (least < value where `above`)."""
    if not (least < value if above else least <= value) or not value <= most:
        span = f"more than {least:g} and at most {most:g}" if above else f"{least:g} to {most:g}"
        raise UserError(f"{name} is {value}: use {span}")
