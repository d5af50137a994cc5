"""How wrong `stepscope replay` is: one recorded run, predictions, and the same runs for real.

    .venv/bin/python -m tests.bench.replay_honesty [--requests N] [--budget N] [--out FILE]

Records azure-conv under `continuous`, predicts other schedulers from that one recording, then runs
each for real and prints a Markdown table. `continuous` is among them: how its second run differs
from the first is what this machine differs by from one minute to the next, and no prediction can
be better. Three loads: the trace's own arrivals, which leave the engine idle at times, so that the
arrivals set the throughput; a rate beyond what it can serve, where the steps do; and a modelled
device, whose steps have no noise, so that what is left is the error of the method.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIGURES = (
    ("tokens/s", "output_tokens_per_s", None),
    ("TPOT P50", "tpot_s", "p50"),
    ("ITL P99", "itl_s", "p99"),
    ("worst ITL", "itl_s", "max"),
    ("TTFT P50", "ttft_s", "p50"),
)
ORDERED = (("ITL P99", "itl_s", "p99"), ("worst ITL", "itl_s", "max"))
SCHEDULERS = ("continuous", "chunked", "static")
MODELLED = [
    *("--backend", "modelled", "--device", "h100-sxm", "--model", "llama-3.1-8b"),
    *("--requests", "150", "--rate", "12", "--max-batch", "32", "--chunk-tokens", "256"),
]
TARGETS = {"tokens/s": 0.15, "TPOT P50": 0.15}


def stepscope(*arguments: str) -> dict[str, Any]:
    """A command's JSON, from a process of its own: as anyone would run it."""
    command = [sys.executable, "-c", "from app.cli import main; main()", *arguments, "--json"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(found.stderr.strip())
    result: dict[str, Any] = json.loads(found.stdout)
    return result


def figure(summary: dict[str, Any], key: str, inner: str | None) -> float:
    """One figure of a run's summary."""
    return float(summary[key][inner] if inner else summary[key])


def measure(folder: Path, load: list[str]) -> dict[str, Any]:
    """Recorded, predicted and real summaries of one load."""
    settings = ["--workload", "azure-conv", *load]

    def record(scheduler: str, name: str) -> dict[str, Any]:
        print(f"running {scheduler} {' '.join(load)}", file=sys.stderr)
        db = str(folder / f"{name}.duckdb")
        return stepscope("run", "--scheduler", scheduler, "--db", db, *settings)

    recorded = record("continuous", "recorded")
    told = {s: stepscope("replay", recorded["db"], "--scheduler", s) for s in SCHEDULERS}
    return {
        "recorded": recorded,
        "predicted": {s: told[s]["predicted"] for s in SCHEDULERS},
        "model": told["static"]["model"],
        "real": {s: record(s, s) for s in SCHEDULERS},
    }


def table(found: dict[str, Any]) -> Iterator[str]:
    """Predicted, its range, real, and the error, by scheduler and figure."""
    yield "| scheduler | figure | predicted | range | real | error | within 15% |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- |"
    for scheduler in SCHEDULERS:
        predicted, real = found["predicted"][scheduler], found["real"][scheduler]
        for name, key, inner in FIGURES:
            guess, truth = figure(predicted, key, inner), figure(real, key, inner)
            low, high = (figure(predicted[end], key, inner) for end in ("low", "high"))
            error = guess / truth - 1
            target = TARGETS.get(name)
            kept = "" if target is None else "yes" if abs(error) <= target else "no"
            cells = (scheduler, name, shown(key, guess), f"{shown(key, low)}–{shown(key, high)}")
            yield f"| {' | '.join((*cells, shown(key, truth), f'{error:+.1%}', kept))} |"


def shown(key: str, value: float) -> str:
    """Three figures: milliseconds for times, plain for rates."""
    return f"{value:,.1f}" if key == "output_tokens_per_s" else f"{value * 1e3:,.1f} ms"


def orders(found: dict[str, Any]) -> Iterator[str]:
    """Schedulers from the shortest to the longest, as predicted and as they were."""
    for name, key, inner in ORDERED:
        by = {side: ordered(found[side], key, inner) for side in ("predicted", "real")}
        verdict = "the same" if by["predicted"] == by["real"] else "not the same"
        sides = "; ".join(f"{side} {' < '.join(order)}" for side, order in by.items())
        yield f"Order by {name}: {sides}: {verdict}."


def ordered(summaries: dict[str, Any], key: str, inner: str | None) -> list[str]:
    """Schedulers by a figure, the least first."""
    return sorted(SCHEDULERS, key=lambda s: figure(summaries[s], key, inner))


def repeatability(found: dict[str, Any]) -> Iterator[str]:
    """What the machine itself differs by: continuous for real, against its recording."""
    parts = []
    for name, key, inner in FIGURES:
        again = figure(found["real"]["continuous"], key, inner)
        parts.append(f"{name} {again / figure(found['recorded'], key, inner) - 1:+.1%}")
    yield f"The same run again, beside its recording: {', '.join(parts)}."


def report(name: str, found: dict[str, Any]) -> str:
    """One load as Markdown."""
    lines = [f"### {name}", "", *table(found), "", *orders(found), "", *repeatability(found), ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="How wrong stepscope replay is.")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rate", type=float, default=10.0, help="of the second load, requests/s")
    parser.add_argument("--budget", type=int, default=64, help="token budget of chunked on the CPU")
    parser.add_argument("--only", choices=("arrivals", "rate", "modelled"), help="one of the loads")
    parser.add_argument("--out", type=Path, help="save all summaries as JSON here")
    o = parser.parse_args()
    on_cpu = ["--requests", str(o.requests), "--chunk-tokens", str(o.budget)]
    loads = {
        "arrivals": ("CPU, the trace's own arrivals", on_cpu),
        "rate": (f"CPU, {o.rate:g} requests/s", [*on_cpu, "--rate", f"{o.rate:g}"]),
        "modelled": ("Modelled H100, llama-3.1-8b, 12 requests/s", MODELLED),
    }
    results = {}
    for load in [o.only] if o.only else list(loads):
        name, settings = loads[load]
        with tempfile.TemporaryDirectory() as folder:
            results[load] = measure(Path(folder), settings)
        print(report(name, results[load]), flush=True)
    if o.out is not None:
        o.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
