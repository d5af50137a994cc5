"""A worker of `kernels check` whose kernels have one mistake: python -m … "wrong stride"."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

from kernels.checking.worker import check_answers, protocol, registered_cases, serve
from tests.kernels.planted import PLANTED, Planted


def plant(mistake: Planted, folder: Path) -> None:
    """Put the changed copy where the launcher is imported from."""
    spec = importlib.util.find_spec(mistake.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    assert source.count(mistake.right) == 1, f"{mistake.module} no longer says {mistake.right!r}"
    copy = folder / Path(spec.origin).name
    copy.write_text(source.replace(mistake.right, mistake.wrong), encoding="utf-8")
    changed = importlib.util.spec_from_file_location(mistake.module, copy)
    assert changed is not None
    assert changed.loader is not None
    module = importlib.util.module_from_spec(changed)
    sys.modules[mistake.module] = module
    changed.loader.exec_module(module)


def main(name: str) -> None:
    out, mistake = protocol(), PLANTED[name]
    cases = [c for c in registered_cases() if c.op == mistake.op]
    with tempfile.TemporaryDirectory() as folder:
        plant(mistake, Path(folder))
        serve(check_answers(cases), sys.stdin, out)


if __name__ == "__main__":
    main(sys.argv[1])
