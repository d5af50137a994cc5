"""A session without an engine: a store, and a note of what was asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.state import Phase
from engine.messages import Load, Progress, Ready, Status
from telemetry.store import Store
from tests.app.synthetic import RUN_ID


@dataclass
class FakeAnswer:
    prompt: str
    text: str = ""
    done: bool = False
    reason: str | None = None
    error: str | None = None


def ready() -> Ready:
    return Ready(
        run={"model": "SmolLM2-135M-Instruct", "dtype": "bf16"},
        tokenizer_json="{}",
        eos_token_ids=(2,),
        model={"total_params": 134_515_008},
        limits={"max_context": 8192, "max_batch": 64},
        schedulers=("no-batching", "static", "continuous"),
        workloads=("skew", "steady"),
    )


@dataclass
class FakeSession:
    """Applies commands to its status at once, unless deaf."""

    store: Store
    phase: Phase = "ready"
    progress: Progress | None = None
    failure: str | None = None
    ready: Ready | None = field(default_factory=ready)
    status: Status | None = field(
        default_factory=lambda: Status("continuous", 10, False, Load("steady", 4))
    )
    run_id: str | None = RUN_ID
    engine_pid: int | None = None
    last_ticket: str | None = None
    deaf: bool = False
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    answers: dict[str, FakeAnswer] = field(default_factory=dict)

    def _set(self, what: str, **change: Any) -> None:
        self.asked.append((what, *change.values()))
        old = self.status
        if old is None or self.deaf:
            return
        facts = {"scheduler": old.scheduler, "max_batch": old.max_batch, "paused": old.paused}
        known = {k: v for k, v in change.items() if v is not None or k == "load"}
        self.status = Status(**({**facts, "load": old.load} | known))

    def submit_text(
        self, text: str, max_tokens: int = 1, temperature: float = 0.0, seed: int | None = None
    ) -> str:
        self.asked.append(("submit", text))
        self.last_ticket = f"t{len(self.answers)}"
        self.answers[self.last_ticket] = FakeAnswer(text)
        return self.last_ticket

    def answer(self, ticket: str) -> FakeAnswer | None:
        return self.answers.get(ticket)

    def cancel(self, ticket: str) -> None:
        self.asked.append(("cancel", ticket))

    def configure(self, scheduler: str | None = None, max_batch: int | None = None) -> None:
        self._set("configure", scheduler=scheduler, max_batch=max_batch)

    def load(
        self, workload: str, concurrency: int | None = None, rate: float | None = None
    ) -> None:
        self._set("load", load=Load(workload, concurrency, rate))

    def stop_load(self) -> None:
        self._set("stop_load", load=None)

    def pause(self) -> None:
        self._set("pause", paused=True)

    def resume(self) -> None:
        self._set("resume", paused=False)

    def step_once(self) -> None:
        self.asked.append(("step_once",))

    def close(self) -> None:
        self.store.close()
