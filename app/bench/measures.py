"""What our side is measured at, alone: steps, prompts, clients, growth, crossover, telemetry."""

from __future__ import annotations

from typing import Any

from app.bench.context import CONTEXT, STEPS, Bench, Samples, cleanliness, spread_row
from app.bench.loads import ClientLoad
from app.bench.side import Side
from app.bench.stats import crossover
from engine.physics.model_spec import ModelSpec
from engine.physics.roofline import DecodeModel, crossover_batch, crossover_batch_with_kv

Row = dict[str, Any]

BATCHES = (1, 2, 4, 8, 16, 32)
STEEP_BATCHES = (64, 128)
STEEP_REPEATS = 3  # each takes seconds
PROMPTS = (128, 512, 1024, 2048)
LONG_CONTEXT = 1024
SCHEDULERS = ("continuous", "chunked")
TELEMETRY_STEPS, TELEMETRY_PAIRS = 60, 12  # pairs a repeat


def fits(side: Side, tokens: int) -> bool:
    """Whether the model's context holds a request of so many tokens."""
    return tokens <= int(side.facts["max_context"])


def holds(side: Side, batch: int) -> bool:
    """Whether the model's context and the KV cache hold the decode steps of this batch."""
    tokens, block = CONTEXT + STEPS + 1, int(side.facts["kv_block_tokens"])
    return fits(side, tokens) and batch * -(-tokens // block) <= int(side.facts["kv_blocks"])


def vocab(side: Side) -> int:
    """Token ids that prompts may have."""
    return int(side.facts["vocab"])


def decode_samples(
    bench: Bench, side: Side, batch: int, context: int, repeats: int, steps: int = STEPS
) -> Samples:
    """The same batch of fresh prompts, `repeats` times."""
    samples = Samples()
    for _ in range(repeats):
        prompts = bench.prompts(vocab(side), *[context] * batch)
        samples.ask(bench, side, "decode", prompts=prompts, steps=steps)
    return samples


def decode(bench: Bench, side: Side) -> list[Row]:
    """Step time by batch at a context of 128."""
    decode_samples(bench, side, 1, CONTEXT, 1)  # warm
    batches = [batch for batch in BATCHES if holds(side, batch)]
    return [_decode_row(bench, side, batch, bench.repeats) for batch in batches]


def _decode_row(bench: Bench, side: Side, batch: int, repeats: int) -> Row:
    bench.say(f"{side.name}: decode at batch {batch}")
    samples = decode_samples(bench, side, batch, CONTEXT, repeats)
    step_s = samples.spread("step_s")
    return {
        "dtype": side.facts["dtype"],
        "batch": batch,
        "context": CONTEXT,
        **spread_row("step_s", step_s),
        **spread_row("tokens_per_s", step_s.inverse(batch)),
        "mbu": samples.median("mbu"),
        "mfu": samples.median("mfu"),
        **cleanliness(samples),
    }


def growth(bench: Bench, side: Side) -> Row | None:
    """Step time at batch 1 over a longer context, beside what its KV bytes explain."""
    if not fits(side, LONG_CONTEXT + STEPS + 1):
        return None
    bench.say(f"{side.name}: decode at a context of {LONG_CONTEXT}")
    short, long = Samples(), Samples()
    for _ in range(bench.repeats):
        for samples, context in ((short, CONTEXT), (long, LONG_CONTEXT)):
            prompts = bench.prompts(vocab(side), context)
            samples.ask(bench, side, "decode", prompts=prompts, steps=STEPS)
    short_s, long_s = (s.spread("step_s").median for s in (short, long))
    kv_bytes = long.spread("kv_bytes").median - short.spread("kv_bytes").median
    explained = kv_bytes / side.facts["peak_bandwidth"] / short_s
    return {
        "dtype": side.facts["dtype"],
        "contexts": [CONTEXT, LONG_CONTEXT],
        "step_s": [short_s, long_s],
        "growth": long_s / short_s - 1,
        "explained_by_kv": explained,
        "beyond": long_s / short_s - 1 - explained,
        **cleanliness(short, long),
    }


def prefill(bench: Bench, side: Side) -> list[Row]:
    """Tokens/s of one prompt by its length."""
    rows = []
    for tokens in [n for n in PROMPTS if fits(side, n + 1)]:
        bench.say(f"{side.name}: prompt of {tokens}")
        samples = Samples()
        for _ in range(bench.repeats):
            prompt = bench.prompts(vocab(side), tokens)[0]
            samples.ask(bench, side, "prefill", prompt=prompt)
        rows.append(_prefill_row(side, tokens, samples))
    return rows


def _prefill_row(side: Side, tokens: int, samples: Samples) -> Row:
    time_s = samples.spread("time_s")
    return {
        "dtype": side.facts["dtype"],
        "tokens": tokens,
        **spread_row("time_s", time_s),
        **spread_row("tokens_per_s", time_s.inverse(tokens)),
        "mfu": samples.median("mfu"),
        **cleanliness(samples),
    }


def clients(bench: Bench, side: Side) -> list[Row]:
    """Output tokens/s of the client workloads, under each scheduler that has no cohorts."""
    repeats = -(-bench.repeats // 2)
    rows = []
    for load in [load for load in bench.client_loads() if fits(side, load.longest)]:
        samples: dict[str, Samples] = {name: Samples() for name in SCHEDULERS}
        for _ in range(repeats):
            for name in SCHEDULERS:
                bench.say(f"{side.name}: clients {load.name}, {name}")
                prompts = bench.prompts(vocab(side), *load.prompt_tokens)
                ask_clients(bench, side, load, name, samples[name], prompts)
        rows += [_client_row(side, load, name, samples[name]) for name in SCHEDULERS]
    return rows


def ask_clients(
    bench: Bench,
    side: Side,
    load: ClientLoad,
    mode: str,
    samples: Samples,
    prompts: list[list[int]],
) -> None:
    """One run of a load; mode: the scheduler, or what a peer calls its setting."""
    tokens = list(load.output_tokens)
    samples.ask(bench, side, "clients", prompts=prompts, output_tokens=tokens, mode=mode)


def _client_row(side: Side, load: ClientLoad, scheduler: str, samples: Samples) -> Row:
    makespan_s = samples.spread("makespan_s")
    return {
        "dtype": side.facts["dtype"],
        "workload": load.name,
        "scheduler": scheduler,
        "requests": len(load.output_tokens),
        "output_tokens": load.total_output_tokens,
        **spread_row("output_tokens_per_s", makespan_s.inverse(load.total_output_tokens)),
        **spread_row("makespan_s", makespan_s),
        **cleanliness(samples),
    }


def cost_over_batch(bench: Bench, side: Side, rows: list[Row]) -> Row | None:
    """Cost per token up to a batch of 128, and where the measured and the computed roofs cross.

    None where the KV cache does not hold the batches that this takes.
    """
    known = {row["batch"]: row["step_s"] for row in rows if row["dtype"] == side.facts["dtype"]}
    for batch in (*BATCHES, *STEEP_BATCHES):
        if batch not in known and holds(side, batch):
            repeats = min(bench.repeats, STEEP_REPEATS)
            known[batch] = _decode_row(bench, side, batch, repeats)["step_s"]
    measured = crossover(known)
    if measured is None:
        return None
    return {
        "dtype": side.facts["dtype"],
        "context": CONTEXT,
        "cost_s_per_token": {batch: known[batch] / batch for batch in sorted(known)},
        "measured": measured.batch,
        "measured_affine": measured.batch_affine,
        "flat_s": measured.flat_s,
        "slope_s": measured.slope_s,
        **computed_crossover(side, measured.batch),
    }


def computed_crossover(side: Side, measured: float) -> Row:
    """B* of the calibrated peaks, with and without KV."""
    facts = side.facts
    model = DecodeModel.of(ModelSpec(**facts["spec"]), facts["dtype"], facts["kv_dtype"])
    peaks = facts["peak_flops"], facts["peak_bandwidth"]
    with_kv = crossover_batch_with_kv(model, CONTEXT, *peaks)
    return {
        "b_star": crossover_batch(model, *peaks),
        "b_star_with_kv": with_kv.batch,
        "b_star_with_kv_reason": with_kv.reason,
        "ratio": measured / with_kv.batch if with_kv.batch else None,
    }


def telemetry(bench: Bench, side: Side) -> Row:
    """What the recorder costs a step at batch 1."""
    bench.say(f"{side.name}: recorder on and off")
    samples = Samples()
    samples.ask(
        bench,
        side,
        "telemetry",
        prompt=bench.prompts(vocab(side), CONTEXT)[0],
        steps=min(TELEMETRY_STEPS, int(side.facts["max_context"]) - CONTEXT - 1),
        pairs=TELEMETRY_PAIRS * bench.repeats,
    )
    return {"dtype": side.facts["dtype"], **samples.answers[0], **cleanliness(samples)}
