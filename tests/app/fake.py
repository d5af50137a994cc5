"""A session without an engine: a store, and a note of what was asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.ramp import Ramp
from app.state import Phase
from engine.config import EngineConfig
from engine.errors import UserError
from engine.messages import Load, LoadDone, Pace, Progress, Ready, Rejected, Start, Status
from telemetry.clock import sleep_s
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
        run={"model": "SmolLM2-135M-Instruct", "dtype": "bf16", "clock": "real"},
        tokenizer_json="{}",
        eos_token_ids=(2,),
        model={"total_params": 134_515_008},
        limits={"max_context": 8192, "max_batch": 64, "block_size": 16, "kv_blocks_capacity": 640},
        schedulers=("no-batching", "static", "continuous", "chunked"),
        workloads=("skew", "steady"),
    )


def status(**changes: Any) -> Status:
    """An engine at its defaults but for the changes."""
    usual = Status("continuous", 10, 256, False, 640, False, Load("steady", 4))
    return replace(usual, **changes)


@dataclass
class FakeSession:
    """Applies commands to its status at once, unless deaf."""

    store: Store
    phase: Phase = "ready"
    progress: Progress | None = None
    failure: str | None = None
    ready: Ready | None = field(default_factory=ready)
    status: Status | None = field(default_factory=lambda: status())
    run_id: str | None = RUN_ID
    engine_pid: int | None = None
    pace: Pace | None = None
    load_done: LoadDone | None = None
    started_with: Start = field(default_factory=lambda: Start(EngineConfig(), Load("chat", 2)))
    cpu_config: EngineConfig = field(default_factory=EngineConfig)
    refuses: str | None = None
    last_ticket: str | None = None
    token_text: Callable[[Sequence[int]], list[str]] | None = None
    deaf: bool = False
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    rejections: list[Rejected] = field(default_factory=list)
    answers: dict[str, FakeAnswer] = field(default_factory=dict)

    def _set(self, **changes: Any) -> None:
        if self.status is not None and not self.deaf:
            self.status = replace(self.status, **changes)

    def submit_text(
        self, text: str, max_tokens: int = 1, temperature: float = 0.0, seed: int | None = None
    ) -> str:
        self.asked.append(("submit", text))
        self.last_ticket = f"t{len(self.answers)}"
        self.answers[self.last_ticket] = FakeAnswer(text)
        return self.last_ticket

    def answer(self, ticket: str) -> FakeAnswer | None:
        return self.answers.get(ticket)

    def inject(self, prompt_tokens: int, max_tokens: int = 8) -> None:
        self.asked.append(("inject", prompt_tokens))

    def cancel(self, ticket: str) -> None:
        self.asked.append(("cancel", ticket))

    def configure(
        self,
        scheduler: str | None = None,
        max_batch: int | None = None,
        chunk_tokens: int | None = None,
        prefix_cache: bool | None = None,
        kv_blocks: int | None = None,
    ) -> None:
        given = {
            "scheduler": scheduler,
            "max_batch": max_batch,
            "chunk_tokens": chunk_tokens,
            "prefix_cache": prefix_cache,
            "kv_blocks": kv_blocks,
        }
        changes = {k: v for k, v in given.items() if v is not None}
        self.asked.append(("configure", changes))
        self._set(**changes)

    def load(
        self,
        workload: str,
        concurrency: int | None = None,
        rate: float | None = None,
        requests: int | None = None,
        seed: int = 0,
    ) -> None:
        self.asked.append(("load", workload, concurrency, rate))
        self._set(load=Load(workload, concurrency, rate, requests, seed))

    def ramp(self, ramp: Ramp) -> None:
        self.asked.append(("ramp", ramp))
        self._set(load=Load(ramp.workload, ramp.levels[0]))

    def stop_load(self) -> None:
        self.asked.append(("stop_load",))
        self._set(load=None)

    def pause(self) -> None:
        self.asked.append(("pause",))
        self._set(paused=True)

    def resume(self) -> None:
        self.asked.append(("resume",))
        self._set(paused=False)

    def step_once(self) -> None:
        self.asked.append(("step_once",))

    def mark(self, kind: str, detail: dict[str, Any]) -> None:
        self.asked.append(("mark", kind, detail))

    def wait(self, timeout_s: float | None = None) -> None:
        sleep_s(0.01)

    def new_run(self, config: EngineConfig, load: Load | None) -> None:
        if self.refuses:
            raise UserError(self.refuses)
        self.asked.append(("new_run", config, load))

    def close(self) -> None:
        self.store.close()
