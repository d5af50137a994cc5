"""Peaks of this machine, measured once and cached: matmul FLOP/s per dtype and read bandwidth.

Each peak is the best kernel's median over several runs. A cached calibration is read without torch;
only measuring imports it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from platformdirs import user_cache_dir
from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, ValidationError

from telemetry.clock import wall_now

if TYPE_CHECKING:
    from engine.calibration_measure import Measured

log = logging.getLogger(__name__)

METHOD_VERSION = 2  # raise it when the way of measuring changes: old caches are then measured anew

Progress = Callable[[str, float], None]


class Peak(BaseModel):
    """Best matmul rate of one dtype; spread: (max - min) / median of that kernel's runs."""

    model_config = ConfigDict(frozen=True)

    peak_flops: PositiveFloat
    spread: float
    kernel: str


class Calibration(BaseModel):
    """What this machine measured. FLOP/s, bytes/s, FLOP/byte; calibrated_at is ISO 8601, UTC.

    kv_read_rates: tokens of context that a decode reads per second and layer, by KV dtype.
    foreign_load: cores that other processes kept busy meanwhile; well above 0, measure again.
    """

    model_config = ConfigDict(frozen=True)

    device: str
    threads: PositiveInt
    torch_version: str
    huge_pages: str
    dtypes: dict[str, Peak]
    peak_bandwidth: PositiveFloat
    bandwidth_spread: float
    bandwidth_kernel: str
    ridge: dict[str, float]
    kv_read_rates: dict[str, PositiveFloat]
    foreign_load: float
    calibrated_at: str
    method: int = METHOD_VERSION


def calibrate(
    threads: int,
    *,
    force: bool = False,
    progress: Progress | None = None,
    cache_dir: Path | None = None,
) -> Calibration:
    """Peaks with this many threads: from the cache, or measured in about ten seconds.

    progress gets a stage and a fraction in 0..1. ValueError for a thread count below 1.
    """
    if threads < 1:
        raise ValueError(f"threads is {threads}: use 1 to {os.cpu_count()}")
    known = None if force else cached(threads, cache_dir=cache_dir)
    if known:
        return known
    from engine.calibration_measure import measure

    calibration = _assemble(threads, measure(threads, progress or _silent))
    _store(calibration, cache_path(threads, cache_dir))
    return calibration


def cached(threads: int, *, cache_dir: Path | None = None) -> Calibration | None:
    """The cached calibration of this device, thread count, torch and page mode, if sound."""
    path = cache_path(threads, cache_dir)
    try:
        found = Calibration.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        log.warning("calibration cache %s is damaged and will be measured again: %s", path, error)
        return None
    return found if _key_of(found) == _key(threads) else None


def best_dtype(calibration: Calibration) -> Literal["bf16", "fp32"]:
    """The faster dtype for a demo's mix: prompts of 512 tokens, 128 steps at a batch of 8.

    bf16 halves the bytes, but CPUs without bf16 instructions compute it many times slower.
    """
    if not {"bf16", "fp32"} <= set(calibration.dtypes):
        return "fp32"
    bf16, fp32 = (_mix_time(calibration, dtype, b) for dtype, b in (("bf16", 2), ("fp32", 4)))
    return "bf16" if bf16 <= fp32 else "fp32"


def best_kv_dtype(calibration: Calibration, dtype: str) -> str:
    """The KV dtype that decodes faster here; float32 stays exact beside float32 weights."""
    if dtype == "fp32":
        return "fp32"
    rates = calibration.kv_read_rates
    return max(rates, key=lambda name: rates[name])


def _mix_time(calibration: Calibration, dtype: str, width_bytes: int) -> float:
    """Floor of that mix per parameter of the model, seconds."""
    peak = calibration.dtypes[dtype].peak_flops
    step = max(2 * 8 / peak, width_bytes / calibration.peak_bandwidth)
    return 2 * 512 / peak + 128 * step


def _silent(stage: str, fraction: float) -> None:
    pass


def _assemble(threads: int, measured: Measured) -> Calibration:
    bandwidth = measured.bandwidth
    return Calibration(
        device=device_name(),
        threads=threads,
        torch_version=version("torch"),
        huge_pages=huge_page_mode(),
        dtypes={
            dtype: Peak(peak_flops=peak.rate, spread=peak.spread, kernel=peak.kernel)
            for dtype, peak in measured.flops.items()
        },
        peak_bandwidth=bandwidth.rate,
        bandwidth_spread=bandwidth.spread,
        bandwidth_kernel=bandwidth.kernel,
        ridge={dtype: peak.rate / bandwidth.rate for dtype, peak in measured.flops.items()},
        kv_read_rates=measured.kv_read_rates,
        foreign_load=measured.foreign_load,
        calibrated_at=wall_now().isoformat(timespec="seconds"),
    )


# --- identity and cache ---


def device_name() -> str:
    """The CPU's model name."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def huge_page_mode() -> str:
    """What decides the page size of large allocations: kernel setting, glibc, torch."""
    try:
        setting = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        setting = ""
    thp = re.search(r"\[(\w+)\]", setting)
    glibc = re.search(r"glibc\.malloc\.hugetlb=(\d+)", os.environ.get("GLIBC_TUNABLES", ""))
    torch_thp = os.environ.get("THP_MEM_ALLOC_ENABLE", "0")
    return f"thp={thp[1] if thp else 'none'} hugetlb={glibc[1] if glibc else 0} torch={torch_thp}"


def cache_path(threads: int, cache_dir: Path | None = None) -> Path:
    """Where the calibration of this machine and thread count lies."""
    override = os.environ.get("STEPSCOPE_CACHE_DIR")
    root = cache_dir or Path(override or user_cache_dir("stepscope"))
    digest = hashlib.sha256(repr(_key(threads)).encode()).hexdigest()[:12]
    return root / f"calibration-{digest}.json"


def _key(threads: int) -> tuple[str, int, str, str, int]:
    return device_name(), threads, version("torch"), huge_page_mode(), METHOD_VERSION


def _key_of(found: Calibration) -> tuple[str, int, str, str, int]:
    return found.device, found.threads, found.torch_version, found.huge_pages, found.method


def _store(calibration: Calibration, path: Path) -> None:
    """Written aside and renamed, so that a reader never sees half a file."""
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(calibration.model_dump_json(indent=2))
        aside.replace(path)
    except OSError as error:
        log.warning("calibration could not be cached in %s: %s", path.parent, error)
