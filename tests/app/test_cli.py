"""Every bad input: one line that says what is wrong and what to do, exit code 2, no trace left."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pytest
from gguf import GGUFWriter

from engine.threads import available_cores
from tests.commands import Command, free_port

pytestmark = pytest.mark.process
COMMANDS = ("demo", "run", "calibrate", "bench", "whatif", "replay")
LATER = ("diagnose", "compare", "export", "attach", "serve")
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n"


@pytest.fixture
def command(stepscope: Path, tmp_path: Path) -> Command:
    folder = tmp_path / "here"
    folder.mkdir()
    return Command(stepscope, folder)


HOLD = """
import sys
from pathlib import Path
from telemetry.store import Store
store = Store(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
store.close()
"""

# --- help ---


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_the_commands_that_exist_and_no_others(
    command: Command, arguments: tuple[str, ...]
) -> None:
    ended = command.run(*arguments)
    listed = ended.stdout.partition("Commands:")[2].split()
    assert ended.returncode == 0
    assert set(COMMANDS) <= set(listed)
    assert not set(LATER) & set(listed)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_shows_an_example(command: Command, name: str) -> None:
    ended = command.run(name, "--help")
    assert ended.returncode == 0
    assert re.search(rf"Example: stepscope {name} (\S+ )?--", ended.stdout)


# --- names and numbers ---

BAD_OPTIONS = [
    ("frobnicate", "No such command 'frobnicate'; see stepscope --help"),
    ("run", "Missing option '--db'; see stepscope run --help"),
    ("run --db a.duckdb --frobnicate", "No such option: --frobnicate"),
    ("run --db a.duckdb extra", "unexpected extra argument"),
    ("run --db a.duckdb --max-batch ten", "Invalid value for '--max-batch'"),
    ("run --db a.duckdb --scheduler fifo", "unknown scheduler 'fifo': use one of "),
    ("run --db a.duckdb --scheduler continous", "did you mean 'continuous'?"),
    ("run --db a.duckdb --workload heavy", "use one of azure-code, azure-conv, chat, "),
    ("run --db a.duckdb --workload gone.csv", "workload file gone.csv does not exist"),
    ("run --db a.duckdb --rate -2", "rate is -2.0: use more than 0 and at most 1,000 requests/s"),
    ("run --db a.duckdb --rate nan", "rate is nan: use more than 0 and at most 1,000 requests/s"),
    ("run --db a.duckdb --concurrency 0", "concurrency is 0: use 1 or more"),
    ("run --db a.duckdb --concurrency 2 --rate 1", "exclude each other: give one"),
    ("run --db a.duckdb --max-batch 0", "max batch is 0: use 1 to 1024"),
    ("run --db a.duckdb --max-batch 1025", "max batch is 1025: use 1 to 1024"),
    ("run --db a.duckdb --max-batch -4", "max batch is -4: use 1 to 1024"),
    ("run --db a.duckdb --requests 0", "requests is 0: use 1 or more"),
    ("run --db a.duckdb --dtype fp8", "'fp8': use one of auto, fp32, bf16, int8, int4"),
    ("run --db a.duckdb --kv-dtype int4", "unknown kv-dtype 'int4': use one of auto, fp32, bf16"),
    ("run --db a.duckdb --chunk-tokens 0", "token budget is 0: use 1 to 65536 tokens a step"),
    ("run --db a.duckdb --chunk-tokens -64", "token budget is -64: use 1 to 65536"),
    ("run --db a.duckdb --chunk-tokens 65537", "token budget is 65537: use 1 to 65536"),
    ("run --db a.duckdb --chunk-tokens 1e3", "Invalid value for '--chunk-tokens'"),
    ("run --db a.duckdb --prefix-cache yes", "unexpected extra argument"),
    ("run --db a.duckdb --ttft-slo 0", "ttft-slo is 0 ms: use more than 0"),
    ("demo --db a.duckdb --tpot-slo nan", "tpot-slo is nan ms: use more than 0"),
    ("run --db a.duckdb --kv-blocks 0", "KV blocks is 0: use 1 or more"),
    ("run --db a.duckdb --kv-blocks -1", "KV blocks is -1: use 1 or more"),
    ("run --db a.duckdb --threads 0", f"threads is 0: use 1 to {available_cores()}"),
    ("run --db gone/a.duckdb", "there is no folder gone: make it or use another path"),
    ("run --db .", "is a folder: give the path of a file"),
    ("demo --scheduler fifo", "unknown scheduler 'fifo'"),
    ("demo --workload heavy", "unknown workload 'heavy'"),
    ("demo --max-batch 0", "max batch is 0"),
    ("demo --chunk-tokens 0", "token budget is 0"),
    ("demo --kv-blocks 0", "KV blocks is 0"),
    ("demo --rate -2", "rate is -2.0"),
    ("demo --port 70000", "port is 70000: use 1 to 65535"),
    ("demo --model gone.gguf --port 0", "port is 0"),
    ("calibrate --threads 0", "threads is 0"),
]


@pytest.mark.parametrize(("line", "message"), BAD_OPTIONS, ids=[line for line, _ in BAD_OPTIONS])
def test_a_name_or_number_that_cannot_be(command: Command, line: str, message: str) -> None:
    assert message in command.refuses(*line.split())


@pytest.mark.parametrize("name", ["run --db a.duckdb", "demo --db a.duckdb", "calibrate"])
def test_more_threads_than_cores(command: Command, name: str) -> None:
    many = available_cores() + 1
    line = command.refuses(*name.split(), "--threads", many)
    assert f"threads is {many}: use 1 to {available_cores()}, the cores there are" in line


def test_a_busy_port(command: Command) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        line = command.refuses("demo", "--db", "a.duckdb", "--port", port)
    assert f"port {port} is in use" in line
    assert "--port" in line


# --- models ---


@pytest.mark.parametrize("name", ["run", "demo"])
def test_a_model_that_is_not_there(command: Command, name: str) -> None:
    port = ("--port", free_port()) if name == "demo" else ()
    line = command.refuses(name, "--db", "a.duckdb", "--model", "no/such.gguf", *port)
    assert "no model at 'no/such.gguf': give smollm2-135m, a GGUF file, a folder" in line


@pytest.mark.parametrize("name", ["run", "demo"])
def test_half_a_gguf(command: Command, default_gguf: Path, name: str) -> None:
    half = command.folder / "half.gguf"
    with default_gguf.open("rb") as file:
        half.write_bytes(file.read(default_gguf.stat().st_size // 2))
    port = ("--port", free_port()) if name == "demo" else ()
    line = command.refuses(name, "--db", "a.duckdb", "--model", "half.gguf", *port)
    assert "half.gguf: not a complete GGUF file (cut short or damaged)" in line


def test_a_file_that_is_no_gguf(command: Command) -> None:
    (command.folder / "notes.gguf").write_text("these are notes, not a model\n" * 100)
    line = command.refuses("run", "--db", "a.duckdb", "--model", "notes.gguf")
    assert "notes.gguf: not a complete GGUF file" in line


def test_a_folder_without_a_tokenizer(command: Command, tiny_model: Path) -> None:
    folder = command.folder / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "tokenizer.json").unlink()
    line = command.refuses("run", "--db", "a.duckdb", "--model", "model")
    assert "model has no tokenizer.json; put the model's tokenizer beside it" in line


def test_a_folder_without_weights(command: Command, tiny_model: Path) -> None:
    folder = command.folder / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "model.safetensors").unlink()
    assert "has no .safetensors file" in command.refuses(
        "run", "--db", "a.duckdb", "--model", "model"
    )


def test_half_of_the_weights(command: Command, tiny_model: Path) -> None:
    folder = command.folder / "model"
    shutil.copytree(tiny_model, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    assert "weights are damaged" in command.refuses("run", "--db", "a.duckdb", "--model", "model")


def test_an_architecture_that_is_not_supported_in_a_folder(
    command: Command, tiny_model: Path
) -> None:
    folder = command.folder / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "architectures": ["GPT2LMHeadModel"]})
    )
    line = command.refuses("run", "--db", "a.duckdb", "--model", "model")
    assert "architecture GPT2LMHeadModel is not supported" in line
    assert "LlamaForCausalLM or MistralForCausalLM" in line


def test_an_architecture_that_is_not_supported_in_a_gguf(command: Command) -> None:
    writer = GGUFWriter(str(command.folder / "other.gguf"), "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((8, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    line = command.refuses("run", "--db", "a.duckdb", "--model", "other.gguf")
    assert "architecture 'mamba' is not supported; use a GGUF of a 'llama' architecture" in line


def test_a_model_too_big_for_memory(
    command: Command, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told before this machine is measured, which takes half a minute the first time."""
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path / "new"))
    folder = command.folder / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    big = {"hidden_size": 65536, "num_hidden_layers": 2000, "intermediate_size": 262144}
    (folder / "config.json").write_text(json.dumps({**config, **big, "head_dim": 128}))
    line = command.refuses("run", "--db", "a.duckdb", "--model", "model", "--dtype", "bf16")
    assert "model in bf16 needs " in line
    assert "GB of memory are free: use a smaller model or dtype" in line
    assert not list(tmp_path.glob("new/calibration*"))


@pytest.mark.parametrize("name", ["run", "demo"])
def test_more_kv_than_memory(command: Command, name: str) -> None:
    port = ("--port", free_port()) if name == "demo" else ()
    many = ("--kv-blocks", 10**9, "--dtype", "bf16", "--kv-dtype", "bf16")
    line = command.refuses(name, "--db", "a.duckdb", *many, *port)
    each = 2 * 30 * 3 * 64 * 2  # K and V, layers, KV heads, width of a head, bytes
    needs = f"1,000,000,000 KV blocks of 16 tokens x {each:,} bytes are {16 * each:,.1f} GB, but "
    assert needs in line
    assert "GB of memory are free beside the weights of SmolLM2" in line
    assert re.search(r"use at most [\d,]+ KV blocks$", line)


# --- databases ---


def test_a_database_in_use(command: Command) -> None:
    # In another process: reading the file in the one that holds it would end its lock (POSIX).
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, command.folder / "a.duckdb"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    line = command.refuses("run", "--db", "a.duckdb")
    holder.communicate()
    assert holder.returncode == 0
    assert "a.duckdb is in use by process" in line
    assert "stop it or use another file" in line


@pytest.mark.parametrize("name", ["run", "demo"])
def test_a_database_that_is_not_ours(command: Command, name: str) -> None:
    with duckdb.connect(command.folder / "sales.duckdb") as other:
        other.execute("CREATE TABLE sales AS SELECT 42 AS amount")
    port = ("--port", free_port()) if name == "demo" else ()
    line = command.refuses(name, "--db", "sales.duckdb", *port)
    assert "a DuckDB file that Stepscope did not make, left as it is: use another" in line


def test_a_file_that_is_no_database(command: Command) -> None:
    (command.folder / "letter.duckdb").write_text("Dear friends, this is a letter.\n")
    line = command.refuses("run", "--db", "letter.duckdb")
    assert "letter.duckdb is not a DuckDB file, and was left as it is" in line


def test_a_refused_run_leaves_an_earlier_recording_alone(
    command: Command, tiny_model: Path
) -> None:
    first = command.run(
        "run", "--db", "a.duckdb", "--model", tiny_model, "--requests", 2, "--threads", 1, "--json"
    )
    run_id = json.loads(first.stdout)["run_id"]
    before = (command.folder / "a.duckdb").read_bytes()
    ended = command.run("run", "--db", "a.duckdb", "--model", "gone")
    assert ended.returncode == 2
    with duckdb.connect(command.folder / "a.duckdb", read_only=True) as file:
        assert file.execute("SELECT run_id FROM runs").fetchall() == [(run_id,)]
    assert len(before) > 0


# --- workload files ---


def test_a_csv_with_a_bad_row(command: Command) -> None:
    (command.folder / "load.csv").write_text(CSV + "2023-11-16 18:15:47.00,many,44\n")
    line = command.refuses("run", "--db", "a.duckdb", "--workload", "load.csv")
    assert "load.csv, line 3 ContextTokens is 'many': use a whole number of tokens" in line


def test_a_prompt_longer_than_the_context(command: Command, tiny_model: Path) -> None:
    rows = [{"timestamp": 0, "input_length": n, "output_length": 20} for n in (100, 500)]
    _write_rows(command.folder / "load.jsonl", rows)
    line = command.refuses(
        "run", "--db", "a.duckdb", "--model", tiny_model, "--workload", "load.jsonl"
    )
    assert (
        "load.jsonl, line 2: prompt of 500 tokens + 20 to generate = 520, "
        "but the model's context is 512: shorten the row" in line
    )


def test_a_prompt_given_as_text_that_is_longer_than_the_context(
    command: Command, tiny_model: Path
) -> None:
    row = {"timestamp": 0, "input_length": 1, "output_length": 20, "prompt": "one two " * 300}
    _write_rows(command.folder / "load.jsonl", [row])
    line = command.refuses(
        "run", "--db", "a.duckdb", "--model", tiny_model, "--workload", "load.jsonl"
    )
    assert "load.jsonl, line 1: prompt of 60" in line
    assert "but the model's context is 512" in line


def _write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_file_that_fits_runs_as_it_is(command: Command, tiny_model: Path) -> None:
    rows = [{"timestamp": 10 * k, "input_length": 30 + k, "output_length": 5} for k in range(3)]
    _write_rows(command.folder / "load.jsonl", rows)
    ended = command.run(
        *("run", "--db", "a.duckdb", "--model", tiny_model, "--workload", "load.jsonl"),
        *("--threads", 1, "--json"),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    with duckdb.connect(command.folder / "a.duckdb", read_only=True) as file:
        lengths = file.execute(
            "SELECT prompt_tokens, output_tokens FROM requests ORDER BY request_id"
        ).fetchall()
    assert lengths == [(30, 5), (31, 5), (32, 5)]
