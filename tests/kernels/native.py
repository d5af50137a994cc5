"""The vector kernels' single ops, called from Python on the thread that calls.

Modules that import this one are skipped where the kernels do not run: they would not compile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.simd.support import runs

if not runs("bf16"):
    pytest.skip("the vector kernels do not run on this CPU", allow_module_level=True)

import llvmlite.binding as llvm
from numba import cfunc, types

from kernels.attention.cache_layout import PAGE_TOKENS, page_bytes
from kernels.attention.numba_impl import MAX_QUERIES, attend, scratch_bytes
from kernels.linear.numba_impl import (
    ADD,
    KIND_BF16,
    KIND_F32,
    KIND_INT4,
    KIND_INT8,
    SILU_AND_MUL,
    STORE,
    TILE_BYTES,
    LinearField,
    linear_share,
)
from kernels.linear.pack import INT4_GROUP, PANEL, pack
from kernels.rms_norm.numba_impl import rms_norm_row
from kernels.rope.numba_impl import rope_row
from kernels.silu_and_mul.numba_impl import silu_and_mul_vector
from kernels.simd.memory import Arena
from kernels.simd.vectors import LANES, exp, load_f32, store_f32
from tests.kernels.memory import Rows, given, poisoned

I64 = types.int64
KINDS = {"bf16": KIND_BF16, "fp32": KIND_F32, "int8": KIND_INT8, "int4": KIND_INT4}
BF16_ROWS = ("bf16", "int4")


def called(function: Any) -> Callable[..., None]:
    """A function that kernels.simd.external compiled."""
    address = llvm.address_of_symbol(function.symbol)
    assert address is not None, f"{function.symbol} is not compiled"
    arguments = [ctypes.c_int64] * len(function.sig.args)
    return ctypes.CFUNCTYPE(None, *arguments)(address)


_linear_share, _attend = called(linear_share), called(attend)


def compiled(*arguments: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A function of these types without a result."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        made = cfunc(types.void(*arguments), nopython=True, cache=True, error_model="numpy")
        native: Callable[..., None] = made(function).ctypes
        return native

    return decorate


@compiled(I64, I64, I64)
def _exp(x: int, count: int, out: int) -> None:
    for i in range(0, 4 * count, 4 * LANES):
        store_f32(out + i, exp(load_f32(x + i)))


@compiled(I64, I64, I64, I64)
def _silu_and_mul(gate: int, up: int, count: int, out: int) -> None:
    for i in range(0, 4 * count, 4 * LANES):
        store_f32(out + i, silu_and_mul_vector(load_f32(gate + i), load_f32(up + i)))


@compiled(I64, I64, I64, types.float32, I64, I64)
def _rms_norm(x: int, gain: int, width: int, eps: float, out: int, out_bf16: int) -> None:
    rms_norm_row(x, gain, width, eps, out, out_bf16)


@compiled(*[I64] * 12)
def _rope(
    qkv: int, heads: int, kv_heads: int, dim: int, cos: int, sin: int, q: int, page: int,
    head_bytes: int, token: int, bf16: int, scratch: int,
) -> None:  # fmt: skip
    rope_row(qkv, heads, kv_heads, dim, cos, sin, q, page, head_bytes, token, bf16, scratch)


def exp_of(x: Tensor) -> Tensor:
    """x: float32 [n], n a multiple of 16."""
    out = poisoned(1, 4 * len(x))
    _exp(given(x[None]).address, len(x), out.address)
    return out.read(torch.float32)[0]


def silu_and_mul_of(gate: Tensor, up: Tensor) -> Tensor:
    """Both float32 [n], n a multiple of 16."""
    out, rows = poisoned(1, 4 * len(gate)), given(torch.stack([gate, up]))
    _silu_and_mul(rows.address, rows.address + rows.stride, len(gate), out.address)
    return out.read(torch.float32)[0]


def rms_norm_of(x: Tensor, gain: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """x: float32 [rows, width] -> the same shape in dtype."""
    rows, width = x.shape
    lines, gains = given(x), given(gain[None])
    out = poisoned(rows, width * dtype.itemsize)
    for r in range(rows):
        to = out.address + r * out.stride
        here = lines.address + r * lines.stride
        _rms_norm(here, gains.address, width, eps, to, int(dtype is torch.bfloat16))
    return out.read(dtype)


class Linear:
    """A weight [out, inner], packed, and its record."""

    def __init__(self, weight: Tensor, dtype: str) -> None:
        self._packed = packed = pack(weight, dtype, Arena(1 << 20))
        self.dtype, self.inner, self.width = dtype, packed.inner, packed.panels * PANEL
        self.rows_dtype = torch.bfloat16 if dtype in BF16_ROWS else torch.float32
        self.record = np.zeros(len(LinearField), dtype=np.int64)
        self.record[LinearField.KIND] = KINDS[dtype]
        self.record[LinearField.WEIGHTS] = packed.data.data_ptr()
        self.record[LinearField.PANEL_BYTES] = packed.panel_bytes
        self.record[LinearField.PANELS] = packed.panels
        self.record[LinearField.INNER] = packed.inner
        if packed.scales is not None:
            self.record[LinearField.SCALES] = packed.scales.data_ptr()

    def store(self, x: Tensor, threads: int = 1) -> Tensor:
        """x: [rows, inner] -> float32 [rows, width], outputs filled up to whole panels."""
        out = poisoned(len(x), 4 * self.width)
        self._share(x, STORE, out, False, threads)
        return out.read(torch.float32)

    def add(self, x: Tensor, residual: Tensor, threads: int = 1) -> Tensor:
        """residual: float32 [rows, width]."""
        out = given(residual)
        self._share(x, ADD, out, False, threads)
        return out.read(torch.float32)

    def gated(self, x: Tensor, dtype: torch.dtype, threads: int = 1) -> Tensor:
        """-> dtype [rows, width / 2]; the weight is interleaved."""
        out = poisoned(len(x), self.width // 2 * dtype.itemsize)
        self._share(x, SILU_AND_MUL, out, dtype is torch.bfloat16, threads)
        return out.read(dtype)

    def _share(self, x: Tensor, mode: int, out: Rows, out_bf16: bool, threads: int) -> None:
        assert x.dtype is self.rows_dtype
        lines = given(x)
        groups = x.shape[1] // INT4_GROUP if self.dtype == "int4" else 0
        for thread in range(threads):
            scratch = poisoned(1, TILE_BYTES + 4 * groups * len(x))
            _linear_share(
                thread, threads, self.record.ctypes.data, lines.address, lines.stride, len(x),
                mode, out.address, out.stride, int(out_bf16), scratch.address,
            )  # fmt: skip
            scratch.read(torch.uint8)


class Pages:
    """A layer of the cache; where nothing was written it is NaN."""

    def __init__(self, pages: int, kv_heads: int, dim: int, bf16: bool) -> None:
        self.kv_heads, self.dim, self.bf16, self.pages = kv_heads, dim, bf16, pages
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.page_bytes = page_bytes(dim, self.dtype.itemsize)
        self.head_bytes = pages * self.page_bytes
        self.memory = poisoned(1, kv_heads * self.head_bytes)

    def __call__(self, part: int) -> Tensor:
        """0: K, 1: V. A copy as [pages * 16, kv_heads, dim], whatever the layout."""
        pair, heads, dim = 2 if self.bf16 else 1, self.kv_heads, self.dim
        whole = self.memory.read(self.dtype).view(heads, self.pages, 2, PAGE_TOKENS * dim)[
            :, :, part
        ]
        if part == 0:  # [dim / pair][token][pair]
            found = whole.view(heads, self.pages, dim // pair, PAGE_TOKENS, pair).transpose(2, 3)
        else:  # [token / pair][dim][pair]
            found = whole.view(heads, self.pages, PAGE_TOKENS // pair, dim, pair).transpose(3, 4)
        return found.reshape(heads, -1, dim).transpose(0, 1)

    def fill(self, k: Tensor, v: Tensor, table: Tensor) -> None:
        """k, v: [16 * len(table), kv_heads, dim] to the table's pages; the inverse of reading."""
        pair, heads, dim, n = 2 if self.bf16 else 1, self.kv_heads, self.dim, len(table)
        every = self.memory.inside.view(self.dtype).view(heads, self.pages, 2, PAGE_TOKENS * dim)
        keys = k.to(self.dtype).view(n, PAGE_TOKENS, heads, dim // pair, pair)
        values = v.to(self.dtype).view(n, PAGE_TOKENS // pair, pair, heads, dim)
        every[:, table, 0] = keys.permute(2, 0, 3, 1, 4).reshape(heads, n, -1)
        every[:, table, 1] = values.permute(3, 0, 1, 4, 2).reshape(heads, n, -1)


def rope_of(
    qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, pages: Pages, position: int, page: int
) -> Tensor:
    """One row [1, (heads + 2 kv_heads) * dim] at a position -> its queries; fills the cache.

    cos, sin: float32 [positions, dim / 2]; page: which of the cache's holds the position.
    """
    dim, kv_heads = pages.dim, pages.kv_heads
    row, q = given(qkv), poisoned(1, heads * dim * pages.dtype.itemsize)
    scratch = poisoned(1, 4 * kv_heads * dim)
    _rope(
        row.address, heads, kv_heads, dim, cos[position].data_ptr(), sin[position].data_ptr(),
        q.address, pages.memory.address + page * pages.page_bytes, pages.head_bytes,
        position % PAGE_TOKENS, int(pages.bf16), scratch.address,
    )  # fmt: skip
    row.read(torch.float32)
    scratch.read(torch.uint8)
    return q.read(pages.dtype)


def attention_of(
    q: Tensor, pages: Pages, table: Tensor, position: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """q: [rows, heads * dim] in the cache's dtype, scaled, at positions from `position` on.

    table: int64 page of each 16 tokens -> dtype [rows, heads * dim].
    """
    assert q.dtype is pages.dtype
    table = torch.cat([table, torch.full((16,), 1 << 40)])  # a page past its end is no memory
    dim, width = pages.dim, q.shape[1]
    group = width // dim // pages.kv_heads
    block, lines = max(1, MAX_QUERIES // group), given(q)
    out = poisoned(len(q), width * dtype.itemsize)
    for head in range(pages.kv_heads):
        for first in range(0, len(q), block):
            scratch = poisoned(1, scratch_bytes(dim))
            at = head * group * dim
            _attend(
                min(block, len(q) - first), group, position + first,
                lines.address + first * lines.stride + at * q.element_size(), lines.stride, dim,
                int(pages.bf16), pages.memory.address + head * pages.head_bytes, pages.page_bytes,
                table.data_ptr(), out.address + first * out.stride + at * dtype.itemsize,
                out.stride, int(dtype is torch.bfloat16), scratch.address,
            )  # fmt: skip
            scratch.read(torch.uint8)
    pages.memory.read(torch.uint8)
    return out.read(dtype)
