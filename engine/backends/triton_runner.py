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
from engine.backends.kernel_marks import Marks
from engine.backends.kernel_times import KernelTime, Mark, unmarked
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
    as one CUDA graph with sampling behind it; whatever else is flattened, copied over and launched
    kernel by kernel.
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
        self._graphs: DecodeGraphs[Tensor] | None = None
        self._marks: Marks | None = None

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
    def forward(self, inputs: Inputs, timed: bool = False) -> Tensor:
        """Logits [sampled, vocab] on the device, in order of the batch; gone with the next call.

        Returns when they are computed. Their tokens are sampled behind them: see `tokens`.
        timed: `kernel_times` then tells of this call, which launches one by one: nothing of a
        graph's kernels can be seen from outside.
        """
        self._marks = Marks(self.device) if timed else None
        mark = self._marks or unmarked
        if isinstance(inputs, DecodeInputs):
            logits = self._run_decodes(inputs, mark)
            done = self._mark()
            tokens = _sampled(logits, self.state.sampling(inputs.size))
            self.state.advance(inputs.size, tokens)
            logits, tokens = logits[: inputs.count], tokens[: inputs.count]
        else:
            logits = self.model.forward(inputs.rows, self.cache, inputs.attend, mark)
            done = self._mark()
            tokens = _sampled(logits, inputs.sampling)
        self._tokens.start(tokens)
        if done is not None:
            done.synchronize()
        return logits

    def tokens(self) -> NDArray[np.int64]:
        """What was sampled from the last forward pass's logits; waits for it."""
        return self._tokens.wait()

    def kernel_times(self) -> list[KernelTime]:
        """Of the last forward pass, if it was timed; sampling is not part of it."""
        return self._marks.times() if self._marks else []

    def _run_decodes(self, inputs: DecodeInputs, mark: Mark) -> Tensor:
        if self._graphs is None or self._marks is not None:
            return self._decode(inputs.size, mark)
        return self._graphs(inputs.size)

    def _mark(self) -> torch.cuda.Event | None:
        """The place in the device's queue behind all that was launched; None on a CPU."""
        if self.device.type != "cuda":
            return None
        mark: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        mark.record()
        return mark

    def _decode(self, size: int, mark: Mark = unmarked) -> Tensor:
        """Logits of the state's first rows."""
        rows = self.state.rows(size)
        return self.model.forward(rows, self.cache, partial(self.state.attend, size), mark)


def _sampled(logits: Tensor, how: Sampling) -> Tensor:
    if not len(logits):
        return logits.new_empty(0, dtype=torch.int64)
    return sample(logits, how.temperature, how.top_p, how.seeds, how.steps, kind=how.kind)
