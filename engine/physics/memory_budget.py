"""Where a deployment's memory goes: weights, KV cache, activations; and what would fit. Bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.errors import UserError
from engine.physics.catalogue import devices
from engine.physics.model_spec import DTYPE_BYTES, ModelSpec, dtype_bytes
from engine.physics.whatif_step import decode_model, kv_token_bytes, new_tokens

if TYPE_CHECKING:
    from engine.physics.whatif import WhatIf

_ACTIVATION_BYTES = 2
_LOGIT_BYTES = 4
_MOST_DEVICES = 1024
NARROWER = ("bf16", "fp8", "int4")


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory of a whole deployment, bytes. kv_bytes: after the step; None where unknown.

    activation_bytes is an estimate (see `activations`), None where the shape is unknown; it is
    shown beside the rest and not part of what must fit.
    """

    memory_bytes: float
    usable_bytes: float
    weight_bytes: float
    kv_bytes: float | None
    kv_bytes_per_sequence: float | None
    activation_bytes: float | None

    @property
    def kv_room_bytes(self) -> float:
        """What the weights leave for the KV cache; 0 where they do not fit themselves."""
        return max(0.0, self.usable_bytes - self.weight_bytes)

    @property
    def needed_bytes(self) -> float:
        return self.weight_bytes + (self.kv_bytes or 0.0)

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.usable_bytes

    @property
    def sequences(self) -> int | None:
        """How many sequences of this length fit; None where their KV is unknown or nothing."""
        if not self.kv_bytes_per_sequence:
            return None if self.weight_bytes <= self.usable_bytes else 0
        if self.weight_bytes > self.usable_bytes:
            return 0
        return math.floor(self.kv_room_bytes / self.kv_bytes_per_sequence + 1e-9)

    def to_json(self) -> dict[str, Any]:
        free = self.usable_bytes - self.needed_bytes - (self.activation_bytes or 0.0)
        names = ("memory_bytes", "usable_bytes", "weight_bytes", "kv_bytes", "activation_bytes")
        parts = {name: getattr(self, name) for name in names}
        return {
            **parts,
            "free_bytes": free,
            "kv_room_bytes": self.kv_room_bytes,
            "kv_bytes_per_sequence": self.kv_bytes_per_sequence,
            "sequences_that_fit": self.sequences,
        }


def budget(w: WhatIf) -> Budget:
    """The memory that the question's batch needs once its step is done."""
    each = kv_per_sequence(w)
    memory = w.deployment.memory_bytes
    return Budget(
        memory_bytes=memory,
        usable_bytes=memory * w.usable_memory,
        weight_bytes=resident_bytes(w),
        kv_bytes=None if each is None else each * w.batch,
        kv_bytes_per_sequence=each,
        activation_bytes=activations(w),
    )


def resident_bytes(w: WhatIf) -> float:
    """Weights over all devices: N_total · b, and what expert parallel holds more than once."""
    d, spec, b = w.deployment, w.model.spec, dtype_bytes(w.deployment.weight_dtype)
    repeated = 0.0 if spec is None else d.weight_bytes(spec) - round(spec.total_params * b)
    return w.model.total_params * b + repeated


def kv_per_sequence(w: WhatIf) -> float | None:
    """KV cache that one sequence holds: its context, and a prefill's prompt; None where unknown.

    Layers with a window hold what it shows, in a rolling buffer (Mistral 7B, 2023, section 2).
    """
    held = w.context + (new_tokens(w) if w.phase == "prefill" else 0)
    known = kv_token_bytes(w) is not None or not held
    return decode_model(w).sequence_bytes(held) if known else None


def activations(w: WhatIf) -> float | None:
    """Rows · (2 · hidden + the widest of q + k + v and gate + up) · 2 bytes, and logits in fp32.

    An estimate of what lives at once in a layer without fusion; None where the shape is unknown.
    """
    spec = w.model.spec
    if spec is None:
        return None
    rows = w.batch * new_tokens(w)
    attention = (spec.heads + 2 * spec.kv_heads) * spec.head_dim
    widest = max(attention, 2 * _mlp_width(spec))
    layer = rows * (2 * spec.hidden + widest) * _ACTIVATION_BYTES
    return layer + w.batch * spec.vocab * _LOGIT_BYTES


def _mlp_width(spec: ModelSpec) -> int:
    moe = spec.moe
    if moe is None:
        return spec.intermediate
    return moe.experts_per_token * moe.expert_intermediate + moe.shared_intermediate


@dataclass(frozen=True, slots=True)
class Fit:
    """A change that makes it fit. change: devices, dtype, device or batch."""

    change: str
    device: str
    title: str
    devices: int
    dtype: str
    batch: int
    memory_bytes: float
    needed_bytes: float


def what_would_fit(w: WhatIf) -> list[Fit]:
    """The least change of each kind that makes the question's weights and KV fit."""
    if budget(w).fits:
        return []
    return [*_fewer_sequences(w), *_more_devices(w), *_narrower(w), *_other_devices(w)]


def _fewer_sequences(w: WhatIf) -> list[Fit]:
    most = budget(w).sequences
    return [_fit("batch", replace(w, batch=most))] if most else []


def _more_devices(w: WhatIf) -> list[Fit]:
    """Tensor parallel over the next power of two that holds it."""
    count = w.deployment.tensor_parallel
    while count < _MOST_DEVICES:
        count *= 2
        fits = _try("devices", w, tensor_parallel=count)
        if fits:
            return fits
    return []


def _narrower(w: WhatIf) -> list[Fit]:
    now = dtype_bytes(w.deployment.weight_dtype)
    narrower = [dtype for dtype in NARROWER if DTYPE_BYTES[dtype] < now]
    return [fit for dtype in narrower for fit in _try("dtype", w, weight_dtype=dtype)]


def _other_devices(w: WhatIf) -> list[Fit]:
    """As many of another device of the catalogue, the smallest memory first."""
    sizes = sorted(devices().values(), key=lambda device: device.memory_bytes)
    return [fit for device in sizes for fit in _try("device", w, device=device)]


def _try(change: str, w: WhatIf, **changes: Any) -> list[Fit]:
    """The change if it can be and makes it fit. A link is stated where none is known, since only
    memory is asked about."""
    try:
        link = w.deployment.link or 1.0
        other = replace(w, deployment=replace(w.deployment, link_bandwidth=link, **changes))
        return [_fit(change, other)] if budget(other).fits else []
    except UserError:  # this model cannot be cut so, or this device not compute so
        return []


def _fit(change: str, w: WhatIf) -> Fit:
    d, room = w.deployment, budget(w)
    return Fit(
        change=change,
        device=d.device.name,
        title=d.device.title,
        devices=d.devices,
        dtype=d.weight_dtype,
        batch=w.batch,
        memory_bytes=room.memory_bytes,
        needed_bytes=room.needed_bytes,
    )
