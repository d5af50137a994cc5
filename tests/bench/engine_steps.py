"""Steps per second of everything but the model: this tree against an older commit, as JSON.

    python tests/bench/engine_steps.py --before efb504b --rounds 3 --out steps.json

Both trees run their own session, engine process and database; only the model is replaced, by one
that computes nothing (`engine_steps_child`). Rounds alternate and swap who begins, so that a
machine that changes its speed treats both alike. The older tree is a git worktree in a temporary
folder, which is removed afterwards.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("engine_steps_worker.py")
# slots: how many requests of about a thousand tokens each, so that decodes are most of the work.
CASES = {256: 768, 32: 64, 1: 2}


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """The files of a commit in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write_load(path: Path, requests: int) -> None:
    """Prompts of 64 … 192 tokens and answers of 800 … 1,200."""
    rng = random.Random(requests)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        for _ in range(requests):
            lengths = (rng.randint(64, 192), rng.randint(800, 1200))
            writer.writerow(["2023-11-16 18:15:46.0000000", *lengths])


def run_once(tree: Path, slots: int, requests: int) -> dict[str, Any]:
    """One run of one tree in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        load, cpu = Path(folder) / "load.csv", Path(folder) / "cpu.json"
        write_load(load, requests)
        environment = os.environ | {"PYTHONPATH": str(tree), "ENGINE_STEPS_CPU": str(cpu)}
        arguments = [str(slots), str(requests), str(load), str(Path(folder) / "run.db")]
        done = subprocess.run(
            [sys.executable, str(WORKER), *arguments],
            cwd=tree,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        engine = json.loads(cpu.read_text())
    found: dict[str, Any] = json.loads(done.stdout)
    found["engine_cpu_us"] = (engine["end"] - engine["ready"]) / found["steps"] * 1e6
    return found


def compare(before: Path, rounds: int, slots: list[int]) -> dict[str, Any]:
    trees = {"before": before, "after": ROOT}
    runs: list[dict[str, Any]] = []
    for number in range(rounds):
        for count in slots:
            for name in sorted(trees, reverse=bool(number % 2)):
                found = run_once(trees[name], count, CASES[count])
                runs.append({"tree": name, "slots": count, "round": number, **found})
                print(json.dumps(runs[-1]), file=sys.stderr)
    return {"cases": {str(n): _case(runs, n) for n in slots}, "runs": runs}


def _case(runs: list[dict[str, Any]], slots: int) -> dict[str, Any]:
    """Medians over the rounds, and how many times faster the tree after is."""
    figures = ("steps_per_s", "step_s", "engine_cpu_us", "owner_cpu_us")
    case: dict[str, Any] = {}
    for tree in ("before", "after"):
        mine = [r for r in runs if (r["tree"], r["slots"]) == (tree, slots)]
        case[tree] = {name: statistics.median(r[name] for r in mine) for name in figures}
    case["ratio"] = case["after"]["steps_per_s"] / case["before"]["steps_per_s"]
    return case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default="efb504b", help="commit to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--out", type=Path, help="JSON file; otherwise it is printed")
    options = parser.parse_args()
    commits = {"before": options.before, "after": _git("describe", "--always", "--dirty")}
    with tree_of(options.before) as before:
        found = {"commits": commits, **compare(before, options.rounds, options.slots)}
    text = json.dumps(found, indent=2)
    if options.out is None:
        print(text)
    else:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
