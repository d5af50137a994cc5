"""Decode at batch 1 in bf16: Stepscope's whole step against transformers' generate.

Same machine, threads, GGUF weights, prompt and number of tokens, greedy, one after the other and
then again. Run it with `make bench`, on an idle machine; see README.md here.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

from app.wiring import Session
from engine.calibration import device_name
from engine.config import EngineConfig
from engine.huge_pages import restart_with_huge_pages
from engine.models.loader import default_model_path, open_model
from engine.models.names import DEFAULT_MODEL
from engine.threads import available_cores, check_threads
from telemetry.clock import now_ns, seconds, sleep_s

PROMPT = (
    "A river begins in the hills as a thread of cold water between stones. Further down it is "
    "wide and slow, and towns have grown along it. Write on: what does the river see on its way "
    "from the hills to the sea, and whom does it meet?"
)
TARGET = 1.5
IDLE_CORES = 0.15
LOOK_S = 3.0


@dataclass(frozen=True, slots=True)
class Round:
    """One generation: seconds from one token to the next, on average, and what was said."""

    step_s: float
    token_ids: list[int]


class StepscopeSide:
    """The engine in its process with its recorder, and the store that keeps every record."""

    name = "stepscope"

    def __init__(self, threads: int, tokens: int, folder: Path) -> None:
        self._load = folder / "bench.jsonl"
        row = {"timestamp": 0, "input_length": 1, "output_length": tokens, "prompt": PROMPT}
        self._load.write_text(json.dumps(row) + "\n")
        config = EngineConfig(dtype="bf16", max_batch=1, threads=threads)
        self._session = Session(config, folder / "bench.duckdb")
        while self._session.phase == "starting":
            self._session.wait(0.2)
        if self._session.phase == "failed":
            raise SystemExit(f"stepscope: {self._session.failure}")

    @property
    def pid(self) -> int:
        return self._session.engine_pid

    def generate(self) -> Round:
        session = self._session
        done = session.finished_requests
        session.load(str(self._load), requests=1)
        while session.finished_requests == done:
            session.wait(1.0)
        sleep_s(0.3)  # the last envelope and its commit
        with session.store.reader() as reader:
            rows = reader.rows(
                "SELECT t_ns, token_id FROM tokens WHERE request_id = "
                '(SELECT max(request_id) FROM tokens) ORDER BY "index"'
            )
        return _round([t_ns for t_ns, _ in rows], [token for _, token in rows])

    def close(self) -> None:
        self._session.close()


class TransformersSide:
    """`generate` with its default cache, on the weights of the same GGUF."""

    name = "transformers"

    def __init__(self, threads: int, tokens: int) -> None:
        import transformers

        torch.set_num_threads(threads)
        path = default_model_path()
        models: Any = transformers.AutoModelForCausalLM
        self._model = models.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.bfloat16)
        self._model.eval()
        ids = open_model(DEFAULT_MODEL).tokenizer.encode(PROMPT)
        self._prompt = torch.tensor([ids])
        # No token ends it, as in the workload of the other side: None alone means the model's own.
        self._model.generation_config.eos_token_id = self._model.config.eos_token_id = None
        settings: Any = transformers.GenerationConfig
        self._settings = settings(max_new_tokens=tokens, do_sample=False, pad_token_id=0)

    def generate(self) -> Round:
        stamps = _Stamps()
        with torch.inference_mode():
            self._model.generate(
                self._prompt,
                attention_mask=torch.ones_like(self._prompt),
                generation_config=self._settings,
                streamer=stamps,
            )
        return _round(stamps.t_ns[1:], stamps.token_ids[1:])


class _Stamps:
    """A streamer that keeps when each token came; the first call brings the prompt."""

    def __init__(self) -> None:
        self.t_ns: list[int] = []
        self.token_ids: list[int] = []

    def put(self, value: torch.Tensor) -> None:
        self.t_ns.append(now_ns())
        self.token_ids.append(int(value.reshape(-1)[-1]))

    def end(self) -> None:
        """Nothing is held back."""


def _round(t_ns: list[int], token_ids: list[int]) -> Round:
    if len(t_ns) < 2:
        raise RuntimeError(f"{len(t_ns)} tokens were generated: a gap needs two")
    return Round(seconds(t_ns[-1] - t_ns[0]) / (len(t_ns) - 1), token_ids)


# --- is the machine idle? ---


def _busy_s(ours: list[int]) -> float:
    """CPU seconds since boot of everything but these processes; stolen time counts."""
    machine = psutil.cpu_times()
    busy = machine.user + machine.system + getattr(machine, "steal", 0.0)
    own = [psutil.Process(pid).cpu_times() for pid in ours]
    return float(busy - sum(t.user + t.system for t in own))


def foreign_cores(ours: list[int], act: Callable[[], Any]) -> float:
    """Cores that others kept busy while `act` ran."""
    started_ns, before = now_ns(), _busy_s(ours)
    act()
    return max(0.0, (_busy_s(ours) - before) / seconds(now_ns() - started_ns))


# --- the comparison ---


def compare(threads: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Figures of both sides, measured in turn."""
    with tempfile.TemporaryDirectory() as folder:
        ours = StepscopeSide(threads, tokens, Path(folder))
        try:
            return _alternate(ours, TransformersSide(threads, tokens), threads, rounds)
        finally:
            ours.close()


def _alternate(
    ours: StepscopeSide, theirs: TransformersSide, threads: int, rounds: int
) -> dict[str, Any]:
    pids = [psutil.Process().pid, ours.pid]
    before = foreign_cores(pids, lambda: sleep_s(LOOK_S))
    found: dict[str, list[Round]] = {ours.name: [], theirs.name: []}
    ours.generate(), theirs.generate()  # warm

    def measure() -> None:
        for _ in range(rounds):
            found[ours.name].append(ours.generate())
            found[theirs.name].append(theirs.generate())

    during = foreign_cores(pids, measure)
    return _result(found, threads, {"before": before, "during": during})


def _result(
    found: dict[str, list[Round]], threads: int, foreign: dict[str, float]
) -> dict[str, Any]:
    sides = {name: _side(rounds) for name, rounds in found.items()}
    ours, theirs = (rounds[0].token_ids for rounds in found.values())
    pairs = zip(*found.values(), strict=True)
    ratios = [their.step_s / our.step_s for our, their in pairs]
    return {
        "machine": machine(threads),
        "prompt_tokens": len(open_model(DEFAULT_MODEL).tokenizer.encode(PROMPT)),
        "output_tokens": len(ours),
        "equal_tokens": next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), len(ours)
        ),
        "sides": sides,
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "target": TARGET,
        "foreign_cores": foreign,
        "idle": max(foreign.values()) < IDLE_CORES,
    }


def _side(rounds: list[Round]) -> dict[str, float]:
    steps = sorted(r.step_s for r in rounds)
    median = statistics.median(steps)
    return {
        "step_s": median,
        "low_s": steps[0],
        "high_s": steps[-1],
        "spread": (steps[-1] - steps[0]) / median,
        "tokens_per_s": 1 / median,
    }


def machine(threads: int) -> dict[str, Any]:
    """What the figures belong to."""
    return {
        "device": device_name(),
        "threads": threads,
        "cores": available_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("stepscope", "torch", "transformers")},
    }


def print_result(result: dict[str, Any]) -> None:
    """For people."""
    facts = result["machine"]
    print(
        f"{facts['device']}, {facts['threads']} of {facts['cores']} cores, torch {facts['torch']}"
    )
    print(
        f"bf16, batch 1, {result['prompt_tokens']} prompt + {result['output_tokens']} output "
        f"tokens; the first {result['equal_tokens']} are the same on both sides"
    )
    for name, side in result["sides"].items():
        print(
            f"{name:>12}: {side['step_s'] * 1e3:6.2f} ms a step "
            f"({side['low_s'] * 1e3:.2f} to {side['high_s'] * 1e3:.2f})"
        )
    low, high = result["ratio_low"], result["ratio_high"]
    print(f"stepscope is {result['ratio']:.2f} times faster ({low:.2f} to {high:.2f})")
    if not result["idle"]:
        busiest = max(result["foreign_cores"].values())
        print(f"others kept {busiest:.2f} cores busy: these figures do not count, run it again")


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    threads: int
    tokens: int
    rounds: int
    json: Path | None


def options(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7, help="alternations, 5 or more")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    found = parser.parse_args(arguments)
    if found.rounds < 5 or found.tokens < 16:
        parser.error("use 5 rounds or more, and 16 tokens or more")
    check_threads(found.threads)
    return Options(found.threads, found.tokens, found.rounds, found.json)


def main(arguments: list[str]) -> int:
    """0: idle machine and target met; 1: slower than the target; 3: the machine was busy."""
    asked = options(arguments)
    restart_with_huge_pages()  # both sides, since the engine's process has them
    result = compare(asked.threads, asked.tokens, asked.rounds)
    print_result(result)
    if asked.json is None:
        print(json.dumps(result))
    else:
        asked.json.write_text(json.dumps(result, indent=2) + "\n")
    if not result["idle"]:
        return 3
    return 0 if result["ratio"] >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
