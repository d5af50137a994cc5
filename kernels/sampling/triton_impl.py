"""Sampling on a GPU without sorting and without the host: greedy, temperature, top-p.

Sorting a vocabulary for top-p moves it many times. Here the threshold is searched: floats are
ordered like integers (sign and magnitude), so the largest key whose tokens, and all likelier ones,
hold top_p of the mass is found four bits a round: 16 thresholds are weighed in one pass. After
4 rounds (16-bit logits) or 8 (fp32) the key is exact. Each round is shared out to a program for
each 4096 logits, so that one row keeps many processors busy; every program adds up the last
round's masses for itself, in one order. Then the token is the inverse of the distribution function
(see reference.py): the masses of the chunks tell the chunk, and only that one is read again.

Exact up to the rounding of fp32 sums of masses (relative 1e-6): where top_p or the uniform number
falls that close to the edge of a token, the neighbour may be taken. Programs see one row only.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.pointwise_tiles import power_of_two
from kernels.sampling.contract import CONTRACTS
from kernels.sampling.reference import GREEDY
from kernels.sampling.tiles import WARPS, WAYS, Kind, chunk_of, search

_GREEDY = tl.constexpr(GREEDY)
_WAYS = tl.constexpr(WAYS)
_LOG2_E = tl.constexpr(1.4426950408889634)
_NONE = tl.constexpr(0x7FFFFFFF)  # larger than every index


@triton.jit
def ordered_key(x):
    """An int32 with the order of the floats x; both zeros are 0."""
    if x.dtype == tl.float32:
        bits = x.to(tl.int32, bitcast=True)
        key = tl.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    else:
        bits = x.to(tl.int16, bitcast=True).to(tl.int32)
        key = tl.where(bits < 0, -(bits & 0x7FFF), bits)
    return key


@triton.jit
def largest_kernel(logits, peaks, places, stride, vocab, CHUNK: tl.constexpr):
    """peaks, places [rows, chunks]: the largest logit of a chunk, and its lowest index."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    index = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = index < vocab
    x = tl.load(logits + row * stride + index, mask=inside, other=-float("inf")).to(tl.float32)
    peak = tl.max(x, 0)
    at = row * tl.num_programs(1) + chunk
    tl.store(peaks + at, peak)
    tl.store(places + at, tl.min(tl.where(inside & (x == peak), index, _NONE), 0))


@triton.jit
def weights(x, peaks, temperature, chunks, CHUNKS: tl.constexpr):
    """exp((x - the row's largest) / temperature), float32. peaks: of this row."""
    part = tl.arange(0, CHUNKS)
    peak = tl.max(tl.load(peaks + part, mask=part < chunks, other=-float("inf")), 0)
    return tl.exp2((x.to(tl.float32) - peak) * (_LOG2_E / temperature))


@triton.jit
def chosen(
    masses, floors, top_p, row, rows, chunks,
    CHUNKS: tl.constexpr, ROUND: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """After a round: the highest threshold that still holds top_p, and the chunks' masses from it
    on. masses: [rounds, rows, chunks, WAYS]; WIDTH: distance of the round's thresholds.
    floor: int64, as its sums with multiples of WIDTH need."""
    part, way = tl.arange(0, CHUNKS), tl.arange(0, _WAYS)
    here = (part < chunks)[:, None]
    at = row * chunks * _WAYS + part[:, None] * _WAYS + way[None, :]
    first = tl.load(masses + at, mask=here & (way == 0)[None, :], other=0.0)
    tried = tl.load(masses + ROUND * rows * chunks * _WAYS + at, mask=here, other=0.0)
    needed, held = top_p * tl.sum(tl.sum(first, 1), 0), tl.sum(tried, 0)
    needed = tl.where(top_p < 1.0, needed, float("inf"))
    best = tl.max(tl.where((held >= needed) & (held > 0.0), way, 0), 0)
    floor = tl.load(floors + ROUND * rows + row).to(tl.int64) + best.to(tl.int64) * WIDTH
    return floor, tl.sum(tl.where((way == best)[None, :], tried, 0.0), 1)


@triton.jit
def narrow_kernel(
    logits, temperature, top_p, peaks, masses, floors, stride, vocab,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr, ROUND: tl.constexpr,
    LOWEST: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One round: the mass of a chunk from each of 16 thresholds on, WIDTH keys apart."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows, chunks = tl.num_programs(0).to(tl.int64), tl.num_programs(1)
    heat = tl.load(temperature + row)
    if heat > _GREEDY:
        floor = tl.full((), LOWEST, tl.int64)
        if ROUND > 0:
            floor, _ = chosen(
                masses, floors, tl.load(top_p + row), row, rows, chunks,
                CHUNKS, ROUND - 1, WIDTH * _WAYS,
            )  # fmt: skip
        tl.store(floors + ROUND * rows + row, floor.to(tl.int32), mask=chunk == 0)
        index = chunk * CHUNK + tl.arange(0, CHUNK)
        x = tl.load(logits + row * stride + index, mask=index < vocab, other=-float("inf"))
        weight = weights(x, peaks + row * chunks, heat, chunks, CHUNKS)
        key, way = ordered_key(x), tl.arange(0, _WAYS)
        found = tl.zeros([_WAYS], tl.float32)
        for i in tl.static_range(_WAYS):
            threshold = (floor + i * WIDTH).to(tl.int32)
            mass = tl.sum(tl.where(key >= threshold, weight, 0.0), 0)
            found = tl.where(way == i, mass, found)
        at = ((ROUND * rows + row) * chunks + chunk) * _WAYS
        tl.store(masses + at + way, found)


@triton.jit
def first_above(mass, target):
    """The first index where the running sum exceeds target; the last with any mass where rounding
    leaves none."""
    index = tl.arange(0, mass.shape[0])
    hit = (tl.cumsum(mass, 0) > target) & (mass > 0.0)
    first = tl.min(tl.where(hit, index, _NONE), 0)
    last = tl.max(tl.where(mass > 0.0, index, 0), 0)
    return tl.minimum(first, last)


@triton.jit
def draw_kernel(
    logits, temperature, top_p, seeds, steps, peaks, places, masses, floors, out, stride, vocab,
    chunks, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, ROUNDS: tl.constexpr, FILTERED: tl.constexpr,
):  # fmt: skip
    """The token of a row, from what the other kernels found about its chunks."""
    row, rows = tl.program_id(0).to(tl.int64), tl.num_programs(0).to(tl.int64)
    part = tl.arange(0, CHUNKS)
    peak = tl.load(peaks + row * chunks + part, mask=part < chunks, other=-float("inf"))
    place = tl.load(places + row * chunks + part, mask=part < chunks, other=_NONE)
    token = tl.min(tl.where(peak == tl.max(peak, 0), place, _NONE), 0)
    heat = tl.load(temperature + row)
    if ROUNDS > 0:  # noqa: SIM102  a constant, which leaves the rest out only when it stands alone
        if heat > _GREEDY:
            floor, mass = chosen(
                masses, floors, tl.load(top_p + row, mask=FILTERED, other=1.0), row, rows, chunks,
                CHUNKS, ROUNDS - 1, 1,
            )  # fmt: skip
            word = tl.randint(tl.load(seeds + row), tl.load(steps + row)).to(tl.uint32)
            target = (word >> 8).to(tl.float32) * 5.9604644775390625e-08 * tl.sum(mass, 0)
            chunk = first_above(mass, target)
            index = chunk * CHUNK + tl.arange(0, CHUNK)
            x = tl.load(logits + row * stride + index, mask=index < vocab, other=-float("inf"))
            weight = weights(x, peaks + row * chunks, heat, chunks, CHUNKS)
            weight = tl.where(ordered_key(x) >= floor.to(tl.int32), weight, 0.0)
            rest = target - tl.sum(tl.where(part < chunk, mass, 0.0), 0)
            token = chunk * CHUNK + first_above(weight, rest)
    tl.store(out + row, token.to(tl.int64))


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    seeds: Tensor,
    steps: Tensor,
    out: Tensor | None = None,
    kind: Kind = "top_p",
) -> Tensor:
    """The next token of each row, on the device.

    logits: [rows, vocab], finite or -inf, rows may be apart; temperature: float32 [rows], greedy
    at and below 1e-3; top_p: float32 [rows]; seeds: int64 [rows]; steps: int32 [rows] -> int64
    [rows]. The random number of a row is Philox4x32-10 of its seed and step. kind: the most that
    any row asks for, where the caller knows it: "greedy" ignores temperature, "temperature" ignores
    top_p, and both save passes. Raises ContractError.
    """
    CONTRACTS["sample"].check(
        logits=logits, temperature=temperature, top_p=top_p, seeds=seeds, steps=steps, out=out
    )
    out = torch.empty_like(seeds) if out is None else out
    if logits.shape[0]:
        _launch(logits, temperature, top_p, seeds, steps, out, kind)
    return out


def _launch(
    logits: Tensor, temperature: Tensor, top_p: Tensor, seeds: Tensor, steps: Tensor, out: Tensor,
    kind: Kind,
) -> None:  # fmt: skip
    rows, vocab = logits.shape
    chunk = chunk_of(vocab)
    chunks = triton.cdiv(vocab, chunk)
    plan = search(8 * logits.element_size(), kind)
    rounds, size = len(plan.widths), {"CHUNK": chunk, "CHUNKS": power_of_two(chunks)}
    peaks = temperature.new_empty(rows, chunks)
    places, floors = (steps.new_empty(n) for n in ((rows, chunks), (rounds, rows)))
    masses = temperature.new_empty(rounds, rows, chunks, WAYS)
    stride, grid = logits.stride(0), (rows, chunks)
    largest_kernel[grid](logits, peaks, places, stride, vocab, CHUNK=chunk, num_warps=WARPS)
    for index, width in enumerate(plan.widths):
        narrow_kernel[grid](
            logits, temperature, top_p, peaks, masses, floors, stride, vocab,
            **size, ROUND=index, LOWEST=plan.lowest, WIDTH=width, num_warps=WARPS,
        )  # fmt: skip
    draw_kernel[(rows,)](
        logits, temperature, top_p, seeds, steps, peaks, places, masses, floors, out, stride, vocab,
        chunks, **size, ROUNDS=rounds, FILTERED=kind == "top_p", num_warps=WARPS,
    )  # fmt: skip
