"""What every scheduler must plan, written down once more without any of the engine's code.

Lists and counters only, sorted anew at every step, slow and plain: sequences know how many tokens
and blocks they have, never which. The rules are those of docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf

WINDOW_NS = 50_000_000  # how long an incomplete static cohort waits

Row = tuple[int, int, int, int, bool]  # request_id, start, tokens, padding, padded
Plan = tuple[list[Row], str, list[int], list[int]]  # rows, limit, admitted, preempted


@dataclass
class Asked:
    """One request. known: prompt and emitted tokens; again: computed once, then lost."""

    number: int
    tokens: list[int]
    prompt: int
    output: int
    arrived_ns: int
    known: int = 0
    computed: int = 0
    blocks: int = 0
    again: int = 0
    holds: bool = False  # a slot and blocks
    done: bool = False

    @property
    def prefills(self) -> bool:
        return self.computed < self.prompt or self.computed < self.again


@dataclass
class Gold:
    """Settings can be assigned between steps. prefix_cache: only where blocks are ample."""

    mode: str
    slots: int
    offered: int
    block_size: int
    budget: int
    prefix_cache: bool = False
    all: list[Asked] = field(default_factory=list)
    computed_contexts: set[tuple[int, ...]] = field(default_factory=set)

    def submit(self, tokens: list[int], prompt: int, now_ns: int) -> None:
        """tokens: the prompt and all that the model will answer."""
        asked = Asked(len(self.all), tokens, prompt, len(tokens) - prompt, now_ns, known=prompt)
        self.all.append(asked)

    def switch(self, mode: str) -> None:
        self.mode = mode
        self._free_the_done()

    def offer(self, blocks: int) -> None:
        live = [r.prompt + r.output for r in self.all if not r.done]
        self.offered = max([1, blocks, *map(self._blocks, live)])

    def step(self, now_ns: int) -> Plan:
        self.rows: list[Row] = []
        self.limit, self.admitted, self.preempted = "none", list[int](), list[int]()
        if self.mode == "no-batching":
            self._one_by_one()
        elif self.mode == "static":
            self._cohorts(now_ns)
        else:
            chunked = self.mode == "chunked"
            self._beside_decodes(max(1, self.budget - self._decodes()) if chunked else inf)
        self._compute()
        return self.rows, self.limit, self.admitted, self.preempted

    # --- who is where ---

    def _waiting(self) -> list[Asked]:
        return [r for r in self.all if not r.done and not r.holds]

    def _running(self) -> list[Asked]:
        return [r for r in self.all if not r.done and r.holds]

    def _padding(self) -> list[Asked]:
        return [r for r in self.all if r.done and r.holds]

    def _decodes(self) -> int:
        return len([r for r in self._running() if not r.prefills])

    def _free_the_done(self) -> None:
        for r in self._padding():
            r.holds, r.blocks = False, 0

    # --- the modes ---

    def _one_by_one(self) -> None:
        if not self._running() and self._waiting():
            self._admit(self._waiting()[0])
        if self._running():
            first = self._running()[0]
            self._plan(first, first.known - first.computed)
        if self._waiting() or len(self._running()) > 1:
            self._limited("sequences")

    def _beside_decodes(self, room: float) -> None:
        for r in self._running():
            if r.holds:  # it may have given way to an older one
                room -= self._next_chunk(r, room)
        while self._waiting() and not self.preempted:
            first = self._waiting()[0]
            if len(self._running()) >= self.slots:
                return self._limited("sequences")
            if room == 0:
                return self._limited("tokens")
            if self._blocks(first.known + 1) + self._spare() > self._free():
                return self._limited("blocks")
            self._admit(first)
            room -= max(1, self._next_chunk(first, room))
        return None

    def _next_chunk(self, r: Asked, room: float) -> int:
        left = r.known - r.computed
        if not r.prefills:
            self._plan(r, left)
            return 0
        tokens = int(min(left, room))
        if tokens < left:
            self._limited("tokens")
        return tokens if tokens and self._plan(r, tokens) else 0

    def _cohorts(self, now_ns: int) -> None:
        if self._running():
            for r in self._running():
                if r.holds:
                    self._plan(r, r.known - r.computed)
            for r in self._padding():
                if r.holds:
                    self._plan(r, 1)
            self.rows.sort()
        else:
            self._free_the_done()
            self._start_cohort(now_ns)
        if self._waiting() and self.rows:
            self._limited("sequences")

    def _start_cohort(self, now_ns: int) -> None:
        waiting = self._waiting()
        if not waiting:
            return
        if len(waiting) < self.slots and now_ns < waiting[0].arrived_ns + WINDOW_NS:
            return
        size = min(len(waiting), self.slots)
        while self._need(waiting[:size]) > self._free():
            size -= 1
        if size < min(len(waiting), self.slots):
            self._limited("blocks")
        longest = max(r.known for r in waiting[:size])
        for r in waiting[:size]:
            self._admit(r)
            self._plan(r, r.known - r.computed, longest - r.known)

    def _need(self, members: list[Asked]) -> int:
        longest = max(r.known for r in members)
        return sum(self._blocks(max(longest, r.prompt + r.output)) for r in members)

    # --- tokens and blocks ---

    def _admit(self, r: Asked) -> None:
        r.holds, r.computed = True, 0
        while self.prefix_cache and r.computed + self.block_size < r.known:
            if tuple(r.tokens[: r.computed + self.block_size]) not in self.computed_contexts:
                break
            r.computed += self.block_size
        r.blocks = self._blocks(r.computed)
        self.admitted.append(r.number)

    def _plan(self, r: Asked, tokens: int, padding: int = 0) -> bool:
        need = self._blocks(r.computed + tokens + padding)
        while need - r.blocks > max(0, self._free()):
            self.limit = "blocks"
            victim = (self._padding() or self._running())[-1]
            if not victim.done:
                self.preempted.append(victim.number)
                victim.again = max(victim.again, victim.computed)
                victim.computed = 0
            victim.holds, victim.blocks = False, 0
            if victim is r:
                return False
        r.blocks = max(need, r.blocks)
        self.rows.append((r.number, r.computed, tokens, padding, r.done))
        return True

    def _compute(self) -> None:
        for number, start, tokens, _, padded in self.rows:
            r = self.all[number]
            if not padded:
                r.computed = start + tokens
                r.known += r.computed == r.known
                r.done = r.known == r.prompt + r.output
                for end in range(self.block_size, r.computed + 1, self.block_size):
                    self.computed_contexts.add(tuple(r.tokens[:end]))
        if self.mode != "static" or not self._running():
            self._free_the_done()

    def _blocks(self, tokens: int) -> int:
        return ceil(tokens / self.block_size)

    def _free(self) -> int:
        return self.offered - sum(r.blocks for r in self.all)

    def _spare(self) -> int:
        """For those that run: all they know, and one block more for each."""
        return sum(max(0, self._blocks(r.known) + 1 - r.blocks) for r in self._running())

    def _limited(self, what: str) -> None:
        self.limit = what if self.limit == "none" else self.limit
