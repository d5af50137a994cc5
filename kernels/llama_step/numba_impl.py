"""The forward pass of a step: all layers, run by all threads together, with barriers between ops.

At one row a layer takes a quarter of a millisecond; a dispatch by the interpreter or a parallel
region for each of its ops would take a good part of that. The threads agree on everything by the
numbers of a `StepField` record, which the caller fills before each step.

Every op works row by row with one order of summation (see kernels.simd.tiles and
kernels.attention.numba_impl), so a token's logits are the same bits in any batch, chunk or
schedule. (int8 and int4 change weights with the number of rows: see engine.quantisation.)
"""

from __future__ import annotations

from typing import Any

from numba import cfunc, njit, types

from kernels.attention.cache_layout import MAX_QUERIES, PAGE_TOKENS
from kernels.attention.numba_impl import attend
from kernels.linear.numba_impl import ADD, SILU_AND_MUL, STORE, linear_share
from kernels.llama_step.fields import (
    LAYER_FIELDS,
    SPAN_FIELDS,
    TIMES_HEADER,
    TIMESPEC_BYTES,
    LayerField,
    Part,
    SpanField,
    StepField,
    StepKernel,
)
from kernels.rms_norm.numba_impl import rms_norm_row
from kernels.rope.numba_impl import rope_row
from kernels.simd.clock import monotonic_ns
from kernels.simd.pool import barrier, thread_count, thread_number
from kernels.simd.vectors import (
    LANES,
    address_of,
    fetch_add,
    load_bf16,
    load_f32,
    load_float,
    load_int,
    store_f32,
    store_int,
)

_LAYER_BYTES, _SPAN_BYTES = 8 * LAYER_FIELDS, 8 * SPAN_FIELDS

# numba freezes module-level integers; an enum's member would be looked up for each call.
(
    _ROWS, _LAYERS, _HIDDEN, _X_STRIDE, _HEADS, _KV_HEADS, _HEAD_DIM, _EPS, _EMBEDDING,
    _EMBEDDING_BF16, _LAYER_TABLE, _FINAL_NORM, _HEAD, _COS, _SIN, _TOKENS, _SPANS, _SPAN_COUNT,
    _SAMPLED, _SAMPLED_COUNT, _X, _ACT, _ACT_STRIDE, _ACT_BF16, _QKV, _QKV_STRIDE, _Q, _Q_STRIDE,
    _KV_BF16, _HEAD_BYTES, _PAGE_BYTES, _LOGITS, _LOGITS_STRIDE, _SCRATCH, _SCRATCH_BYTES,
    _COUNTER, _LAST_X, _HEAD_BF16, _PARTS, _TIMES,
) = (8 * int(field) for field in StepField)  # fmt: skip
(_L_ATTN_NORM, _L_QKV, _L_OUT, _L_MLP_NORM, _L_GATE_UP, _L_DOWN, _L_CACHE) = (
    8 * int(field) for field in LayerField
)
_NORMS, _LINEARS, _ROPES, _ATTENTIONS, _HEADS_PART = (
    int(part) for part in (Part.NORMS, Part.LINEARS, Part.ROPE, Part.ATTENTION, Part.HEAD)
)
(
    _EMBEDDINGS, _RMS_NORM, _QKV_LINEAR, _ROPE_AND_CACHE, _ATTENDING, _OUT_LINEAR, _GATE_UP_LINEAR,
    _DOWN_LINEAR, _LM_HEAD,
) = (int(kernel) for kernel in StepKernel)  # fmt: skip
_LAST_STAMP, _FIRST_TIME = TIMESPEC_BYTES, 8 * TIMES_HEADER
_S_FIRST, _S_ROWS, _S_START, _S_PAGES = (8 * int(field) for field in SpanField)


@njit(nogil=True, error_model="numpy")
def _start_timing(step: int, thread: int) -> None:
    times = load_int(step + _TIMES)
    if times and thread == 0:
        store_int(times + _LAST_STAMP, monotonic_ns(times))


@njit(nogil=True, error_model="numpy")
def _together(step: int, thread: int, kernel: int) -> None:
    """Threads wait for each other; what ran since they last did is a call of this kernel."""
    barrier()
    times = load_int(step + _TIMES)
    if times and thread == 0:
        now, mine = monotonic_ns(times), times + _FIRST_TIME + 16 * kernel
        store_int(mine, load_int(mine) + now - load_int(times + _LAST_STAMP))
        store_int(mine + 8, load_int(mine + 8) + 1)
        store_int(times + _LAST_STAMP, now)


@njit(nogil=True, error_model="numpy")
def _embed(step: int, first: int, last: int) -> None:
    width, table = load_int(step + _HIDDEN), load_int(step + _EMBEDDING)
    bf16, tokens = load_int(step + _EMBEDDING_BF16), load_int(step + _TOKENS)
    for r in range(first, last):
        token = load_int(tokens + 8 * r)
        out = load_int(step + _X) + r * load_int(step + _X_STRIDE)
        for i in range(0, width, LANES):
            if bf16:
                store_f32(out + 4 * i, load_bf16(table + 2 * (token * width + i)))
            else:
                store_f32(out + 4 * i, load_f32(table + 4 * (token * width + i)))


@njit(nogil=True, error_model="numpy")
def _norm(step: int, x: int, gain: int, first: int, last: int, bf16: int) -> None:
    width, eps = load_int(step + _HIDDEN), load_float(step + _EPS)
    x_stride, stride = load_int(step + _X_STRIDE), load_int(step + _ACT_STRIDE)
    act = load_int(step + _ACT)
    for r in range(first, last):
        rms_norm_row(x + r * x_stride, gain, width, eps, act + r * stride, bf16)


@njit(nogil=True, error_model="numpy")
def _rope(step: int, cache: int, first: int, last: int, scratch: int) -> None:
    """Rows first..last-1 of all chunks: queries to Q, keys and values to the cache."""
    heads, kv_heads = load_int(step + _HEADS), load_int(step + _KV_HEADS)
    dim, bf16 = load_int(step + _HEAD_DIM), load_int(step + _KV_BF16)
    head_bytes, page_bytes = load_int(step + _HEAD_BYTES), load_int(step + _PAGE_BYTES)
    cos, sin = load_int(step + _COS), load_int(step + _SIN)
    for s in range(load_int(step + _SPAN_COUNT)):
        span = load_int(step + _SPANS) + s * _SPAN_BYTES
        begin, start = load_int(span + _S_FIRST), load_int(span + _S_START)
        pages, end = load_int(span + _S_PAGES), begin + load_int(span + _S_ROWS)
        for r in range(max(first, begin), min(last, end)):
            position = start + r - begin
            page = cache + load_int(pages + 8 * (position // PAGE_TOKENS)) * page_bytes
            angle = 2 * dim * position
            rope_row(
                load_int(step + _QKV) + r * load_int(step + _QKV_STRIDE), heads, kv_heads, dim,
                cos + angle, sin + angle, load_int(step + _Q) + r * load_int(step + _Q_STRIDE),
                page, head_bytes, position % PAGE_TOKENS, bf16, scratch,
            )  # fmt: skip


@njit(nogil=True, error_model="numpy")
def _attention(step: int, cache: int, scratch: int) -> None:
    """Threads take tasks (chunk, block of rows, KV head) one by one until none is left."""
    kv_heads = load_int(step + _KV_HEADS)
    group = load_int(step + _HEADS) // kv_heads
    block = max(1, MAX_QUERIES // group)
    counter, done = load_int(step + _COUNTER), 0
    mine = fetch_add(counter, 1)
    for s in range(load_int(step + _SPAN_COUNT)):
        span = load_int(step + _SPANS) + s * _SPAN_BYTES
        blocks = (load_int(span + _S_ROWS) + block - 1) // block
        while mine < done + blocks * kv_heads:
            task = mine - done
            # The last rows have the longest contexts: they go first, so that threads end together.
            _attention_task(
                step, span, cache, blocks - 1 - task // kv_heads, task % kv_heads, block, scratch
            )
            mine = fetch_add(counter, 1)
        done += blocks * kv_heads


@njit(nogil=True, error_model="numpy")
def _attention_task(
    step: int, span: int, cache: int, block: int, head: int, block_rows: int, scratch: int
) -> None:
    dim, bf16 = load_int(step + _HEAD_DIM), load_int(step + _KV_BF16)
    group = load_int(step + _HEADS) // load_int(step + _KV_HEADS)
    first = block * block_rows
    rows = min(block_rows, load_int(span + _S_ROWS) - first)
    row = load_int(span + _S_FIRST) + first
    q_stride, act_stride = load_int(step + _Q_STRIDE), load_int(step + _ACT_STRIDE)
    out_bf16, head_bytes = load_int(step + _ACT_BF16), load_int(step + _HEAD_BYTES)
    width = head * group * dim
    attend(
        rows, group, load_int(span + _S_START) + first,
        load_int(step + _Q) + row * q_stride + width * (2 if bf16 else 4), q_stride, dim, bf16,
        cache + head * head_bytes, load_int(step + _PAGE_BYTES),
        load_int(span + _S_PAGES),
        load_int(step + _ACT) + row * act_stride + width * (2 if out_bf16 else 4), act_stride,
        out_bf16, scratch,
    )  # fmt: skip


@njit(nogil=True, error_model="numpy")
def _linear(
    step: int, linear: int, thread: int, threads: int, mode: int, x: int, x_stride: int, out: int,
    out_stride: int, scratch: int, kernel: int,
) -> None:  # fmt: skip
    if load_int(step + _PARTS) & _LINEARS:
        linear_share(
            thread, threads, linear, x, x_stride, load_int(step + _ROWS), mode, out, out_stride,
            load_int(step + _ACT_BF16), scratch,
        )  # fmt: skip
    _together(step, thread, kernel)


@njit(nogil=True, error_model="numpy")
def _layer_norm(step: int, gain: int, first: int, last: int, thread: int) -> None:
    if load_int(step + _PARTS) & _NORMS:
        _norm(step, load_int(step + _X), gain, first, last, load_int(step + _ACT_BF16))
    _together(step, thread, _RMS_NORM)


@njit(nogil=True, error_model="numpy")
def _layer(step: int, layer: int, thread: int, threads: int, scratch: int) -> None:
    rows, parts = load_int(step + _ROWS), load_int(step + _PARTS)
    first, last = rows * thread // threads, rows * (thread + 1) // threads
    x, x_stride = load_int(step + _X), load_int(step + _X_STRIDE)
    act, stride = load_int(step + _ACT), load_int(step + _ACT_STRIDE)
    qkv, qkv_stride = load_int(step + _QKV), load_int(step + _QKV_STRIDE)
    cache = load_int(layer + _L_CACHE)
    if thread == 0:
        store_int(load_int(step + _COUNTER), 0)
    _layer_norm(step, load_int(layer + _L_ATTN_NORM), first, last, thread)
    _linear(
        step, load_int(layer + _L_QKV), thread, threads, STORE, act, stride, qkv, qkv_stride,
        scratch, _QKV_LINEAR,
    )  # fmt: skip
    if parts & _ROPES:
        _rope(step, cache, first, last, scratch)
    _together(step, thread, _ROPE_AND_CACHE)
    if parts & _ATTENTIONS:
        _attention(step, cache, scratch)
    _together(step, thread, _ATTENDING)
    _linear(
        step, load_int(layer + _L_OUT), thread, threads, ADD, act, stride, x, x_stride, scratch,
        _OUT_LINEAR,
    )  # fmt: skip
    _layer_norm(step, load_int(layer + _L_MLP_NORM), first, last, thread)
    # The gated values take the place of qkv: both are gone by the time the other comes.
    _linear(
        step, load_int(layer + _L_GATE_UP), thread, threads, SILU_AND_MUL, act, stride, qkv,
        qkv_stride, scratch, _GATE_UP_LINEAR,
    )  # fmt: skip
    _linear(
        step, load_int(layer + _L_DOWN), thread, threads, ADD, qkv, qkv_stride, x, x_stride,
        scratch, _DOWN_LINEAR,
    )  # fmt: skip


@njit(nogil=True, error_model="numpy")
def _head(step: int, thread: int, threads: int, scratch: int) -> None:
    """Logits of the sampled rows."""
    count, width = load_int(step + _SAMPLED_COUNT), load_int(step + _HIDDEN)
    x_stride, last_x = load_int(step + _X_STRIDE), load_int(step + _LAST_X)
    for i in range(count * thread // threads, count * (thread + 1) // threads):
        row = load_int(load_int(step + _SAMPLED) + 8 * i)
        for j in range(0, width, LANES):
            value = load_f32(load_int(step + _X) + row * x_stride + 4 * j)
            store_f32(last_x + i * x_stride + 4 * j, value)
        _norm(step, last_x, load_int(step + _FINAL_NORM), i, i + 1, load_int(step + _HEAD_BF16))
    _together(step, thread, _RMS_NORM)
    linear_share(
        thread, threads, load_int(step + _HEAD), load_int(step + _ACT),
        load_int(step + _ACT_STRIDE), count, STORE, load_int(step + _LOGITS),
        load_int(step + _LOGITS_STRIDE), 0, scratch,
    )  # fmt: skip
    if load_int(step + _TIMES):  # the threads meet where the call ends; this is as far as it goes
        _together(step, thread, _LM_HEAD)


@njit(nogil=True, error_model="numpy")
def _run(step: int) -> None:
    thread, threads = int(thread_number()), int(thread_count())
    scratch = load_int(step + _SCRATCH) + thread * load_int(step + _SCRATCH_BYTES)
    rows = load_int(step + _ROWS)
    _start_timing(step, thread)
    _embed(step, rows * thread // threads, rows * (thread + 1) // threads)
    _together(step, thread, _EMBEDDINGS)
    for i in range(load_int(step + _LAYERS)):
        layer = load_int(step + _LAYER_TABLE) + i * _LAYER_BYTES
        _layer(step, layer, thread, threads, scratch)
    if load_int(step + _SAMPLED_COUNT) and load_int(step + _PARTS) & _HEADS_PART:
        _head(step, thread, threads, scratch)


@cfunc(types.void(types.voidptr), nopython=True, cache=True)
def _forward(argument: Any) -> None:
    _run(address_of(argument))


def forward_address() -> int:
    """Machine code of the forward pass, for kernels.simd.pool.run_on_all."""
    address: int = _forward.address
    return address
