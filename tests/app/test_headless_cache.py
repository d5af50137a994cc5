"""`stepscope run`: what is computed once, and what again, changes no answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.commands import Command

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def command(stepscope: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(stepscope, tmp_path_factory.mktemp("runs"))


def _summary(command: Command, *options: object) -> dict[str, Any]:
    ended = command.run("run", "--threads", 1, "--dtype", "fp32", "--json", *options)
    assert (ended.returncode, ended.stderr) == (0, "")
    summary: dict[str, Any] = json.loads(ended.stdout)
    return summary


def test_the_prefix_cache_saves_most_of_a_chat_and_changes_no_answer(command: Command) -> None:
    chat = ("--workload", "chat", "--requests", 16, "--db", "chat.duckdb")
    off, on = (_summary(command, *chat, f"--{no}prefix-cache") for no in ("no-", ""))
    assert on["outputs_sha256"] == off["outputs_sha256"]
    assert off["prefix_hit_fraction"] == 0
    assert on["computed_prompt_tokens"] < 0.4 * off["computed_prompt_tokens"]
    saved = 1 - on["computed_prompt_tokens"] / off["computed_prompt_tokens"]
    assert on["prefix_hit_fraction"] == pytest.approx(saved)
    first_tokens = off["ttft_s"]["p50"], on["ttft_s"]["p50"]
    print(f"P50 TTFT {first_tokens[0]:.3f} s, with the prefix cache {first_tokens[1]:.3f} s")


def test_too_few_blocks_cost_recomputation_and_change_no_answer(
    command: Command, tiny_model: Path
) -> None:
    skew = ("--model", tiny_model, "--workload", "skew", "--max-batch", 8)
    plenty = _summary(command, *skew, "--db", "plenty.duckdb")
    few = ("--kv-blocks", 20, "--scheduler", "chunked", "--chunk-tokens", 32, "--prefix-cache")
    tight = _summary(command, *skew, *few, "--db", "tight.duckdb")
    assert tight["outputs_sha256"] == plenty["outputs_sha256"]
    assert (plenty["preemptions"], plenty["recomputed_tokens"]) == (0, 0)
    assert tight["preemptions"] > 0
    assert tight["recomputed_tokens"] > 0
    # Each prompt token is computed for the first time once: what comes again counts apart.
    hits = tight["prefix_hit_fraction"] * plenty["computed_prompt_tokens"]
    assert tight["computed_prompt_tokens"] + hits == pytest.approx(plenty["computed_prompt_tokens"])
    with duckdb.connect(command.folder / "tight.duckdb", read_only=True) as file:
        wrong = file.execute("""
            SELECT step FROM steps JOIN (
              SELECT step, sum(tokens) AS ran, max(tokens) AS most,
                     count(*) FILTER (phase = 'recompute') AS again
              FROM sequence_steps GROUP BY step) USING (step)
            WHERE ran != prefill_tokens + decode_tokens + recomputed_tokens
               OR again != recompute_seqs OR prefill_tokens + recomputed_tokens > 32
               OR kv_blocks_used > 20 OR recomputed_flops > flops""").fetchall()
        assert wrong == []
        assert file.execute("SELECT sum(preemptions) FROM steps").fetchone() == (
            tight["preemptions"],
        )


@pytest.mark.parametrize("scheduler", ["chunked", "static"])
def test_a_recorded_load_shares_what_was_shared(
    command: Command, tiny_model: Path, scheduler: str
) -> None:
    load = ("--workload", "mooncake", "--requests", 40, "--concurrency", 4)
    options = ("--model", tiny_model, "--scheduler", scheduler, "--prefix-cache", *load)
    summary = _summary(command, *options, "--db", f"mooncake-{scheduler}.duckdb")
    assert summary["completed"] == 40
    assert 0.1 < summary["prefix_hit_fraction"] < 0.9
    file = command.folder / f"mooncake-{scheduler}.duckdb"
    with duckdb.connect(file, read_only=True) as recorded:
        (detail,) = recorded.execute("SELECT detail FROM events WHERE kind = 'load'").fetchall()[0]
    assert json.loads(detail)["scale"] == {"prompt": 1 / 16, "output": 1 / 8, "time": 0.5}
