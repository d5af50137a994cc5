"""Mixture of experts in Triton: a fused router, and a matmul of each token with its experts.

The matmul sorts places (a token's slots) by expert on the device, so that a block of rows belongs
to one expert whose weights it reads once; blocks of the same expert and columns run next to each
other and find them in the L2 cache. No count goes to the host: grids depend on shapes alone.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.moe.contract import CONTRACTS
from kernels.moe.reference import SCORINGS, unknown
from kernels.moe.tiles import SORT_CHUNK, blocks, matmul_tiles, router_options
from kernels.pointwise_tiles import power_of_two
from kernels.targets import arch_of

_LOWEST = tl.constexpr(-3.4e38)  # of logits as compared: below it are only lanes without an expert


@triton.jit
def softplus(x):
    """log(1 + exp(x)) to fp32's precision: 2 artanh(t / (2 + t)) for log(1 + t), t = exp(-|x|),
    whose series needs no logarithm; the GPU's is off by 2e-7 however near to 0 the result is."""
    t = tl.exp(-tl.abs(x))
    z = t / (2.0 + t)
    y = z * z
    series = 1.0 / 15.0
    series = series * y + 1.0 / 13.0
    series = series * y + 1.0 / 11.0
    series = series * y + 1.0 / 9.0
    series = series * y + 1.0 / 7.0
    series = series * y + 1.0 / 5.0
    series = series * y + 1.0 / 3.0
    return tl.maximum(x, 0.0) + 2.0 * (z + z * y * series)


@triton.jit
def router_kernel(
    logits, topk_weights, topk_indices, token_expert_indices, input_tokens, hash_indices_table,
    rows, experts,
    K: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, SQRT_SOFTPLUS: tl.constexpr,
    RENORMALISE: tl.constexpr, HASHED: tl.constexpr,
):  # fmt: skip
    """Grid (rows,). Both scores grow with the logit, so logits are compared, which are exact; a
    NaN is taken first, so that it reaches the weights instead of being passed over."""
    row = tl.program_id(0)
    line = logits + row.to(tl.int64) * experts
    lanes, slots = tl.arange(0, WIDTH), tl.arange(0, SLOTS)
    chosen = tl.zeros([SLOTS], tl.int32)
    if HASHED:
        token = tl.load(input_tokens + row).to(tl.int64)
        entry = tl.load(hash_indices_table + token * K + slots, mask=slots < K, other=0)
        chosen = entry.to(tl.int32)
    if not HASHED or not SQRT_SOFTPLUS:
        x = tl.load(line + lanes, mask=lanes < experts, other=float("-inf")).to(tl.float32)
    if not HASHED:
        keys = tl.maximum(tl.where(x == x, x, float("inf")), _LOWEST)
        keys = tl.where(lanes < experts, keys, float("-inf"))
        for slot in tl.static_range(K):
            best = tl.argmax(keys, 0)
            chosen = tl.where(slots == slot, best, chosen)
            keys = tl.where(lanes == best, float("-inf"), keys)
    # A table may name an expert that is not there: not a number, rather than another row's logit.
    known = (slots < K) & (chosen >= 0) & (chosen < experts)
    logit = tl.load(line + chosen, mask=known, other=float("nan")).to(tl.float32)
    if SQRT_SOFTPLUS:
        weights = tl.sqrt(softplus(logit))
    else:
        top = tl.max(x, 0)
        weights = tl.exp(logit - top) / tl.sum(tl.exp(x - top), 0)
    if RENORMALISE:
        weights = weights / tl.sum(tl.where(slots < K, weights, 0.0), 0)
    at = row.to(tl.int64) * K + slots
    kind = topk_indices.dtype.element_ty
    tl.store(topk_weights + at, weights, mask=slots < K)
    tl.store(topk_indices + at, chosen.to(kind), mask=slots < K)
    tl.store(token_expert_indices + at, slots * rows + row, mask=slots < K)


@triton.jit(do_not_specialize=["places"])
def sort_kernel(indices, order, starts, places, experts, CHUNK: tl.constexpr):
    """Grid (experts + 1,): each counts the places of lower experts, then lists its own in order."""
    expert = tl.program_id(0)
    lanes = tl.arange(0, CHUNK)
    before = tl.zeros([CHUNK], tl.int32)
    for at in range(0, places, CHUNK):
        found = tl.load(indices + at + lanes, mask=at + lanes < places, other=experts)
        before += (found < expert).to(tl.int32)
    start = tl.sum(before, 0)
    tl.store(starts + expert, start)
    for at in range(0, places, CHUNK):
        mine = tl.load(indices + at + lanes, mask=at + lanes < places, other=-1) == expert
        rank = start + tl.cumsum(mine.to(tl.int32), 0) - 1
        tl.store(order + rank, at + lanes, mask=mine)
        start += tl.sum(mine.to(tl.int32), 0)


@triton.jit
def block_of_expert(block, starts, experts, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """(expert, first line of `order`, end) of a block of rows; past the last, expert = experts."""
    lanes = tl.arange(0, WIDTH)
    first = tl.load(starts + lanes, mask=lanes < experts, other=0)
    end = tl.load(starts + lanes + 1, mask=lanes < experts, other=0)
    needed = tl.cdiv(end - first, ROWS)
    expert = tl.sum(((tl.cumsum(needed, 0) <= block) & (lanes < experts)).to(tl.int32), 0)
    local = block - tl.sum(tl.where(lanes < expert, needed, 0), 0)
    begin = tl.sum(tl.where(lanes == expert, first, 0), 0) + local * ROWS
    return expert, begin, tl.sum(tl.where(lanes == expert, end, 0), 0)


@triton.jit(do_not_specialize=["experts"])
def grouped_kernel(
    x, weights, order, starts, topk_weights, out, experts, inner, outer,
    SHARED_BY: tl.constexpr, SCALED: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of rows, blocks of columns). SHARED_BY: places that share a row of x."""
    expert, begin, end = block_of_expert(tl.program_id(0), starts, experts, WIDTH, ROWS)
    if expert >= experts:
        return
    lines = begin + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    valid = lines < end
    place = tl.load(order + lines, mask=valid, other=0).to(tl.int64)
    left = x + (place // SHARED_BY)[:, None] * inner + depth[None, :]
    own = weights + expert.to(tl.int64) * outer * inner
    right = own + columns.to(tl.int64)[:, None] * inner + depth[None, :]
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for at in range(0, inner, DEPTH):
        here = (at + depth < inner)[None, :]
        a = tl.load(left + at, mask=valid[:, None] & here, other=0.0)
        b = tl.load(right + at, mask=(columns < outer)[:, None] & here, other=0.0)
        acc = tl.dot(a, tl.trans(b), acc, input_precision="ieee")
    if SCALED:
        acc = acc * tl.load(topk_weights + place, mask=valid, other=0.0)[:, None]
    to = out + place[:, None] * outer + columns[None, :]
    written = valid[:, None] & (columns < outer)[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=written)


def router(
    logits: Tensor, k: int, scoring: str, renormalise: bool,
    topk_weights: Tensor | None = None, topk_indices: Tensor | None = None,
    token_expert_indices: Tensor | None = None, input_tokens: Tensor | None = None,
    hash_indices_table: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The experts of each token and their weights.

    logits: [rows, experts]; scoring: "sqrt_softplus" or "softmax"; renormalise: weights sum to 1.
    topk_weights: fp32 [rows, k]; topk_indices: int64 or int32 [rows, k]; token_expert_indices:
    int32 [rows, k], slot * rows + row; allocated when not given. input_tokens [rows] and
    hash_indices_table [vocab, k], of topk_indices' dtype: experts from the table, only their
    weights from the logits. -> the three outputs. ValueError for an unknown scoring.
    """
    CONTRACTS["router"].check(
        logits=logits, topk_weights=topk_weights, topk_indices=topk_indices,
        token_expert_indices=token_expert_indices, input_tokens=input_tokens,
        hash_indices_table=hash_indices_table, k=k,
    )  # fmt: skip
    if scoring not in SCORINGS:
        raise ValueError(f"router: {unknown(scoring)}")
    rows, experts = logits.shape
    weights = _given(topk_weights, logits, rows, k, torch.float32)
    indices = _given(topk_indices, logits, rows, k, torch.int64)
    places = _given(token_expert_indices, logits, rows, k, torch.int32)
    hashed = hash_indices_table is not None
    width = power_of_two(experts)
    router_kernel[(rows,)](
        logits, weights, indices, places,
        input_tokens if hashed else indices, hash_indices_table if hashed else indices,
        rows, experts, K=k, SLOTS=power_of_two(k), WIDTH=width,
        SQRT_SOFTPLUS=scoring == "sqrt_softplus", RENORMALISE=renormalise, HASHED=hashed,
        **router_options(width),
    )  # fmt: skip
    return weights, indices, places


def sort_by_expert(
    topk_indices: Tensor, experts: int, order: Tensor | None = None, starts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See kernels.moe.reference.sort_by_expert; places whose index names no expert are not listed,
    and what stands in their stead in `order` is undefined."""
    device, places = topk_indices.device, topk_indices.numel()
    if order is None:
        order = torch.empty(places, dtype=torch.int32, device=device)
    if starts is None:
        starts = torch.empty(experts + 1, dtype=torch.int32, device=device)
    sort_kernel[(experts + 1,)](topk_indices, order, starts, places, experts, CHUNK=SORT_CHUNK)
    return order, starts


def grouped_matmul(
    x: Tensor, weights: Tensor, topk_indices: Tensor, topk_weights: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Each token times the weights of each of its experts.

    x: [rows or rows * k, inner]; weights: [experts, outer, inner]; topk_indices: [rows, k];
    topk_weights: fp32 [rows, k], multiplied onto the results where given.
    -> [rows * k, outer]; the line of an index that names no expert stays as it was.
    """
    CONTRACTS["grouped_matmul"].check(
        x=x, weights=weights, topk_indices=topk_indices, topk_weights=topk_weights, out=out
    )
    experts, outer, inner = weights.shape
    places = topk_indices.numel()
    out = torch.empty(places, outer, dtype=x.dtype, device=x.device) if out is None else out
    order, starts = sort_by_expert(topk_indices, experts)
    tiles = matmul_tiles(arch_of(x.device), x.element_size(), places, experts)
    grid = (blocks(places, experts, tiles.rows), triton.cdiv(outer, tiles.columns))
    grouped_kernel[grid](
        x, weights, order, starts, starts if topk_weights is None else topk_weights, out,
        experts, inner, outer, SHARED_BY=1 if x.shape[0] == places else topk_indices.shape[1],
        SCALED=topk_weights is not None, WIDTH=power_of_two(experts),
        **tiles.constants(), **tiles.options(),
    )  # fmt: skip
    return out


def _given(out: Tensor | None, like: Tensor, rows: int, k: int, dtype: torch.dtype) -> Tensor:
    return out if out is not None else torch.empty(rows, k, dtype=dtype, device=like.device)
