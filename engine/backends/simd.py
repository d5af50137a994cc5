"""Runs a step on the vector kernels: fills their record of addresses and calls them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.backends.kernel_times import KernelTime
from engine.backends.simd_memory import Buffer, Ints, address, aligned
from engine.batch import ScheduledBatch
from engine.models.config import LlamaConfig
from engine.models.simd_weights import SimdWeights
from kernels.attention.cache_layout import PAGE_TOKENS, page_bytes
from kernels.attention.numba_impl import scratch_bytes
from kernels.linear.numba_impl import (
    KIND_BF16,
    KIND_F32,
    KIND_INT4,
    KIND_INT8,
    TILE_BYTES,
    LinearField,
)
from kernels.linear.pack import INT4_GROUP, PANEL, Packed
from kernels.llama_step.fields import (
    LAYER_FIELDS,
    STEP_FIELDS,
    TIMES_HEADER,
    TIMES_SIZE,
    LayerField,
    Part,
    StepField,
    StepKernel,
)
from kernels.llama_step.numba_impl import forward_address
from kernels.simd.memory import huge
from kernels.simd.pool import run_on_all

_BF16_ROWS = ("bf16", "int4")  # weights whose matmul takes bfloat16 rows; others take float32
_KINDS = {"bf16": KIND_BF16, "fp32": KIND_F32, "int8": KIND_INT8, "int4": KIND_INT4}


@dataclass(slots=True)
class SimdInputs:
    """tokens [rows], spans [chunks, 4] and sampled [n], int64; keep: what they point to."""

    tokens: Ints
    spans: Ints
    sampled: Ints
    keep: list[Ints]


def build_inputs(batch: ScheduledBatch, pad_token: int) -> SimdInputs:
    """Rows in the order of the batch, padding rows of a chunk behind its tokens."""
    tokens: list[int] = []
    spans: list[tuple[int, int, int, int]] = []
    sampled: list[int] = []
    keep: list[Ints] = []
    for chunk in batch.chunks:
        sequence, first = chunk.sequence, len(tokens)
        assert sequence.slots is not None
        pages = sequence.slots[: chunk.start + chunk.rows : PAGE_TOKENS] // PAGE_TOKENS
        keep.append(pages)
        spans.append((first, chunk.rows, chunk.start, address(pages)))
        tokens += sequence.token_ids[chunk.start : chunk.end]
        if chunk.padding:
            tokens += [pad_token] * chunk.padding
        if chunk.samples:
            sampled.append(first + chunk.tokens - 1)
    return SimdInputs(
        np.array(tokens, dtype=np.int64),
        np.array(spans, dtype=np.int64),
        np.array(sampled, dtype=np.int64),
        keep,
    )


class SimdCache:
    """The paged KV cache, one array a layer; pages of 16 tokens."""

    def __init__(self, config: LlamaConfig, slots: int, dtype: str) -> None:
        """ValueError unless slots is a multiple of 16."""
        if slots % PAGE_TOKENS:
            raise ValueError(f"a cache of {slots} slots is not whole pages of {PAGE_TOKENS}")
        self.bf16 = dtype == "bf16"
        element = 2 if self.bf16 else 4
        self.page_bytes = page_bytes(config.head_dim, element)
        self.head_bytes = slots // PAGE_TOKENS * self.page_bytes
        size = config.kv_heads * self.head_bytes
        self.layers = [huge(size) for _ in range(config.layers)]


class _Table:
    """The kernels' view of one set of weights: a record for each layer and for the head."""

    def __init__(self, weights: SimdWeights, cache: SimdCache) -> None:
        self._keep: list[object] = [weights]
        self.act_bf16 = weights.dtype in _BF16_ROWS
        self.head_bf16 = weights.head.dtype in _BF16_ROWS
        self.layers = np.zeros((len(weights.layers), LAYER_FIELDS), dtype=np.int64)
        for row, layer, pages in zip(self.layers, weights.layers, cache.layers, strict=True):
            row[LayerField.ATTN_NORM] = layer.attn_norm.data_ptr()
            row[LayerField.MLP_NORM] = layer.mlp_norm.data_ptr()
            row[LayerField.CACHE] = address(pages)
            for name, packed in layer.linears.items():
                row[LayerField[name.upper()]] = self._record(packed)
        self.head = self._record(weights.head)
        self.head_panels = weights.head.panels
        self.weights = weights

    def _record(self, packed: Packed) -> int:
        record = np.zeros(len(LinearField), dtype=np.int64)
        record[LinearField.KIND] = _KINDS[packed.dtype]
        record[LinearField.WEIGHTS] = packed.data.data_ptr()
        record[LinearField.PANEL_BYTES] = packed.panel_bytes
        record[LinearField.PANELS] = packed.panels
        record[LinearField.INNER] = packed.inner
        if packed.scales is not None:
            record[LinearField.SCALES] = packed.scales.data_ptr()
        self._keep.append(record)
        return address(record)


class SimdModel:
    """Weights and buffers of the vector kernels.

    few_rows: weights that run while a step has at most `few_rows_limit` rows; `weights` run all
    other steps. Quantised weights win only while memory is what a step waits for.
    """

    def __init__(
        self,
        config: LlamaConfig,
        weights: SimdWeights,
        cache: SimdCache,
        *,
        few_rows: SimdWeights | None = None,
        few_rows_limit: int = 0,
    ) -> None:
        self.config, self.few_rows_limit = config, few_rows_limit
        self.cache = cache
        self._many = _Table(weights, cache)
        self._few = _Table(few_rows, cache) if few_rows else None
        self._step = np.zeros(STEP_FIELDS, dtype=np.int64)
        self._counter = aligned(8)
        widest = max(config.hidden, config.heads * config.head_dim)
        qkv = (config.heads + 2 * config.kv_heads) * config.head_dim
        self._x = Buffer(4 * _panels(config.hidden))
        self._last_x = Buffer(4 * _panels(config.hidden))
        self._act = Buffer(4 * _panels(widest))
        self._qkv = Buffer(4 * _panels(max(qkv, config.intermediate)))
        self._q = Buffer(4 * _panels(config.heads * config.head_dim))
        self._logits = Buffer(4 * PANEL * self._many.head_panels)
        self._scratch = Buffer(0)
        self._inputs: SimdInputs | None = None
        self._times = np.zeros(TIMES_SIZE, dtype=np.int64)
        self._fill_constants()

    def _fill_constants(self) -> None:
        step, c = self._step, self.config
        constants = {
            StepField.LAYERS: c.layers,
            StepField.HIDDEN: c.hidden,
            StepField.X_STRIDE: self._x.stride,
            StepField.HEADS: c.heads,
            StepField.KV_HEADS: c.kv_heads,
            StepField.HEAD_DIM: c.head_dim,
            StepField.EPS: int(np.float32(c.rms_norm_eps).view(np.uint32)),
            StepField.ACT_STRIDE: self._act.stride,
            StepField.QKV_STRIDE: self._qkv.stride,
            StepField.Q_STRIDE: self._q.stride,
            StepField.KV_BF16: int(self.cache.bf16),
            StepField.HEAD_BYTES: self.cache.head_bytes,
            StepField.PAGE_BYTES: self.cache.page_bytes,
            StepField.LOGITS_STRIDE: self._logits.stride,
            StepField.COUNTER: address(self._counter),
        }
        for field, value in constants.items():
            step[field] = value

    def forward(self, inputs: SimdInputs, timed: bool = False) -> Tensor:
        """Logits float32 [sampled, vocab]; they are overwritten by the next call.

        timed: `kernel_times` then tells of this call. It changes no result.
        """
        step, rows, sampled = self._step, len(inputs.tokens), len(inputs.sampled)
        self._inputs = inputs  # run_again reads them
        self._choose_weights(rows)
        self._make_room(rows, sampled)
        step[StepField.ROWS] = rows
        step[StepField.TOKENS] = address(inputs.tokens)
        step[StepField.SPANS] = address(inputs.spans)
        step[StepField.SPAN_COUNT] = len(inputs.spans)
        step[StepField.SAMPLED] = address(inputs.sampled)
        step[StepField.SAMPLED_COUNT] = sampled
        if timed:
            self._times[:] = 0
            step[StepField.TIMES] = address(self._times)
        self.run_again(Part.ALL)
        step[StepField.TIMES] = 0
        return torch.from_numpy(self._logits.view(sampled, self.config.vocab))

    def kernel_times(self) -> list[KernelTime]:
        """Of the last timed call, in the order of the step."""
        rows = self._times[TIMES_HEADER:].reshape(-1, 2).tolist()
        return [
            KernelTime(kernel.name.lower(), calls, ns)
            for kernel, (ns, calls) in zip(StepKernel, rows, strict=True)
            if calls
        ]

    def run_again(self, parts: Part) -> None:
        """Some ops of the last step once more, to see how long they take."""
        self._step[StepField.PARTS] = int(parts)
        run_on_all(forward_address(), address(self._step))

    def _choose_weights(self, rows: int) -> None:
        few = self._few is not None and rows <= self.few_rows_limit
        table = self._few if few and self._few else self._many
        step, weights = self._step, table.weights
        step[StepField.LAYER_TABLE] = address(table.layers)
        step[StepField.HEAD] = table.head
        step[StepField.ACT_BF16] = int(table.act_bf16)
        step[StepField.HEAD_BF16] = int(table.head_bf16)
        step[StepField.EMBEDDING] = weights.embedding.data_ptr()
        step[StepField.EMBEDDING_BF16] = int(weights.embedding_bf16)
        step[StepField.FINAL_NORM] = weights.final_norm.data_ptr()
        step[StepField.COS] = weights.cos.data_ptr()
        step[StepField.SIN] = weights.sin.data_ptr()

    def _make_room(self, rows: int, sampled: int) -> None:
        step = self._step
        step[StepField.X] = self._x.rows(rows)
        step[StepField.ACT] = self._act.rows(rows)
        step[StepField.QKV] = self._qkv.rows(rows)
        step[StepField.Q] = self._q.rows(rows)
        step[StepField.LAST_X] = self._last_x.rows(max(1, sampled))
        step[StepField.LOGITS] = self._logits.rows(max(1, sampled))
        size = self._scratch_bytes(rows)
        if size > self._scratch.stride:
            self._scratch = Buffer(size)
        step[StepField.SCRATCH] = self._scratch.rows(torch.get_num_threads())
        step[StepField.SCRATCH_BYTES] = self._scratch.stride

    def _scratch_bytes(self, rows: int) -> int:
        """Of one thread: attention's, or a tile and what int4 sums of each row."""
        c = self.config
        groups = max(c.hidden, c.intermediate, c.heads * c.head_dim) // INT4_GROUP
        few = min(rows, self.few_rows_limit) if self._few else rows
        return max(scratch_bytes(c.head_dim), TILE_BYTES + 4 * few * groups)


def _panels(width: int) -> int:
    return -(-width // PANEL) * PANEL
