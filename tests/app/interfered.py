"""Eight simulated streams, and one long prompt that was injected among them."""

from __future__ import annotations

from typing import Any

from telemetry.store import Store
from tests.app.synthetic import RUN_ID, Simulation

STREAMS, PROMPT = 8, 1024


class Interfered(Simulation):
    """A closed loop of long answers; `inject` puts a prompt among them."""

    def __init__(self, **more: Any) -> None:
        super().__init__(slots=STREAMS + 1, **more)
        self.injected: set[int] = set()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            while len(self.running) + len(self.waiting) < STREAMS:
                self.arrive(1)
                self.all_sequences[-1].outputs = 2_000
            self.advance()

    def inject(self) -> int:
        """The number of its request; it runs with the next step."""
        self.arrive(1)
        made = self.all_sequences[-1]
        made.prompt, made.outputs = PROMPT, 8
        self.injected.add(made.request_id)
        self.event("inject", f'{{"request_id": {made.request_id}, "prompt_tokens": {PROMPT}}}')
        return made.request_id

    def _request_rows(self) -> list[dict[str, Any]]:
        rows = super()._request_rows()
        for row in rows:
            row["label"] = "inject" if row["request_id"] in self.injected else "steady:request"
        return rows


def interfered(before: int = 120, after: int = 120) -> Interfered:
    """One run: streams, the injection, streams again."""
    made = Interfered()
    made.run(before)
    made.inject()
    made.run(after)
    return made


def written(made: Simulation, store: Store, *leave_out: str) -> str:
    """Commit it without the tables that its source does not report."""
    for table in leave_out:
        made.rows[table] = []
    made.write(store)
    return RUN_ID
