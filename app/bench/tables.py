"""The columns of each part's table."""

from __future__ import annotations

from app.bench.cells import Cell, costs, idle, number, percent, spread, text

Column = tuple[str, Cell]

MS = 1e3
MIB = 2**-20
WORDS = ("dtype", "workload", "scheduler", "mode", "text")
"""Columns that hold no figures."""
_DTYPE: Column = ("dtype", text("dtype"))
_IDLE: Column = ("idle", idle)
_RATES: tuple[Column, ...] = (
    ("ours, tokens/s", spread("ours_tokens_per_s")),
    ("theirs", spread("theirs_tokens_per_s")),
    ("ours / theirs", spread("tokens_ratio", ".2f")),
    _IDLE,
)

PARTS: tuple[tuple[str, str, tuple[Column, ...]], ...] = (
    (
        "decode, context 128",
        "decode",
        (
            _DTYPE,
            ("batch", text("batch")),
            ("step, ms", spread("step_s", ".2f", MS)),
            ("tokens/s", spread("tokens_per_s", ".0f")),
            ("MBU", percent("mbu")),
            ("MFU", percent("mfu")),
            _IDLE,
        ),
    ),
    (
        "step time over context, batch 1",
        "context_growth",
        (
            _DTYPE,
            ("contexts", lambda row: " to ".join(map(str, row["contexts"]))),
            ("step, ms", lambda row: " to ".join(f"{s * MS:.2f}" for s in row["step_s"])),
            ("growth", percent("growth")),
            ("KV bytes explain", percent("explained_by_kv")),
            ("beyond", percent("beyond")),
            _IDLE,
        ),
    ),
    (
        "prefill, one prompt",
        "prefill",
        (
            _DTYPE,
            ("tokens", text("tokens")),
            ("time, ms", spread("time_s", ".1f", MS)),
            ("tokens/s", spread("tokens_per_s", ".0f")),
            ("MFU", percent("mfu")),
            _IDLE,
        ),
    ),
    (
        "crossover, context 128",
        "crossover",
        (
            _DTYPE,
            ("flat part, ms", number("flat_s", ".2f", MS)),
            ("slope, ms a sequence", number("slope_s", ".3f", MS)),
            ("measured B*", number("measured", ".1f")),
            ("B* with KV, computed", number("b_star_with_kv", ".1f")),
            ("measured / computed", number("ratio", ".2f")),
            ("B* without KV", number("b_star", ".1f")),
            ("cost, ms a token", costs),
        ),
    ),
    (
        "clients, all at once",
        "clients",
        (
            _DTYPE,
            ("workload", text("workload")),
            ("scheduler", text("scheduler")),
            ("output tokens", text("output_tokens")),
            ("output tokens/s", spread("output_tokens_per_s")),
            _IDLE,
        ),
    ),
    (
        "telemetry, batch 1: steps recorded over steps not recorded",
        "telemetry",
        (
            _DTYPE,
            (
                "median of pairs (95% interval)",
                lambda r: f"{r['overhead']:.2%} ({r['low']:.2%} .. {r['high']:.2%})",
            ),
            ("least .. greatest", lambda r: f"{r['least']:.1%} .. {r['greatest']:.1%}"),
            ("step on, ms", number("on_s", ".3f", MS)),
            ("off, ms", number("off_s", ".3f", MS)),
            ("engine's thread, µs", number("engine_s", ".0f", 1e6)),
            ("of the step", percent("engine_share", 2)),
            ("sender's thread, µs", number("sender_s", ".0f", 1e6)),
            ("pairs", text("pairs")),
            _IDLE,
        ),
    ),
    (
        "quality beside fp32, teacher forcing",
        "quality",
        (
            _DTYPE,
            ("text", text("text")),
            ("tokens", text("tokens")),
            ("mean KL, nats", number("mean_kl", ".2e")),
            ("perplexity", number("perplexity")),
            ("over fp32's", number("perplexity_ratio", ".4f")),
        ),
    ),
    (
        "all linear layers and the LM head alone, batch 1; whole steps beside",
        "linears",
        (
            _DTYPE,
            ("linears, ms", spread("time_s", ".2f", MS)),
            ("times faster than bf16", spread("linears_speedup", ".2f")),
            ("step, ms", spread("step_s", ".2f", MS)),
            ("times faster", spread("step_speedup", ".2f")),
            _IDLE,
        ),
    ),
    (
        "start-up: process start to first token",
        "startup",
        (_DTYPE, ("seconds", spread("first_token_s", ".2f")), _IDLE),
    ),
    (
        "resident memory, MiB",
        "memory",
        (
            _DTYPE,
            ("loaded", number("loaded_bytes", ".0f", MIB)),
            ("after the bench", number("after_bytes", ".0f", MIB)),
        ),
    ),
)

PEER_PARTS: dict[str, tuple[Column, ...]] = {
    "decode": (
        ("batch", text("batch")),
        ("our step, ms", spread("ours_step_s", ".2f", MS)),
        ("their step, ms", spread("theirs_step_s", ".2f", MS)),
        ("our step / theirs", spread("time_ratio", ".2f")),
        ("tokens/s, ours / theirs", spread("tokens_ratio", ".2f")),
        _IDLE,
    ),
    "prefill": (("tokens", text("tokens")), *_RATES),
    "clients": (
        ("workload", text("workload")),
        ("mode", lambda row: row["mode"] + (" (their best)" if row["best"] else "")),
        *_RATES,
        ("rounds", text("rounds")),
    ),
}
