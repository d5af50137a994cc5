"""Questions in one line, for the tests of what-ifs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.physics.catalogue import find_device, find_model
from engine.physics.deployment import Deployment
from engine.physics.memory_budget import budget
from engine.physics.whatif import WhatIf
from engine.physics.whatif_step import field_step

DEPLOYED = {"math_dtype", "tensor_parallel", "expert_parallel", "matmul_fraction"} | {
    *("bandwidth_fraction", "overhead_s", "link_bandwidth", "kv_dtype")
}


def ask(
    model: str = "llama-3.1-8b", device: str = "h100-sxm", dtype: str = "bf16", **more: Any
) -> WhatIf:
    """Fields of WhatIf and of Deployment mixed; KV cache and math are in bf16."""
    deployed: dict[str, Any] = {"math_dtype": "bf16", "kv_dtype": "bf16"}
    deployed |= {name: more.pop(name) for name in DEPLOYED & set(more)}
    return WhatIf(find_model(model), Deployment(find_device(device), dtype, **deployed), **more)


def meets(w: WhatIf, batch: int) -> bool:
    """Tried out: it fits, and its step is within the target."""
    tried = replace(w, batch=max(batch, 1))
    in_time = w.tpot_slo_s is None or field_step(tried).t_step_s <= w.tpot_slo_s * (1 + 1e-9)
    return batch > 0 and budget(tried).fits and in_time
