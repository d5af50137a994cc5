"""What a run's peaks are, and what one of its decode steps says about any other batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import known
from app.figures.plane import Decode, Peaks
from engine.errors import UserError
from engine.physics.model_spec import ModelSpec, dtype_bytes
from engine.physics.roofline import DecodeModel


def peaks_of(run: Mapping[str, Any]) -> Peaks | None:
    """The run's peaks, None where the source reported none."""
    flops, bandwidth = known(run["peak_flops"]), known(run["peak_bandwidth"])
    if not flops or not bandwidth:
        return None
    return Peaks(flops, bandwidth, str(run["peaks_source"] or "source unknown"))


def config_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Everything else that shaped the run; {} where its source says nothing."""
    try:
        value = json.loads(run.get("config") or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def spec_of(config: Mapping[str, Any]) -> ModelSpec | None:
    """The model's shape as the run recorded it; None where it did not."""
    try:
        return ModelSpec.from_dict(config["spec"])
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of a model's layers: all of their weights, bytes, and how many are picked.

    Rows pick evenly and on their own, as everywhere in the cost model.
    """

    bytes: float
    experts: int
    per_token: int

    @property
    def missed_share(self) -> float:
        """Of an expert's weights, what one row leaves unread: 1 − k/E."""
        return 1 - self.per_token / self.experts

    def touched(self, rows: float) -> float:
        """Experts of a layer that so many rows are expected to read (`MoE.touched`)."""
        missed: float = self.missed_share**rows
        return self.experts * (1 - missed)


def experts_of(run: Mapping[str, Any], spec: ModelSpec | None) -> Experts | None:
    """None for a dense model, and where the run's dtype has no known width."""
    if spec is None or spec.moe is None:
        return None
    try:
        width = dtype_bytes(str(run["dtype"]))
    except UserError:
        return None
    moe = spec.moe
    return Experts(spec.all_expert_params * width, moe.experts, moe.experts_per_token)


def decode_of(costs: pd.DataFrame, run: Mapping[str, Any]) -> Decode | None:
    """The cost model of decoding, read off a counted step (`queries.roofline.decode_costs`).

    Weights are in bytes as counted (embedding rows left to the step), so one "parameter" is a byte.
    Of a mixture of experts the step read those that its rows were expected to touch.
    """
    if costs.empty:
        return None
    row = costs.iloc[0]
    context = known(row["context_tokens"])
    if not context:
        return None
    experts = experts_of(run, spec_of(config_of(run)))
    unread = experts.bytes * experts.missed_share ** int(row["decode_seqs"]) if experts else 0.0
    model = DecodeModel(
        total_params=float(row["weight_bytes"]) + unread,
        active_params=float(row["matmul_flops"]) / 2,
        bytes_per_param=1.0,
        kv_bytes_per_token=float(row["kv_bytes"]) / context,
        attention_flops_per_position=float(row["attention_flops"]) / context,
        expert_params=experts.bytes if experts else 0.0,
        missed_share=experts.missed_share if experts else 0.0,
    )
    return Decode(model, context)
