"""The design's rules, checked on the code itself and on what really gets imported."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.schema import columns

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("kernels", "engine", "telemetry", "app", "pages", "data")
PAGE_LINES, FILE_LINES = 60, 350

# The schema's names as other programs rely on them (the design's contract); more are welcome.
CONTRACT = {
    "runs": "started_wall started_ns clock source model device backend dtype kv_dtype peak_flops "
    "peak_bandwidth peaks_source ttft_slo_s tpot_slo_s config schema_version",
    "steps": "step t_start_ns t_step_s scheduler phase n_running n_waiting prefill_seqs "
    "decode_seqs prefill_tokens decode_tokens batch_slots padded_slots padded_prefill_tokens "
    "limit_bound flops linear_flops attention_flops head_flops padded_flops weight_bytes "
    "kv_read_bytes kv_write_bytes padded_bytes intensity t_compute_s t_memory_s t_weights_s "
    "t_kv_s t_overhead_s t_inefficiency_s t_host_s schedule_s prepare_s forward_s sample_s "
    "involuntary_switches mfu mbu bound kv_blocks_total kv_blocks_used kv_blocks_cached evictions "
    "activation_bytes prefix_hit_tokens preemptions recomputed_tokens draft_tokens accepted_tokens",
    "sequence_steps": "step request_id slot phase tokens emitted_tokens context_tokens "
    "computed_context_tokens",
    "tokens": "request_id index token_id step t_ns",
    "requests": "request_id arrived_ns admitted_ns first_token_ns finished_ns prompt_tokens "
    "cached_tokens output_tokens finish_reason preemptions label",
    "blocks": "step block state request_id references",
    "events": "t_ns step kind detail",
    "kernel_samples": "step kernel calls time_s flops bytes",
    "device_samples": "t_ns utilisation memory_used_bytes power_w temperature_c clock_hz "
    "cpu_percent",
}


def sources(*rooms: str) -> Iterator[Path]:
    """Our own Python files, without the tests."""
    for room in rooms or ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def imported_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after the statement."""
    code = (
        f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())


# --- imports ---


def test_the_import_contracts_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    ended = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "0 broken" in ended.stdout


SERVER = "import app.main, app.wiring, app.cli, app.demo, app.headless"
NEVER = {
    SERVER: {"torch", "triton", "transformers"},
    "import app.figures, app.panels": {"torch", "triton", "duckdb", "streamlit", "kernels"},
    "import engine.process, engine.messages": {"torch", "triton", "duckdb", "streamlit", "plotly"},
    "import engine.engine, engine.build, engine.server": {"duckdb", "streamlit", "plotly", "app"},
    "import engine.physics.cost, engine.physics.roofline": {"torch", "triton", "streamlit"},
    "import engine.schedulers, engine.block_manager": {"torch", "triton"},
    "import telemetry.store, telemetry.recorder, telemetry.queries.summary": {
        *("torch", "triton", "streamlit", "plotly", "engine", "app", "kernels", "pages")
    },
    "import kernels.attention, kernels.linear, kernels.rope": {
        *("engine", "telemetry", "app", "pages", "streamlit", "duckdb")
    },
}


@pytest.mark.parametrize("statement", NEVER)
def test_what_really_gets_imported(statement: str) -> None:
    assert imported_by(statement) & NEVER[statement] == set()


def test_the_engine_process_loads_no_dashboard() -> None:
    loaded = imported_by("import app.engine_main, engine.build, engine.server, telemetry.recorder")
    assert loaded & {"streamlit", "plotly", "duckdb"} == set()


def test_figures_and_panels_are_loaded_whole() -> None:
    """Each module of the pure rooms, one by one, since a package's own file imports none."""
    names = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in _pure()]
    loaded = imported_by("import " + ", ".join(names))
    assert loaded & {"torch", "triton", "duckdb", "streamlit", "kernels"} == set()


def _pure() -> list[Path]:
    return [p for p in sources("app/figures", "app/panels") if p.name != "__init__.py"]


def test_pages_import_neither_torch_nor_the_database_nor_each_other() -> None:
    for path in sources("pages"):
        modules = set(_imported_modules(_tree(path)))
        roots = {module.split(".")[0] for module in modules}
        ours = {"streamlit", "app", "telemetry", "engine"}
        assert roots <= {"__future__", "collections", "dataclasses", *ours}
        assert {m for m in modules if m.startswith("engine")} <= {"engine.physics"}
        assert {m for m in modules if m.startswith("telemetry")} <= {"telemetry.queries"}


def test_kernels_is_no_distribution_and_transformers_is_not_fooled() -> None:
    """Transformers asks for a package of that name; ours in sight must not pass for it."""
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution("kernels")
    code = (
        "import kernels, pathlib, sys\n"
        "assert pathlib.Path(kernels.__file__).parent.parent == pathlib.Path.cwd()\n"
        "from transformers.utils.import_utils import is_kernels_available\n"
        "sys.exit(is_kernels_available())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


# --- what only one file may do ---


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


CLOCKS = {"now", "utcnow", "today", "time", "time_ns", "monotonic", "monotonic_ns"} | {
    *("perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "clock_gettime")
}


def _reads_time(tree: ast.Module) -> bool:
    """The time module in any form, or a clock of datetime or pandas."""
    if "time" in set(_imported_modules(tree)):
        return True
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(
        isinstance(f, ast.Attribute)
        and f.attr in CLOCKS
        and isinstance(f.value, ast.Name)
        and f.value.id in ("time", "datetime", "date", "pd", "Timestamp")
        for f in calls
    )


def test_only_the_clock_reads_time() -> None:
    readers = [p.relative_to(ROOT).as_posix() for p in sources() if _reads_time(_tree(p))]
    assert readers == ["telemetry/clock.py"]


def _opens_database(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if node.func.attr == "connect" and getattr(owner, "id", None) == "duckdb":
                yield node


def test_only_the_store_opens_a_database_for_writing() -> None:
    opened = {p.relative_to(ROOT).as_posix(): list(_opens_database(_tree(p))) for p in sources()}
    writers = {path for path, calls in opened.items() for call in calls if not _read_only(call)}
    assert writers == {"telemetry/store.py"}
    assert {path for path, calls in opened.items() if calls} <= {
        *("telemetry/store.py", "telemetry/database.py")
    }


def _read_only(call: ast.Call) -> bool:
    return any(
        word.arg == "read_only"
        and isinstance(word.value, ast.Constant)
        and word.value.value is True
        for word in call.keywords
    )


# --- sizes, words, names ---


@pytest.mark.parametrize("path", list(sources("pages")), ids=lambda p: p.name)
def test_pages_are_thin(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= PAGE_LINES


def test_files_stay_readable() -> None:
    long = [p.name for p in sources() if len(p.read_text().splitlines()) > FILE_LINES]
    assert long == []


def test_every_module_and_public_class_says_what_it_is() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
        for path in sources()
        if path.read_text().strip()
        for node in _documented(_tree(path))
        if not ast.get_docstring(node)
    ]
    assert silent == []


def _documented(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef]:
    yield tree
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node


@pytest.mark.parametrize("table", CONTRACT)
def test_the_schema_keeps_its_names(table: str) -> None:
    assert set(CONTRACT[table].split()) - set(columns(table)) == set()
