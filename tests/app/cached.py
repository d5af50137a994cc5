"""A simulated run whose KV blocks are kept by the engine's own block manager."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.block_manager import BlockManager
from tests.app.synthetic import BLOCK, Simulation

PREFIX = 3 * BLOCK


@dataclass
class CachedSimulation(Simulation):
    """All prompts begin with the same three blocks; the cache has 120."""

    blocks: BlockManager = field(
        default_factory=lambda: BlockManager(120, BLOCK, prefix_cache=True)
    )
    # What the books said after each step: block -> (state, holders).
    books: list[dict[int, tuple[str, list[int]]]] = field(default_factory=list)

    def advance(self) -> bool:
        step = self.step
        if not super().advance():
            return False
        ran = [r for r in self.rows["sequence_steps"] if r["step"] == step]
        for row in ran:
            self._grow(row["request_id"], row["context_tokens"])
        self._record(step)
        for row in ran:
            if self.all_sequences[row["request_id"]].done:
                self.blocks.release(row["request_id"])
        return True

    def _grow(self, request_id: int, context: int) -> None:
        tokens = [*range(PREFIX), *(1000 + request_id for _ in range(context - PREFIX))]
        if request_id not in self._held():
            self.blocks.open(request_id, tokens)
        assert self.blocks.grow(request_id, context)
        self.blocks.commit(request_id, tokens, context)

    def _held(self) -> set[int]:
        return set(self.blocks._tables)

    def _record(self, step: int) -> None:
        evictions = self.blocks.evictions
        for change in self.blocks.drain():
            self.rows["blocks"].append({"step": step, **change._asdict()})
        self.rows["steps"][-1] |= {
            "kv_blocks_total": self.blocks.num_blocks,
            "kv_blocks_used": self.blocks.num_used,
            "kv_blocks_cached": self.blocks.num_cached,
            "evictions": evictions,
        }
        self.books.append(self._now())

    def _now(self) -> dict[int, tuple[str, list[int]]]:
        found: dict[int, tuple[str, list[int]]] = {}
        for owner, table in self.blocks._tables.items():
            for block in table:
                found.setdefault(block, ("used", []))[1].append(owner)
        return found | {block: ("cached", []) for block in self.blocks._cached}

    def run_row(self) -> dict[str, Any]:
        return super().run_row() | {
            "config": '{"engine": {"block_size": 16}, "weight_bytes": 269030016}'
        }


def cached_run() -> CachedSimulation:
    """Twelve requests in four slots; prompts of about 80 tokens."""
    simulation = CachedSimulation(slots=4)
    simulation.arrive(12, prompt=80)
    while simulation.advance():
        pass
    return simulation
