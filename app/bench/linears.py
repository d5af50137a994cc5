"""The linear layers alone: every weight matrix of the model once, as a decode step reads them."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.models.llama import LlamaModel
from telemetry.clock import now_ns, seconds

WARM_UP = 3


@torch.inference_mode()
def linears_time_s(model: LlamaModel, rows: int, calls: int) -> list[float]:
    """Seconds of all linear layers and the LM head on `rows` rows, for each of `calls` passes."""
    x, heads, mlp = _inputs(model, rows)
    times = []
    for i in range(WARM_UP + calls):
        started = now_ns()
        for layer in model.layers:
            layer.qkv(x)
            layer.out.add_to(heads, x)
            layer.gate_up(x)
            layer.down.add_to(mlp, x)
        model.head(x)
        if i >= WARM_UP:
            times.append(seconds(now_ns() - started))
    return times


def _inputs(model: LlamaModel, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    c = model.config
    torch.manual_seed(0)
    widths = (c.hidden, c.heads * c.head_dim, c.intermediate)
    x, heads, mlp = (torch.randn(rows, width).to(model.dtype) for width in widths)
    return x, heads, mlp
