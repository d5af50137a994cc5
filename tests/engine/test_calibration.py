"""Calibration: one real measurement of this machine, its cache, and the choice of a dtype."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from engine import calibration as c
from engine import calibration_kernels as kernels
from engine import calibration_measure as m


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def stages() -> list[tuple[str, float]]:
    return []


@pytest.fixture(scope="module")
def measured(folder: Path, stages: list[tuple[str, float]]) -> c.Calibration:
    return c.calibrate(1, progress=lambda s, f: stages.append((s, f)), cache_dir=folder)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cheap kernels of the same kinds, for tests that measure again."""
    monkeypatch.setattr(kernels, "MATMUL_SHAPES", ((64, 64, 64),))
    monkeypatch.setattr(kernels, "STREAM_SHAPES", ((256, 256),))
    monkeypatch.setattr(kernels, "stream_bytes", lambda: 2**20)
    monkeypatch.setattr(m, "RUN_S", 0.0005)


def test_this_machine_is_measured(measured: c.Calibration) -> None:
    assert {"fp32"} <= set(measured.dtypes) <= {"fp32", "bf16"}
    assert measured.threads == 1
    assert measured.torch_version == torch.__version__
    # From a slow board to a large server, per thread.
    assert 5e8 < measured.peak_bandwidth < 1e12
    assert all(1e8 < peak.peak_flops < 2e13 for peak in measured.dtypes.values())
    assert 0 <= measured.bandwidth_spread < 5
    assert measured.foreign_load >= 0


def test_the_ridge_is_flops_over_bandwidth(measured: c.Calibration) -> None:
    for dtype, peak in measured.dtypes.items():
        assert measured.ridge[dtype] == peak.peak_flops / measured.peak_bandwidth


def test_progress_only_grows_and_ends_at_one(
    measured: c.Calibration, stages: list[tuple[str, float]]
) -> None:
    fractions = [fraction for _, fraction in stages]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert {"measuring read bandwidth", "measuring fp32 matmul"} <= {stage for stage, _ in stages}


def test_the_second_call_reads_the_cache(measured: c.Calibration, folder: Path) -> None:
    assert c.cached(1, cache_dir=folder) == measured
    assert c.calibrate(1, cache_dir=folder) == measured


def test_other_threads_and_pages_have_their_own(
    measured: c.Calibration, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert c.cached(2, cache_dir=folder) is None
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    assert "hugetlb=1" in c.huge_page_mode()
    assert c.cached(1, cache_dir=folder) is None


def test_force_measures_again(measured: c.Calibration, tmp_path: Path, small: None) -> None:
    path = c.cache_path(1, tmp_path)
    path.write_text(measured.model_dump_json())
    again = c.calibrate(1, force=True, cache_dir=tmp_path)
    assert c.cached(1, cache_dir=tmp_path) == again != measured


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"[]", b'{"device": "x"}'])
def test_a_damaged_cache_is_measured_again(
    damage: bytes, tmp_path: Path, small: None, caplog: pytest.LogCaptureFixture
) -> None:
    path = c.cache_path(1, tmp_path)
    path.write_bytes(damage)
    assert c.cached(1, cache_dir=tmp_path) is None
    assert "damaged" in caplog.text
    again = c.calibrate(1, cache_dir=tmp_path)
    assert c.cached(1, cache_dir=tmp_path) == again


def test_a_cache_of_another_machine_is_not_used(measured: c.Calibration, tmp_path: Path) -> None:
    other = measured.model_copy(update={"device": "another CPU"})
    c.cache_path(1, tmp_path).write_text(other.model_dump_json())
    assert c.cached(1, cache_dir=tmp_path) is None


def test_an_unwritable_cache_does_not_stop_the_engine(tmp_path: Path, small: None) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert c.calibrate(1, cache_dir=blocked).peak_bandwidth > 0


def test_the_environment_can_move_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path))
    assert c.cache_path(2).parent == tmp_path


def test_torch_keeps_its_threads(small: None, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    c.calibrate(1 if before != 1 else 2, force=True, cache_dir=tmp_path)
    assert torch.get_num_threads() == before


def test_a_kernel_that_cannot_run_here_is_skipped() -> None:
    def unsupported() -> kernels.Run:
        raise RuntimeError("no such instruction")

    works = kernels.matmul("fp32", 8, 8, 8, packed=False)
    broken = kernels.Candidate("broken", 1e30, unsupported)
    best = m._best([broken, works], lambda fraction: None)
    assert best is not None
    assert best.kernel == works.name
    assert m._best([broken], lambda fraction: None) is None


def test_zero_threads_are_refused() -> None:
    with pytest.raises(ValueError, match="threads is 0: use 1 to"):
        c.calibrate(0)


def with_peaks(measured: c.Calibration, **flops: float) -> c.Calibration:
    dtypes = {d: c.Peak(peak_flops=f, spread=0, kernel="k") for d, f in flops.items()}
    return measured.model_copy(update={"dtypes": dtypes, "peak_bandwidth": 40e9})


def test_bf16_is_chosen_only_where_it_is_faster(measured: c.Calibration) -> None:
    assert c.best_dtype(with_peaks(measured, fp32=490e9, bf16=950e9)) == "bf16"
    assert c.best_dtype(with_peaks(measured, fp32=200e9, bf16=200e9)) == "bf16"  # half the bytes
    assert c.best_dtype(with_peaks(measured, fp32=200e9, bf16=20e9)) == "fp32"
    assert c.best_dtype(with_peaks(measured, fp32=200e9)) == "fp32"


def test_a_calibration_cannot_be_changed(measured: c.Calibration) -> None:
    with pytest.raises(ValidationError):
        setattr(measured, "peak_bandwidth", 1.0)  # noqa: B010


def test_reading_a_cache_needs_no_torch() -> None:
    code = "import sys, engine.calibration as c; c.cached(1); assert 'torch' not in sys.modules"
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=60)
