"""The linear layers alone: every weight matrix of the model once, as a decode step reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.models.llama import LlamaModel
from kernels.linear import MIN_ROWS
from telemetry.clock import now_ns, seconds

WARM_UP = 3


def linears_time_s(runner: Any, calls: int) -> list[float]:
    """Seconds of all linear layers and the LM head at batch 1, for each of `calls` passes.

    runner: a backend's, whose last step was one of decode at batch 1.
    """
    run = _run_of(runner)
    times = []
    for i in range(WARM_UP + calls):
        started = now_ns()
        run()
        if i >= WARM_UP:
            times.append(seconds(now_ns() - started))
    return times


def _run_of(runner: Any) -> Callable[[], None]:
    if runner.kernels == "vector":
        from kernels.llama_step.fields import Part

        return lambda: runner.model.run_again(Part.LINEARS | Part.HEAD)
    return _torch_linears(runner.model)


def _torch_linears(model: LlamaModel) -> Callable[[], None]:
    x, heads, mlp = _inputs(model)

    @torch.inference_mode()
    def run() -> None:
        for layer in model.layers:
            layer.qkv(x)
            layer.out.add_to(heads, x)
            layer.gate_up(x)
            layer.down.add_to(mlp, x)
        model.head(x)

    return run


def _inputs(model: LlamaModel) -> tuple[Tensor, Tensor, Tensor]:
    """One row is filled up to MIN_ROWS, as a step does."""
    c = model.config
    torch.manual_seed(0)
    widths = (c.hidden, c.heads * c.head_dim, c.intermediate)
    x, heads, mlp = (torch.randn(MIN_ROWS, width).to(model.dtype) for width in widths)
    return x, heads, mlp
