"""Timing of calibration's kernels: each peak is the median of the best kernel's runs."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import torch

from engine import calibration_kernels as kernels
from engine.calibration_kernels import Candidate, Run
from engine.kv_choice import kv_read_rates
from kernels.simd.support import runs
from telemetry.clock import now_ns, seconds

log = logging.getLogger(__name__)

RUN_S = 0.015  # a timed run lasts at least this long, so that the clock does not matter
RUNS_BUDGET_S = 0.4
SCREEN_RUNS, FINAL_RUNS = 3, 7
FINALISTS = 4
CALL_BUDGET_S = 0.12  # larger matmuls are left to machines that do them this fast

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Rate:
    """A kernel's median rate (work/s); spread: (max - min) / median of its runs."""

    kernel: str
    rate: float
    spread: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Read bandwidth (bytes/s), FLOP/s per dtype that runs here, tokens of KV read per second by
    KV dtype, cores that others used."""

    bandwidth: Rate
    flops: dict[str, Rate]
    kv_read_rates: dict[str, float]
    foreign_load: float


def measure(threads: int, progress: Progress) -> Measured:
    """Measure with this many torch threads; the thread count is restored afterwards."""
    with _torch_threads(threads), _ForeignLoad() as load:
        streams = _streams(kernels.stream_bytes())
        bandwidth = _best(streams, lambda f: progress("measuring read bandwidth", 0.4 * f))
        if bandwidth is None:
            raise RuntimeError("calibration found no kernel that reads memory here")
        flops = _flops(progress)
        rates = kv_read_rates("bf16" if "bf16" in flops else "fp32")
    progress("calibrated", 1.0)
    return Measured(bandwidth, flops, rates, load.cores)


def _streams(total_bytes: int) -> list[Candidate]:
    candidates = kernels.bandwidth_candidates(total_bytes)
    for dtype in filter(runs, kernels.DTYPES):
        from engine.calibration_vector import vector_stream

        shapes = kernels.STREAM_SHAPES
        candidates += [vector_stream(dtype, inner, out, total_bytes) for out, inner in shapes]
    return candidates


def _matmuls(dtype: str) -> list[Candidate]:
    candidates = kernels.matmul_candidates(dtype)
    if runs(dtype):
        from engine.calibration_vector import vector_matmul

        candidates += [vector_matmul(dtype, *shape) for shape in kernels.MATMUL_SHAPES]
    return candidates


def _flops(progress: Progress) -> dict[str, Rate]:
    """The best matmul of each dtype that this CPU and build can run."""
    found = {}
    for i, dtype in enumerate(kernels.DTYPES):
        stage = f"measuring {dtype} matmul"
        report = _part(progress, stage, 0.4 + 0.3 * i, 0.3)
        best = _best(_affordable(_matmuls(dtype), dtype), report)
        if best:
            found[dtype] = best
    return found


def _part(progress: Progress, stage: str, start: float, share: float) -> Callable[[float], None]:
    return lambda fraction: progress(stage, start + share * fraction)


def _affordable(candidates: Sequence[Candidate], dtype: str) -> list[Candidate]:
    """Those that take little time at the scout's rate, or else the smallest: bf16 can crawl."""
    scout = _rate(kernels.scout(dtype), SCREEN_RUNS)
    if scout is None:
        return []
    least = min(candidate.work for candidate in candidates)
    limit = max(least, scout.rate * CALL_BUDGET_S)
    return [candidate for candidate in candidates if candidate.work <= limit]


def _best(candidates: Sequence[Candidate], report: Callable[[float], None]) -> Rate | None:
    """The best median: all candidates briefly, then the best few longer and in fresh memory.

    Fresh, since where a buffer lands decides its page size and so its speed; and several, since a
    busy moment of the machine must not decide which kernel is kept.
    """
    screened = []
    for i, candidate in enumerate(candidates):
        report(0.7 * i / len(candidates))
        rate = _rate(candidate, SCREEN_RUNS)
        if rate:
            screened.append((rate.rate, i))
    report(0.7)
    finalists = sorted(screened, reverse=True)[:FINALISTS]
    finals = [_rate(candidates[i], FINAL_RUNS) for _, i in finalists]
    return max(filter(None, finals), key=lambda rate: rate.rate, default=None)


def _rate(candidate: Candidate, runs: int) -> Rate | None:
    """Median rate of a candidate over `runs` runs, fewer where they are long; None: cannot run."""
    try:
        run = candidate.build()
        run()
        once_s = max(_time(run, 1), 1e-6)
    except (RuntimeError, AttributeError) as error:
        log.info("calibration skips %s: %s", candidate.name, error)
        return None
    repeats = max(1, round(RUN_S / once_s))
    affordable = max(2, int(RUNS_BUDGET_S / (once_s * repeats)))
    rates = [candidate.work * repeats / _time(run, repeats) for _ in range(min(runs, affordable))]
    median = statistics.median(rates)
    return Rate(candidate.name, median, (max(rates) - min(rates)) / median)


def _time(run: Run, repeats: int) -> float:
    started_ns = now_ns()
    for _ in range(repeats):
        run()
    return seconds(now_ns() - started_ns)


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    """torch with this many threads, and back to what it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


class _ForeignLoad:
    """Cores that other processes kept busy inside the `with` block, in `cores`."""

    cores = 0.0

    def __enter__(self) -> _ForeignLoad:
        self._started_ns, self._busy_s = now_ns(), _others_s()
        return self

    def __exit__(self, *_: object) -> None:
        elapsed_s = seconds(now_ns() - self._started_ns)
        self.cores = max(0.0, (_others_s() - self._busy_s) / elapsed_s)


def _others_s() -> float:
    """CPU seconds that other processes, or other guests of the host, have used since boot."""
    machine, own = psutil.cpu_times(), psutil.Process().cpu_times()
    busy = machine.user + machine.system
    busy += getattr(machine, "nice", 0.0) + getattr(machine, "steal", 0.0)
    return float(busy - own.user - own.system)
