"""What the vector kernels stand on: the CPU's flags, the compiled code's folder, memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kernels.simd import cache, support
from kernels.simd.memory import LINE_BYTES, Arena, huge

ROOT = Path(__file__).resolve().parents[2]
AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """This CPU's, for the test to change."""
    found: set[str] = set()
    monkeypatch.setattr(support, "cpu_flags", lambda: frozenset(found))
    monkeypatch.setattr("kernels.simd.pool.runtime", lambda: object())
    return found


def running() -> set[str]:
    return {dtype for dtype in ("fp32", "bf16", "int8", "int4") if support.runs(dtype)}


def test_what_runs_follows_the_instruction_sets(flags: set[str]) -> None:
    assert running() == set()
    flags |= AVX512
    assert running() == {"fp32"}
    flags |= {"avx512_bf16"}
    assert running() == {"fp32", "bf16", "int8", "int4"}
    flags -= {"avx512dq"}
    assert running() == set()


def test_nothing_runs_without_the_openmp_runtime(
    flags: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags |= AVX512 | {"avx512_bf16"}
    monkeypatch.setattr("kernels.simd.pool.runtime", lambda: None)
    assert running() == set()


def test_another_dtype_does_not_run(flags: set[str]) -> None:
    flags |= AVX512
    assert not support.runs("fp8")


def test_another_machine_has_no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support.platform, "machine", lambda: "aarch64")
    assert support.cpu_flags.__wrapped__() == frozenset()


def test_asking_imports_neither_numba_nor_torch() -> None:
    """Half a second, and two: on a CPU without AVX-512 nobody pays them for the answer."""
    code = (
        "import sys, kernels.simd.support as s; s.cpu_flags = frozenset; "
        "assert not s.runs('bf16'); assert not {'numba', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


@pytest.fixture
def numba_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `prepare` changes is put back."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", os.environ.get("NUMBA_CACHE_DIR", ""))
    if "numba" in sys.modules:
        config = sys.modules["numba"].config
        monkeypatch.setattr(config, "CACHE_DIR", config.CACHE_DIR)


def prepared() -> Path:
    cache.prepare()
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    if "numba" in sys.modules:
        assert str(folder) == sys.modules["numba"].config.CACHE_DIR
    return folder


@pytest.mark.usefixtures("numba_folder")
def test_compiled_code_lies_where_the_user_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path))
    folder = prepared()
    assert folder.parent == tmp_path
    assert folder.is_dir()
    assert prepared() == folder


@pytest.mark.usefixtures("numba_folder")
def test_changed_kernels_are_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any file counts, since a kernel is made of functions from several."""
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    sources = tmp_path / "kernels"
    (sources / "deep").mkdir(parents=True)
    monkeypatch.setattr(cache, "_KERNELS", sources)
    folders = set()
    for text in ("1", "2"):
        (sources / "deep" / "op.py").write_text(text)
        folders.add(prepared())
    assert len(folders) == 2


@pytest.mark.usefixtures("numba_folder")
def test_a_folder_that_cannot_be_written_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(blocked))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    folder = prepared()
    assert folder.parent == tmp_path
    assert folder.name.startswith("stepscope-kernels-")
    assert os.access(folder, os.W_OK)


@pytest.mark.parametrize("size_bytes", [1, 63, 4096, (2 << 20) + 1])
def test_huge_memory_is_zeros_at_a_huge_pages_border(size_bytes: int) -> None:
    memory = huge(size_bytes)
    assert memory.nbytes == size_bytes
    assert memory.ctypes.data % (2 << 20) == 0
    assert not memory.any()
    memory[:] = 1  # all of it can be written
    assert memory.sum(dtype=np.int64) == size_bytes


def test_an_arena_gives_lines_that_do_not_overlap() -> None:
    arena, sizes = Arena(4096), [1, 64, 65, 4000, 200, 9000, 3]
    taken = [arena.take(size) for size in sizes]
    for i, (memory, size) in enumerate(zip(taken, sizes, strict=True)):
        assert memory.nbytes == size
        assert memory.ctypes.data % LINE_BYTES == 0
        assert not memory.any()
        memory[:] = i + 1
    for i, memory in enumerate(taken):
        assert (memory == i + 1).all()
    assert arena.bytes == sum(sizes)


def test_an_arena_keeps_the_order_in_which_it_is_asked() -> None:
    """A step streams its weights in that order."""
    arena = Arena(1 << 20)
    first, second = arena.take(100), arena.take(100)
    assert second.ctypes.data - first.ctypes.data == 128


def test_memory_lives_as_long_as_somebody_holds_it() -> None:
    memory = Arena(1 << 20).take(1 << 19)
    memory[:] = 7
    others = [huge(1 << 20) for _ in range(8)]
    for other in others:
        other[:] = 1
    assert (memory == 7).all()


def test_versions_that_nobody_used_for_long_are_removed(tmp_path: Path) -> None:
    versions = [tmp_path / f"kernels-{n}" for n in range(cache.KEPT + 3)]
    for age, folder in enumerate(versions):
        (folder / "compiled").mkdir(parents=True)
        os.utime(folder, (1e9 - age, 1e9 - age))
    (tmp_path / "calibration-0.json").touch()
    cache.prune(tmp_path, versions[-1])  # the oldest, and the one that is used now
    left = {*versions[: cache.KEPT - 1], versions[-1], tmp_path / "calibration-0.json"}
    assert set(tmp_path.iterdir()) == left
