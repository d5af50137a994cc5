"""The record of a run whose steps really execute, on a CPU or a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine.config import EngineConfig
from engine.memory import KVSize, weight_bytes
from engine.physics.model_spec import ModelSpec
from engine.row_invariance import RowInvariance
from telemetry.clock import now_ns, wall_now
from telemetry.schema import RunRecord


def real_run(
    config: EngineConfig,
    spec: ModelSpec,
    size: KVSize,
    invariance: RowInvariance,
    *,
    device: str,
    peak_flops: float,
    peak_bandwidth: float,
    more: Mapping[str, Any],
) -> RunRecord:
    """It begins now. peak_flops, FLOP/s, and peak_bandwidth, bytes/s: measured on the device.

    more: what the configuration holds beside what all backends have.
    """
    details = {
        "engine": config.to_json(),
        **more,
        "kv_blocks": size.offered,
        "kv_blocks_capacity": size.capacity,
        "total_params": spec.total_params,
        "weight_bytes": round(weight_bytes(config, spec)),
        "spec": asdict(spec),
        **asdict(invariance),
    }
    return RunRecord(
        started_wall=wall_now(),
        started_ns=now_ns(),
        clock="real",
        source="embedded",
        model=spec.name,
        device=device,
        backend=config.backend,
        dtype=config.dtype,
        kv_dtype=config.kv_dtype,
        peak_flops=peak_flops,
        peak_bandwidth=peak_bandwidth,
        peaks_source="measured",
        ttft_slo_s=config.ttft_slo_s,
        tpot_slo_s=config.tpot_slo_s,
        config=json.dumps(details),
    )
