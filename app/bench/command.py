"""The bench from its options to its result."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from app.bench import measures
from app.bench.against import compare
from app.bench.context import Bench, spread_row
from app.bench.dtypes import BASELINE, REFERENCE, compare_dtypes
from app.bench.environments import peers_folder, python_of
from app.bench.machine import CLEAN_FOREIGN, describe, memory_bytes
from app.bench.options import PEER_DTYPES, PEER_SECTIONS, BenchOptions
from app.bench.side import Side
from app.bench.sides import Sides
from app.bench.stats import Spread
from engine.config import AUTO, DTYPES
from engine.errors import UserError
from telemetry.clock import seconds

Result = dict[str, Any]

STARTS = 3
BETWEEN_DTYPES = {"quality", "linears"}


def run_bench(options: BenchOptions) -> Result:
    """Measure what was asked for; the JSON shape of `bench`. Progress goes to stderr.

    Raises UserError before anything runs where a peer or the model is missing.
    """
    folder = peers_folder(options.peers)
    for peer in options.against:
        python_of(peer, folder)
    console = Console(file=sys.stderr)
    with (
        tempfile.TemporaryDirectory(prefix="stepscope-bench-") as kept,
        console.status("is the machine idle?") as status,
    ):
        bench = Bench(options.repeats, status.update, options.loads)
        return _Run(options, bench, Sides(options, Path(kept), folder)).run()


def save(result: Result, out: Path) -> None:
    """As JSON, written aside and renamed. Raises UserError where that cannot be."""
    aside = out.with_name(f"{out.name}.tmp")
    try:
        aside.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        aside.rename(out)
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error}): name another file") from None


@dataclass(frozen=True, slots=True)
class _Run:
    options: BenchOptions
    bench: Bench
    sides: Sides

    def run(self) -> Result:
        before = self.bench.watch.look()
        result: Result = {"decode": [], "prefill": [], "clients": []}
        if set(self.options.only) - BETWEEN_DTYPES:
            for dtype in self.options.dtypes:
                self._dtype(dtype, result)
        if set(self.options.only) & BETWEEN_DTYPES:
            result |= self._between_dtypes(result)
        worst = max(before, self.bench.watch.worst)
        idle = {"before": before, "worst": worst, "allowed": CLEAN_FOREIGN}
        return {**result, "idle": idle, "clean": worst <= CLEAN_FOREIGN}

    # --- one dtype ---

    def _dtype(self, dtype: str, result: Result) -> None:
        if "startup" in self.options.only:
            _add(result, "startup", self._startup(dtype))
        self.bench.say(f"starting stepscope in {dtype}")
        with self.sides.ours(dtype) as side:
            self._machine(side, result)
            loaded = memory_bytes(side.pid)
            self._measure(side, result)
            for peer in self.options.against:
                self._against(peer, side, result)
            if "memory" in self.options.only:
                sizes = {"loaded_bytes": loaded, "after_bytes": memory_bytes(side.pid)}
                _add(result, "memory", {"dtype": side.facts["dtype"], **sizes})

    def _measure(self, side: Side, result: Result) -> None:
        only, bench = set(self.options.only), self.bench
        if not self.options.alone and side.facts["dtype"] in PEER_DTYPES:
            only -= set(PEER_SECTIONS)
        if "decode" in only:
            result["decode"] += measures.decode(bench, side)
            _add(result, "context_growth", measures.growth(bench, side))
        if "prefill" in only:
            result["prefill"] += measures.prefill(bench, side)
        if "crossover" in only:
            _add(result, "crossover", measures.cost_over_batch(bench, side, result["decode"]))
        if "clients" in only:
            result["clients"] += measures.clients(bench, side)
        if "telemetry" in only:
            found = measures.telemetry(bench, side)
            result.setdefault("telemetry_overhead", found["overhead"])
            _add(result, "telemetry", found)

    def _against(self, peer: str, side: Side, result: Result) -> None:
        dtype = side.facts["dtype"]
        if dtype not in PEER_DTYPES:
            return
        self.bench.say(f"starting {peer} in {dtype}")
        with self.sides.peer(peer, side) as theirs:
            found = compare(self.bench, side, theirs, self.options.only)
        result.setdefault("against", {}).setdefault(peer, {})[dtype] = found

    def _machine(self, side: Side, result: Result) -> None:
        facts = side.facts
        machine = result.setdefault("machine", {**describe(facts, self.options.cores), "peaks": {}})
        peaks = {"flops": facts["peak_flops"], "bandwidth": facts["peak_bandwidth"]}
        machine["peaks"][facts["dtype"]] = peaks

    def _startup(self, dtype: str) -> Result:
        """From the start of the engine's process to its first token."""
        times, name, foreign = [], dtype, 0.0
        for _ in range(min(STARTS, self.options.repeats)):
            self.bench.say(f"{dtype}: start-up")
            (name, time_s), share = self.bench.watch.during(lambda: self._start_once(dtype))
            times.append(time_s)
            foreign = max(foreign, share)
        clean = {"foreign": foreign, "clean": foreign <= CLEAN_FOREIGN}
        return {"dtype": name, **spread_row("first_token_s", Spread.of(times)), **clean}

    def _start_once(self, dtype: str) -> tuple[str, float]:
        """The dtype that runs, and the seconds."""
        with self.sides.ours(dtype) as side:
            prompt = self.bench.prompts(measures.vocab(side), 16)[0]
            first_ns = side.ask("first_token", prompt=prompt)["t_ns"]
            return side.facts["dtype"], seconds(first_ns - side.started_ns)

    # --- all dtypes ---

    def _between_dtypes(self, result: Result) -> Result:
        only, everything = self.options.only, self.options.dtypes == (AUTO,)
        dtypes = list(DTYPES if everything else self.options.dtypes)
        needed = ((REFERENCE, "quality"), (BASELINE, "linears"))
        dtypes += [d for d, part in needed if part in only and d not in dtypes]
        return compare_dtypes(
            self.bench,
            self.sides.ours,
            [d for d in dtypes if d != AUTO],
            self.sides.kept,
            started=lambda side: self._machine(side, result),
            skip_missing=everything,
            parts=only,
        )


def _add(result: Result, part: str, row: Result | None) -> None:
    """A part is there once it was asked for, even where this model or machine has no row for it."""
    result.setdefault(part, []).extend([row] if row else [])
