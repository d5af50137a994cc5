"""Runs a step on Triton kernels: on a GPU, or on a CPU in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.backends.cuda_graphs import DecodeGraphs, graph_sizes
from engine.backends.decode_state import DecodeInputs, DecodeState
from engine.backends.device_copy import Download, Upload
from engine.backends.quantised_layers import linear_maker
from engine.backends.triton_inputs import Sampling, StepInputs, step_inputs
from engine.backends.triton_model import TritonModel
from engine.batch import ScheduledBatch
from engine.models.weights import TensorSource
from engine.quantisation import few_rows_limit, math_dtype
from kernels.sampling.triton_impl import sample

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
KV_DTYPES = {**DTYPES, "fp8": torch.float8_e4m3fn}

Inputs = StepInputs | DecodeInputs


class TritonRunner:
    """Weights, cache and sampling on one device.

    A step of nothing but decodes runs from the device's own state (see DecodeState), and on a GPU
    as one CUDA graph; whatever else is flattened, copied over and launched kernel by kernel.
    """

    kernels: ClassVar[str] = "triton"

    def __init__(
        self,
        source: TensorSource,
        *,
        dtype: str,
        kv_dtype: str,
        kv_slots: int,
        block_size: int,
        max_batch: int,
        device: torch.device,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        c, math = source.config, DTYPES[math_dtype(dtype)]
        self.device, self.block_size, self._dtype = device, block_size, dtype
        self.model = TritonModel(c, source.get, math, device, linear_maker(dtype, math), progress)
        shape = (c.layers, kv_slots, 2, c.kv_heads, c.head_dim)
        # Not written, not read: rows of the cache that hold nothing may hold anything.
        self.cache = torch.empty(shape, dtype=KV_DTYPES[kv_dtype], device=device)
        width = -(-min(c.max_context, kv_slots) // block_size)
        self.state = DecodeState(max_batch, width, block_size, device)
        self._upload, self._tokens = Upload(device), Download(device, max_batch)
        self._graphs: DecodeGraphs | None = None

    def capture(self, progress: Callable[[float], None] = lambda _: None) -> None:
        """Record a graph for each batch size; needs a GPU, and about a second of compiling."""
        self.state.forget()
        sizes = graph_sizes(self.state.most, few_rows_limit(self._dtype))
        self._graphs = DecodeGraphs(self._decode, sizes, progress)
        for column in self.state.columns.values():
            column.zero_()

    # --- a step ---

    def prepare(self, batch: ScheduledBatch, pad_token: int) -> Inputs:
        if self.state.takes(batch):
            size = (
                batch.num_decodes if self._graphs is None else self._graphs.size(batch.num_decodes)
            )
            return self.state.prepare(batch, size, self._upload)
        self.state.forget()
        return step_inputs(batch, pad_token, self.block_size, self._upload)

    @torch.inference_mode()
    def forward(self, inputs: Inputs) -> Tensor:
        """Logits [sampled, vocab] on the device, in order of the batch; gone with the next call.

        Returns when they are computed. Their tokens are sampled behind them: see `tokens`.
        """
        if isinstance(inputs, DecodeInputs):
            logits, tokens = self._run_decodes(inputs)
            done = self._mark()
        else:
            logits = self.model.forward(inputs.rows, self.cache, inputs.attend)
            done = self._mark()
            tokens = _sampled(logits, inputs.sampling)
        self._tokens.start(tokens)
        if done is not None:
            done.synchronize()
        return logits

    def tokens(self) -> NDArray[np.int64]:
        """What was sampled from the last forward pass's logits; waits for it."""
        return self._tokens.wait()

    def _run_decodes(self, inputs: DecodeInputs) -> tuple[Tensor, Tensor]:
        run = self._decode if self._graphs is None else self._graphs
        logits, tokens = run(inputs.size)
        return logits[: inputs.count], tokens[: inputs.count]

    def _mark(self) -> torch.cuda.Event | None:
        """The place in the device's queue behind all that was launched; None on a CPU."""
        if self.device.type != "cuda":
            return None
        mark: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        mark.record()
        return mark

    def _decode(self, size: int) -> tuple[Tensor, Tensor]:
        """Logits and tokens of the state's first rows, and the next step made ready."""
        rows = self.state.rows(size)
        logits = self.model.forward(rows, self.cache, partial(self.state.attend, size))
        tokens = _sampled(logits, self.state.sampling(size))
        self.state.advance(size, tokens)
        return logits, tokens


def _sampled(logits: Tensor, how: Sampling) -> Tensor:
    if not len(logits):
        return logits.new_empty(0, dtype=torch.int64)
    return sample(logits, how.temperature, how.top_p, how.seeds, how.steps)
