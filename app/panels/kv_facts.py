"""What the blocks of one step come to: shares, room, sharing, and how many more sequences fit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import known
from app.figures.kv_budget import Memory


@dataclass(frozen=True, slots=True)
class Facts:
    """Counts of blocks at one step; None is not reported, or has no meaning yet.

    context: mean tokens of the sequences in the batch, rounded. fits: how many more of that length
    the blocks that nobody uses would hold. room_tokens: room in last blocks. saved: blocks that
    would be needed more if nothing were shared, None where blocks are used and none is told.
    most_shared: holders of the most shared block.
    """

    total: int | None
    used: int | None
    cached: int | None
    sequences: int
    context: int | None
    fits: int | None
    room_tokens: int | None
    saved: int | None
    most_shared: int

    @property
    def free(self) -> int | None:
        """Offered and empty; after fewer are offered there may be none for a while."""
        if self.total is None or self.used is None:
            return None
        return max(0, self.total - self.used - (self.cached or 0))

    @property
    def used_share(self) -> float | None:
        return self.used / self.total if self.total and self.used is not None else None

    def room_share(self, block_size: int | None) -> float | None:
        """Room in last blocks, of all that the used blocks could hold."""
        if not block_size or not self.used or self.room_tokens is None:
            return None
        return self.room_tokens / (self.used * block_size)


def facts(
    state: dict[str, Any], blocks: pd.DataFrame, holders: pd.DataFrame, block_size: int | None
) -> Facts:
    """state, blocks, holders: from `queries.kv_cache`, at the same step."""
    total, used, cached = (
        _whole(state[f"kv_blocks_{name}"]) for name in ("total", "used", "cached")
    )
    held = holders[holders["context_tokens"] > 0]
    if len(blocks):
        held = held[held["request_id"].isin(blocks["request_id"].dropna())]
    context = round(float(held["context_tokens"].mean())) if len(held) else None
    shared = blocks[blocks["refs"] > 1]["refs"]
    return Facts(
        total=total,
        used=used,
        cached=cached,
        sequences=len(held),
        context=context,
        fits=_fits(total, used, context, block_size),
        room_tokens=_room(held, block_size),
        saved=None if blocks.empty and used != 0 else int((shared - 1).sum()),
        most_shared=int(shared.max()) if len(shared) else 0,
    )


def _whole(value: Any) -> int | None:
    number = known(value)
    return None if number is None else int(number)


def _fits(
    total: int | None, used: int | None, context: int | None, block_size: int | None
) -> int | None:
    """Cached blocks give way to a sequence that needs them."""
    if total is None or used is None or not context or not block_size:
        return None
    return max(0, total - used) // -(-context // block_size)


def _room(held: pd.DataFrame, block_size: int | None) -> int | None:
    if not block_size or held.empty:
        return None
    return int((-held["context_tokens"] % block_size).sum())


def block_size(run: dict[str, Any]) -> int | None:
    """Tokens of a block, None where the source does not say."""
    config = json.loads(run["config"] or "{}")
    return _whole((config.get("engine") or {}).get("block_size"))


def memory(
    run: dict[str, Any],
    state: dict[str, Any],
    found: Facts,
    token_bytes: float | None,
) -> Memory:
    """The budget in bytes; the capacity is known of a modelled device."""
    config = json.loads(run["config"] or "{}")
    size = block_size(run)
    each = token_bytes * size if token_bytes and size else None
    assumed = config.get("assumptions") or {}
    capacity = known(assumed.get("memory_bytes"))
    if capacity is not None:
        capacity *= int(assumed.get("devices", 1))
    share = known(assumed.get("usable_memory"))
    return Memory(
        weights=known(config.get("weight_bytes")),
        used=_times(found.used, each),
        cached=_times(found.cached, each),
        free=_times(found.free, each),
        activations=known(state["activation_bytes"]),
        usable=capacity * share if capacity and share else None,
        capacity=capacity if share else None,
    )


def _times(blocks: int | None, each: float | None) -> float | None:
    return blocks * each if blocks is not None and each is not None else None
