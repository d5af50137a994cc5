"""The bench's result for people: one table a part, and what to make of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]


def print_report(result: Row, console: Console | None = None) -> None:
    """All parts that were measured."""
    out = console or Console()
    if "machine" in result:
        out.print(_machine(result["machine"]))
    for title, key, columns in PARTS:
        if result.get(key):
            out.print(_table(title, columns, result[key]))
    for peer, dtypes in result.get("against", {}).items():
        for dtype, found in dtypes.items():
            _print_peer(out, f"{peer} {found['version']}, {dtype}", found)
    out.print(_verdict(result))


def _machine(facts: Row) -> str:
    peaks = ", ".join(
        f"{dtype} {peak['flops'] / 1e9:.4g} GFLOP/s and {peak['bandwidth'] / 1e9:.3g} GB/s"
        for dtype, peak in facts["peaks"].items()
    )
    return (
        f"{facts['device']}, {facts['threads']} threads on {facts['cores']} cores, "
        f"{facts['memory_bytes'] / 2**30:.0f} GiB, torch {facts['torch']}, {facts['huge_pages']}\n"
        f"{facts['model']}; peaks measured: {peaks}"
    )


def _verdict(result: Row) -> str:
    idle = result["idle"]
    used = f"others used up to {idle['worst']:.0%} of the CPU (before: {idle['before']:.0%})"
    if result["clean"]:
        return f"{used}: the figures count."
    return (
        f"{used}, more than {idle['allowed']:.0%}: rows marked 'busy' do not count. "
        "Run it again on an idle machine."
    )


def _print_peer(out: Console, title: str, found: Row) -> None:
    out.print(f"beside {title}: {found['settings']}")
    for part, columns in PEER_PARTS.items():
        if found.get(part):
            out.print(_table(f"{part} beside {title}", columns, found[part]))


def _table(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for name, _ in columns:
        table.add_column(name, justify="left" if name in _WORDS else "right")
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns))
    return table


# --- cells ---


def _known(value: Any, text: Callable[[Any], str]) -> str:
    return "not known" if value is None else text(value)


def text(key: str) -> Callable[[Row], str]:
    return lambda row: _known(row[key], str)


def number(key: str, form: str = ".4g", scale: float = 1) -> Callable[[Row], str]:
    return lambda row: _known(row[key], lambda v: f"{v * scale:{form}}")


def percent(key: str, digits: int = 1) -> Callable[[Row], str]:
    return number(key, f".{digits}%")


def spread(key: str, form: str = ".4g", scale: float = 1) -> Callable[[Row], str]:
    """Median (least .. greatest)."""

    def cell(row: Row) -> str:
        if row[key] is None:
            return "not known"
        middle, low, high = (row[k] * scale for k in (key, f"{key}_low", f"{key}_high"))
        return f"{middle:{form}} ({low:{form}} .. {high:{form}})"

    return cell


def idle(row: Row) -> str:
    return "yes" if row["clean"] else f"busy {row['foreign']:.0%}"


MS = 1e3
MIB = 2**-20
_WORDS = ("dtype", "workload", "scheduler", "mode", "text", "why none")
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
            ("cost, ms a token", lambda row: _costs(row["cost_s_per_token"])),
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
        "telemetry, batch 1: recorder on over off",
        "telemetry",
        (
            _DTYPE,
            ("overhead", percent("overhead", 2)),
            (
                "by pairs (least .. greatest)",
                lambda r: f"{r['paired_overhead']:.2%} ({r['low']:.2%} .. {r['high']:.2%})",
            ),
            ("step on, ms", number("on_s", ".3f", MS)),
            ("off, ms", number("off_s", ".3f", MS)),
            ("after the token, µs", number("record_s", ".0f", 1e6)),
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
        (_DTYPE, ("seconds", spread("first_token_s", ".2f"))),
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


def _costs(costs: Row) -> str:
    return "  ".join(f"{batch}: {s * MS:.2f}" for batch, s in costs.items())
