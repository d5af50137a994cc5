"""Ours and a peer in turn, on the same weights and precision: medians, ratios and their spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.bench.context import CONTEXT, PEER_SETTLE_S, STEPS, Bench, Samples, cleanliness, spread_row
from app.bench.loads import ClientLoad
from app.bench.measures import PROMPTS, ask_clients, fits, holds, vocab
from app.bench.side import Side
from app.bench.stats import Spread, pair_ratios

Row = dict[str, Any]
BATCHES = (1, 8, 16, 32)
KEPT_MODES = ("static",)  # shown beside the best one, since padding is what it shows
OUR_SCHEDULER = "continuous"


def compare(bench: Bench, ours: Side, theirs: Side, sections: Sequence[str]) -> dict[str, Any]:
    """Ratios of ours to theirs: above 1 in tokens/s and below 1 in step time, ours is faster."""
    parts: dict[str, Callable[[Bench, Side, Side], list[Row]]] = {
        "decode": decode,
        "prefill": prefill,
        "clients": clients,
    }
    found: dict[str, Any] = {
        "version": theirs.facts["version"],
        "settings": theirs.facts["settings"],
    }
    for name in [name for name in parts if name in sections]:
        found[name] = parts[name](bench, ours, theirs)
    return found


def decode(bench: Bench, ours: Side, theirs: Side) -> list[Row]:
    """Step time and tokens/s by batch."""
    rows = []
    for batch in [batch for batch in BATCHES if holds(ours, batch)]:
        bench.say(f"{ours.name} and {theirs.name}: decode at batch {batch}")
        pair = _pair()
        for _ in range(1 + bench.repeats):  # the first warms
            prompts = bench.prompts(vocab(ours), *[CONTEXT] * batch)
            for side, samples in zip((ours, theirs), pair, strict=True):
                samples.ask(bench, side, "decode", prompts=prompts, steps=STEPS)
        row = _row(pair, "step_s", batch, warm=True)
        rows.append({"batch": batch, "context": CONTEXT, **row})
    return rows


def prefill(bench: Bench, ours: Side, theirs: Side) -> list[Row]:
    """Tokens/s of one prompt by its length."""
    rows = []
    for tokens in [n for n in PROMPTS if fits(ours, n + 1)]:
        bench.say(f"{ours.name} and {theirs.name}: prompt of {tokens}")
        pair = _pair()
        for _ in range(1 + bench.repeats):
            prompt = bench.prompts(vocab(ours), tokens)[0]
            for side, samples in zip((ours, theirs), pair, strict=True):
                samples.ask(bench, side, "prefill", prompt=prompt)
        rows.append({"tokens": tokens, **_row(pair, "time_s", tokens, warm=True)})
    return rows


def clients(bench: Bench, ours: Side, theirs: Side) -> list[Row]:
    """Output tokens/s of the client workloads; theirs at the best of their settings."""
    rows: list[Row] = []
    for load in [load for load in bench.client_loads() if fits(ours, load.longest)]:
        rows += _client_rows(bench, ours, theirs, load)
    return rows


def _client_rows(bench: Bench, ours: Side, theirs: Side, load: ClientLoad) -> list[Row]:
    """All modes once; then the fastest and those to keep, as often as asked."""
    modes = list(theirs.facts["modes"])
    pairs = {mode: _pair() for mode in modes}
    for turn in range(bench.repeats):
        for mode in modes:
            bench.say(f"{ours.name} and {theirs.name}: clients {load.name}, {mode}")
            prompts = bench.prompts(vocab(ours), *load.prompt_tokens)
            ask_clients(bench, ours, load, OUR_SCHEDULER, pairs[mode][0], prompts)
            ask_clients(bench, theirs, load, mode, pairs[mode][1], prompts)
        if turn == 0:
            modes = _worth_repeating(pairs)
    tokens = load.total_output_tokens
    facts = {"workload": load.name, "output_tokens": tokens}
    return [
        {**facts, "mode": mode, "best": mode == modes[0], **_row(pair, "makespan_s", tokens)}
        for mode, pair in pairs.items()
    ]


def _pair() -> tuple[Samples, Samples]:
    """Of ours and theirs; each waits until the other has come to rest."""
    return Samples(settle_s=PEER_SETTLE_S), Samples(settle_s=PEER_SETTLE_S)


def _worth_repeating(pairs: dict[str, tuple[Samples, Samples]]) -> list[str]:
    """The fastest mode first."""
    best = min(pairs, key=lambda mode: pairs[mode][1].spread("makespan_s").median)
    return [best, *(mode for mode in pairs if mode in KEPT_MODES and mode != best)]


def _row(pair: tuple[Samples, Samples], key: str, tokens: int, *, warm: bool = False) -> Row:
    """key: the time that both sides measured; warm: the first round does not count."""
    sides = {"ours": pair[0].values(key)[warm:], "theirs": pair[1].values(key)[warm:]}
    row: Row = {}
    for name, values in sides.items():
        time_s = Spread.of(values)
        row |= spread_row(f"{name}_{key}", time_s)
        row |= spread_row(f"{name}_tokens_per_s", time_s.inverse(tokens))
    slower = pair_ratios(sides["ours"], sides["theirs"])
    row |= spread_row("time_ratio", slower) | spread_row("tokens_ratio", slower.inverse())
    return {**row, "rounds": len(sides["ours"]), **cleanliness(*pair)}
