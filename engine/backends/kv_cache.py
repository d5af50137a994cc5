"""The paged KV cache and attention over it, in torch on a CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.backends.inputs import DecodeGroup, PrefillChunk, StepInputs
from engine.backends.kernel_times import Mark, unmarked
from engine.models.config import LlamaConfig
from kernels.attention import chunk_attention, decode_attention, kv_views

_CACHE_LINE_BYTES = 64


class KVCache:
    """One tensor [slots, 2 * kv_heads * head_dim] a layer; a block is block_size rows."""

    def __init__(self, config: LlamaConfig, slots: int, dtype: torch.dtype) -> None:
        self.kv_heads, self.head_dim = config.kv_heads, config.head_dim
        self.dtype = dtype
        width = 2 * config.kv_heads * config.head_dim
        self.layers = [_lazy_zeros(slots, width, dtype) for _ in range(config.layers)]
        self._buffer = torch.empty(0, width, dtype=dtype)

    def attention(self, inputs: StepInputs, mark: Mark = unmarked) -> StepAttention:
        """The attention of one step."""
        return StepAttention(self, inputs, mark)

    def shaped(self, rows: Tensor, batch: int) -> Tensor:
        """[batch * context, width] -> [batch, context, 2, kv_heads, head_dim]."""
        return rows.view(batch, -1, 2, self.kv_heads, self.head_dim)

    def gather(self, layer: int, slots: Tensor) -> Tensor:
        """Rows of scattered slots, copied into one buffer that stays in the CPU's cache."""
        if self._buffer.shape[0] < slots.shape[0]:
            self._buffer = torch.empty(slots.shape[0], self.layers[0].shape[1], dtype=self.dtype)
        out = self._buffer[: slots.shape[0]]
        torch.index_select(self.layers[layer], 0, slots, out=out)
        return out


def _lazy_zeros(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Zeros that take no memory until they are written: most of a cache is never used.

    Zeros, not garbage, since masked slots are multiplied by zero and 0 * nan is nan. Starts at a
    cache line, as torch's own tensors do.
    """
    size = rows * width * dtype.itemsize
    memory = np.zeros(size + _CACHE_LINE_BYTES, dtype=np.uint8)
    first = -memory.ctypes.data % _CACHE_LINE_BYTES
    return torch.from_numpy(memory[first : first + size]).view(dtype).view(rows, width)


class StepAttention:
    """Writes K and V, then attends: decodes in groups, prefill chunks one by one."""

    def __init__(self, cache: KVCache, inputs: StepInputs, mark: Mark = unmarked) -> None:
        self.cache, self.inputs, self._mark = cache, inputs, mark

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """q: [rows, heads, dim], kv: [rows, width] -> [rows, heads * dim]."""
        cache = self.cache
        rows, heads, dim = q.shape
        cache.layers[layer].index_copy_(0, self.inputs.write_slots, kv.to(cache.dtype))
        self._mark("rope_and_cache")
        query = q.to(cache.dtype)
        out = q.new_empty(rows, heads * dim)
        for group in self.inputs.decodes:
            out[group.first : group.first + group.rows] = self._decode(layer, query, group)
        for chunk in self.inputs.prefills:
            out[chunk.first : chunk.first + chunk.rows] = self._prefill(layer, query, chunk)
        if rows > self._real_rows():
            out[self._real_rows() :] = out[0]
        return out

    def _real_rows(self) -> int:
        # Rows that fill up the least number (see build_inputs) attend like the first.
        inputs = self.inputs
        return sum(g.rows for g in inputs.decodes) + sum(c.rows for c in inputs.prefills)

    def _decode(self, layer: int, q: Tensor, group: DecodeGroup) -> Tensor:
        rows = self._rows(layer, group.run, group.gather)
        k, v = kv_views(self.cache.shaped(rows, group.rows))
        queries = q[group.first : group.first + group.rows].contiguous()
        return decode_attention(queries, k, v, group.mask)

    def _prefill(self, layer: int, q: Tensor, chunk: PrefillChunk) -> Tensor:
        rows = self.cache.shaped(self._rows(layer, chunk.run, chunk.slots), 1)[0]
        kv = rows.permute(1, 2, 0, 3).contiguous()
        queries = q[chunk.first : chunk.first + chunk.rows]
        return chunk_attention(queries, kv[0], kv[1], chunk.start)

    def _rows(self, layer: int, run: tuple[int, int] | None, slots: Tensor | None) -> Tensor:
        if run is not None:
            return self.cache.layers[layer][run[0] : run[0] + run[1]]
        assert slots is not None
        return self.cache.gather(layer, slots)
