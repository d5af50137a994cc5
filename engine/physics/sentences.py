"""What an answer says in a sentence each; the command and the page use the same words."""

from __future__ import annotations

import math
from typing import Any

_LIMITS = {
    "capacity": "more KV cache does not fit",
    "slo_memory": "reading weights and KV cache would take longer",
    "slo_compute": "computing would take longer",
}
_LIMIT_NAMES = {"capacity": "memory", "slo_memory": "reading", "slo_compute": "computing"}


def figures(value: float) -> str:
    """Three significant figures without an exponent or trailing zeros: 0.143, 42.1, 80, 1,870."""
    if not value or not math.isfinite(value):
        return "0" if not value else str(value)
    rounded = float(f"{value:.3g}")
    digits = max(2 - math.floor(math.log10(abs(rounded))), 0)
    text = f"{rounded:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def ms(seconds: float) -> str:
    return f"{figures(seconds * 1e3)} ms"


def gb(amount: float) -> str:
    """Bytes in GB of 1e9."""
    return f"{figures(amount / 1e9)} GB"


def sentences(answer: dict[str, Any]) -> dict[str, str]:
    """headline, fit, slo and crossover of an answer."""
    return {
        "headline": headline(answer),
        "fit": fit_sentence(answer),
        "slo": slo_sentence(answer),
        "crossover": crossover_sentence(answer),
    }


def headline(a: dict[str, Any]) -> str:
    """What the step pays for, and how much more than for the other."""
    read, compute = a["t_memory_s"], a["t_compute_s"]
    more, less = ("reading", "computing") if a["bound"] == "memory" else ("computing", "reading")
    times = max(read, compute) / min(read, compute)
    return (
        f"{_where(a)}: reading takes {ms(read)} and computing {ms(compute)}, so the step is "
        f"{a['bound']}-bound: {figures(times)} times more {more} than {less}."
    )


def _where(a: dict[str, Any]) -> str:
    step = "decode" if a["phase"] == "decode" else f"prefill of {a['prompt_tokens']:,} tokens"
    return f"{a['title']} in {a['dtype']} on {_devices(a)}, {step} at batch {a['batch']:,}"


def _devices(a: dict[str, Any]) -> str:
    return f"{a['devices']} x {a['device_title']}" if a["devices"] > 1 else a["device_title"]


def fit_sentence(a: dict[str, Any]) -> str:
    """Whether weights and KV cache fit; if not, what would."""
    memory = a["memory"]
    if a["fits"]:
        free = memory["usable_bytes"] - memory["weight_bytes"] - (memory["kv_bytes"] or 0)
        return f"{_needs(a)} fit in {_memory(a)}; {gb(free)} stay free."
    ways = would_fit_words(a)
    what = f"What would: {ways}." if ways else "Nothing in the catalogue would hold it."
    return f"{_needs(a)} do not fit in {_memory(a)}. {what}"


def _needs(a: dict[str, Any]) -> str:
    memory = a["memory"]
    weights = f"{gb(memory['weight_bytes'])} of weights"
    if memory["kv_bytes"] is None:
        return f"{weights} (and a KV cache of unknown size)"
    return f"{weights} and {gb(memory['kv_bytes'])} of KV cache" if memory["kv_bytes"] else weights


def _memory(a: dict[str, Any]) -> str:
    memory = a["memory"]
    whole = f"{gb(memory['memory_bytes'])} ({_devices(a)})"
    used = memory["usable_bytes"] / memory["memory_bytes"]
    return whole if used == 1 else f"{figures(used * 100)}% of {whole}"


def would_fit_words(a: dict[str, Any]) -> str:
    """The changes of `would_fit` as one list of words; of other devices the three smallest."""
    by: dict[str, list[dict[str, Any]]] = {}
    for fit in a["would_fit"]:
        by.setdefault(fit["change"], []).append(fit)
    ways = [f"at most {fit['batch']:,} of the sequences" for fit in by.get("batch", [])]
    ways += [f"{fit['devices']} x {fit['title']}" for fit in by.get("devices", [])]
    ways += [f"{fit['dtype']} weights ({gb(fit['needed_bytes'])})" for fit in by.get("dtype", [])]
    ways += [f"{fit['devices']} x {fit['title']}" for fit in by.get("device", [])[:3]]
    return ", or ".join(ways)


def slo_sentence(a: dict[str, Any]) -> str:
    """The largest batch within the target, and the limit that binds it."""
    most, context = a["max_batch"], a["decode_context"]
    goal = f"within {ms(a['tpot_slo_s'])} a token" if a["tpot_slo_s"] else "in this memory"
    with_context = f"sequences of {context:,} tokens" if context else "sequences without context"
    if most is None:
        return f"How many {with_context} run {goal} cannot be said: {a['max_batch_reason']}."
    if not most:
        return f"Not even one of the {with_context} runs {goal}: {_why_none(a)}."
    return f"At most {most:,} {with_context} run {goal}: {_binding(a)}."


def _why_none(a: dict[str, Any]) -> str:
    limit, memory = a["max_batch_limit"], a["memory"]
    if limit != "capacity":
        return f"one step takes {ms(a['single_step_s'])}"
    if memory["weight_bytes"] > memory["usable_bytes"]:
        return "the weights alone do not fit"
    return f"the weights leave {gb(memory['kv_room_bytes'])} for the KV cache"


def _binding(a: dict[str, Any]) -> str:
    limit = a["max_batch_limit"]
    others = [
        f"{_LIMIT_NAMES[name]} alone would allow {_many(batch)}"
        for name, batch in a["max_batch_limits"].items()
        if name != limit
    ]
    return f"{_LIMITS[limit]} ({limit})" + "".join(f"; {other}" for other in others)


def _many(batch: int | None) -> str:
    return "any number" if batch is None else f"{batch:,}"


def crossover_sentence(a: dict[str, Any]) -> str:
    """Where computing catches up with reading: B*, alone and with the KV cache."""
    context, with_kv = a["decode_context"], a["b_star_with_kv"]
    alone = f"Counting weights alone, computing catches up at B* = {figures(a['b_star'])} sequences"
    if a["active_params"] < a["total_params"]:
        alone += " (of a mixture of experts: a direction, not a size)"
    if not context:
        return f"{alone}."
    at = f"with {context:,} tokens of KV each"
    if with_kv is not None:
        return f"{alone}; {at} at {figures(with_kv)}."
    never = "never" if a["kv_bytes_per_token"] is not None else "nobody can say"
    return f"{alone}; {at} {never}: {a['b_star_with_kv_reason']}."
