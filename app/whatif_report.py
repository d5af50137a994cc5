"""The answer of `stepscope whatif` for people: tables, a chart of bars, and the sentences."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from app.units import UNKNOWN, count, duration, percent, si, three


def print_answer(a: dict[str, Any]) -> None:
    """One step: every line with the numbers that it is made of, then what follows in words."""
    console = Console(soft_wrap=True)
    table = Table(show_header=False, title=_title(a), title_justify="left")
    for name, value, made_of in (*_step_rows(a), *_more_rows(a)):
        table.add_row(name, value, made_of)
    console.print(table)
    if a["phase"] == "prefill":
        console.print(_lengths(a))
    for sentence in a["sentences"].values():
        console.print(f"- {sentence}", highlight=False)
    for missing in a["unknown"]:
        console.print(f"- Not known: {missing}.", highlight=False)
    for note in a["notes"]:
        console.print(f"- Note: {note}.", highlight=False)
    console.print(f"- {_rests_on(a)}", highlight=False)


def _lengths(a: dict[str, Any]) -> Table:
    """One prompt by itself, over its length."""
    table = Table(
        title="One prompt by itself", title_justify="left", box=None, padding=(0, 2, 0, 0)
    )
    for column in ("tokens", "linear", "attention", "reading", "prefill", "tokens/s"):
        table.add_column(column, justify="right")
    for p in a["prefill"]["over_length"]:
        times = (p["t_linear_s"], p["t_quadratic_s"], p["t_memory_s"], p["t_step_s"])
        cells = [duration(t) for t in times]
        table.add_row(f"{p['prompt_tokens']:,}", *cells, three(p["tokens_per_s"]))
    return table


def _title(a: dict[str, Any]) -> str:
    step = "decode" if a["phase"] == "decode" else f"prefill of {a['prompt_tokens']:,} tokens"
    devices = f"{a['devices']} x {a['device_title']}" if a["devices"] > 1 else a["device_title"]
    return (
        f"{a['title']}, {a['dtype']}, on {devices}: {step}, batch {a['batch']:,}, "
        f"context {a['context']:,}"
    )


def _step_rows(a: dict[str, Any]) -> list[tuple[str, str, str]]:
    kv = "KV unknown" if a["kv_moved_bytes"] is None else f"{si(a['kv_moved_bytes'], 'B')} KV"
    d = a["assumptions"]
    n = f"{a['devices']} x " if a["devices"] > 1 else ""
    reads = f"({si(a['weights_read_bytes'], 'B')} weights + {kv}) / {n}{si(d['bandwidth'], 'B/s')}"
    return [
        ("reading", duration(a["t_memory_s"]), reads),
        (
            "computing",
            duration(a["t_compute_s"]),
            f"{si(a['flops'], 'FLOP')} / {n}{si(d['peak_flops'], 'FLOP/s')} ({a['math_dtype']})",
        ),
        *_link_row(a),
        ("step", duration(a["t_step_s"]), _composed(a)),
        ("bound", a["bound"], f"reading over computing: {three(a['memory_over_compute'])}"),
        ("tokens/s", three(a["tokens_per_s"]), "of the whole batch"),
        ("counted exactly", _exact(a), "embedding rows, norms, head rows, KV written"),
    ]


def _link_row(a: dict[str, Any]) -> list[tuple[str, str, str]]:
    if a["devices"] == 1:
        return []
    link = si(a["assumptions"]["link_bandwidth"], "B/s")
    return [("link", duration(a["t_link_s"]), f"{link} per direction")]


def _composed(a: dict[str, Any]) -> str:
    """How the parts become the step, in words; what is nothing is left out."""
    d = a["assumptions"]
    words = "the longer of both" if a["composition"] == "overlap" else "linear layers, then KV"
    if d["matmul_fraction"] < 1 or d["bandwidth_fraction"] < 1:
        words += f", at {percent(d['matmul_fraction'])} of FLOP/s"
        words += f" and {percent(d['bandwidth_fraction'])} of bandwidth"
    words += ", and link" if a["t_link_s"] else ""
    return words + (f", and {duration(a['overhead_s'])} overhead" if a["overhead_s"] else "")


def _exact(a: dict[str, Any]) -> str:
    return UNKNOWN if a["exact"] is None else duration(a["exact"]["t_step_s"])


def _more_rows(a: dict[str, Any]) -> list[tuple[str, str, str]]:
    rows = [
        ("intensity", three(a["intensity"]), "FLOP/byte"),
        ("ridge", three(a["ridge"]), f"FLOP/byte; reachable {three(a['ridge_reachable'])}"),
        ("B*", three(a["b_star"]), a["formulas"]["b_star"]),
        ("B* with KV", three(a["b_star_with_kv"]), a["b_star_with_kv_reason"] or ""),
        ("one conversation", f"{three(a['single_stream_tokens_per_s'])} tokens/s", "at most"),
        ("KV per token", si(a["kv_bytes_per_token"], "B"), a["formulas"]["kv_bytes_per_token"]),
        ("largest batch", count(a["max_batch"]), a["max_batch_limit"] or ""),
    ]
    return rows + _fewer_bytes(a) + _prefill_rows(a) + _price_rows(a)


def _fewer_bytes(a: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The same step with narrower weights, the KV cache left as it is."""
    narrower = [s for s in a["speed_ups"] if s["kv_dtype"] == a["kv_dtype"] and s["speed_up"] > 1]
    return [
        (f"{s['dtype']} weights", duration(s["t_step_s"]), f"{three(s['speed_up'])} times faster")
        for s in narrower
    ]


def _prefill_rows(a: dict[str, Any]) -> list[tuple[str, str, str]]:
    p = a["prefill"]
    if p is None:
        return []
    parts = f"linear {duration(p['t_linear_s'])} + attention {duration(p['t_quadratic_s'])}"
    rows = [(f"prefill of {p['prompt_tokens']:,}", duration(p["t_step_s"]), parts)]
    if a["e2el_s"] is not None:
        made_of = f"{a['output_tokens']:,} tokens: {a['formulas']['e2el_s']}"
        rows.append(("whole answer", duration(a["e2el_s"]), made_of))
    return rows


def _price_rows(a: dict[str, Any]) -> list[tuple[str, str, str]]:
    p = a["prices"]
    if p is None:
        return []
    given = (
        UNKNOWN if p["per_million_input_tokens"] is None else three(p["per_million_input_tokens"])
    )
    hour = f"at {p['price_per_device_hour']:g} a device and hour"
    return [
        ("million output tokens", three(p["per_million_output_tokens"]), hour),
        ("million input tokens", given, "prompts of --prompt-tokens, one after another"),
    ]


def _rests_on(a: dict[str, Any]) -> str:
    d, seen = a["assumptions"], a["assumptions"]["matmul_fraction_seen"]
    hint = "" if seen is None else f" Large matmuls were seen to reach {percent(seen)} of the peak."
    return (
        f"Modelled, not measured: {percent(d['matmul_fraction'])} of the peak FLOP/s "
        f"({d['sources']['peak_flops']}), {percent(d['bandwidth_fraction'])} of the bandwidth "
        f"({d['sources']['bandwidth']}), {duration(d['overhead_s'])} overhead a step.{hint} "
        "Every formula and source: --json."
    )
