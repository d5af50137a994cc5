"""Where numba keeps what it compiled. Prepared before any kernel is compiled.

numba looks at one file's time stamp to see whether compiled code is still good, but a kernel here
is made of functions from several files: so the folder is named after all of their contents.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_dir

_KERNELS = Path(__file__).resolve().parents[1]
KEPT = 8  # compiled versions, of about half a megabyte each


def _digest() -> str:
    digest = hashlib.sha256(f"{version('numba')} {version('torch')}".encode())
    for path in sorted(_KERNELS.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def prune(root: Path, folder: Path) -> None:
    """Remove all but the KEPT versions that were used last; `folder` counts as used now.

    A process that still runs a removed version has loaded its code, or compiles it again.
    """
    os.utime(folder)
    used = sorted(root.glob("kernels-*"), key=_used, reverse=True)
    for old in used[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # another process was faster
        return 0.0


def prepare() -> None:
    """Tell numba its folder; one for this process alone where the user's cannot be written."""
    root = Path(os.environ.get("STEPSCOPE_CACHE_DIR") or user_cache_dir("stepscope"))
    folder = root / f"kernels-{_digest()}"
    if _writable(folder):
        prune(root, folder)
    else:
        folder = Path(tempfile.mkdtemp(prefix="stepscope-kernels-"))
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:  # it read the environment when it was imported
        sys.modules["numba"].config.CACHE_DIR = str(folder)
