"""Words and facts of the What-if page, as HTML; sentences are those of `stepscope whatif`."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from app.panels import markup
from app.units import count, duration, milliseconds, percent, si, three
from engine.physics.model_spec import dtype_bytes

Answer = dict[str, Any]


_EQUAL = 1.005  # beyond it three digits differ


def headline(a: Answer) -> str:
    """The two times and who wins, then what comes out of it."""
    read, math = a["t_memory_s"], a["t_compute_s"]
    times = max(read, math) / min(read, math)
    who = f"{a['bound']}-bound, ×{three(times)}" if times > _EQUAL else "they are equal"
    both = f"Reading takes {milliseconds(read)}, the math {milliseconds(math)}"
    return markup.headline(f"{both}: {who}.", _outcome(a))


def _outcome(a: Answer) -> str:
    floor = "At least " if a["t_kv_s"] is None else ""
    step, rate = f"{floor}{duration(a['t_step_s'])} a step", three(a["tokens_per_s"])
    if a["phase"] == "prefill":
        prompts = "one prompt" if a["batch"] == 1 else f"{a['batch']:,} prompts"
        return f"{step} for {prompts} of {a['prompt_tokens']:,} tokens."
    if a["batch"] == 1:
        return f"{step}: {rate} tokens/s."
    each = three(a["tokens_per_s"] / a["batch"])
    return f"{step}: {rate} tokens/s, {each} for each of {a['batch']:,}."


def badge(a: Answer) -> str:
    """What stands behind every number of the page."""
    shares = {a["assumptions"][f"{name}_fraction"] for name in ("matmul", "bandwidth")}
    of = "" if shares == {1.0} else f"{', '.join(f'{s * 100:g}%' for s in sorted(shares))} of "
    short = f"{of}peak" if of else "datasheet"
    several = f"{a['devices']} × " if a["devices"] > 1 else ""
    says = f"MODELLED · {several}{a['device_title']}, {of}the datasheet's peaks"
    return f'<span title="{escape(says)}">MODELLED · {short}</span> <u>assumptions</u>'


def slo(a: Answer) -> str:
    """The largest batch and the limit that binds it."""
    first, colon, rest = a["sentences"]["slo"].partition(": ")
    return f'<p class="wi-answer"><b>{escape(first + colon)}</b>{escape(rest)}</p>'


def fit(a: Answer) -> str:
    """Whether it fits; if not, the ways that would make it fit, to click."""
    if a["fits"]:
        return f'<p class="wi-answer">{escape(a["sentences"]["fit"])}</p>'
    ways = "".join(_way(way, a["expert_parallel"]) for way in _shortest(a["would_fit"]))
    what = f"What would fit: {ways}" if ways else escape(a["sentences"]["fit"])
    return f'<p class="wi-answer wi-bad" title="{escape(a["sentences"]["fit"])}">{what}</p>'


_MOST_WAYS = 4


def _shortest(ways: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of other devices only the smallest few: the list is as long as the catalogue."""
    others = [way for way in ways if way["change"] == "device"]
    rest = [way for way in ways if way["change"] != "device"]
    return [*rest, *others[: max(_MOST_WAYS - len(rest), 1)]]


def _way(way: dict[str, Any], expert_parallel: int) -> str:
    name, value = way["change"], way.get(way["change"])
    if name == "devices":
        name, value = "tensor-parallel", way["devices"] // expert_parallel
    change = urlencode({name: value})
    return (
        f'<button type="button" class="wi-way" data-set="{escape(change)}">'
        f"{escape(_way_words(way))}</button>"
    )


def _way_words(way: dict[str, Any]) -> str:
    if way["change"] == "batch":
        return f"batch {count(way['batch'])}"
    if way["change"] == "dtype":
        return f"{way['dtype']} weights ({si(way['needed_bytes'], 'B')})"
    several = f"{way['devices']} × " if way["devices"] > 1 else ""
    return f"{several}{way['title']} ({si(way['memory_bytes'], 'B')})"


def facts(a: Answer) -> str:
    """A row of numbers that follow, each with its meaning below."""
    rows = [
        (f"{three(a['single_stream_tokens_per_s'])} tok/s", "one stream at most"),
        (duration(a["tpot_floor_s"]), "floor on TPOT"),
        _first_token(a),
        (si(a["kv_bytes_per_token"], "B"), "KV of a token"),
        _fewer_bytes(a),
        _exactly(a),
        *_latency(a),
        *_prices(a),
    ]
    parts = "".join(f"<div><b>{escape(v)}</b><span>{escape(n)}</span></div>" for v, n in rows)
    return f'<div class="wi-facts">{parts}</div>'


def _first_token(a: Answer) -> tuple[str, str]:
    prompt = a["prefill"]
    name = f"floor on TTFT, {count(a['prompt_tokens'])} tokens"
    if prompt and prompt["t_quadratic_s"]:
        linear, quadratic = duration(prompt["t_linear_s"]), duration(prompt["t_quadratic_s"])
        return f"{duration(a['ttft_floor_s'])}", f"{name}: {linear} + attention {quadratic}"
    return duration(a["ttft_floor_s"]), name


def _fewer_bytes(a: Answer) -> tuple[str, str]:
    """What narrower weights would gain, the KV cache as it is."""
    now = dtype_bytes(a["dtype"])
    fewer = [s for s in a["speed_ups"] if dtype_bytes(s["dtype"]) < now]
    same = [s for s in fewer if s["kv_dtype"] == a["kv_dtype"]]
    if not same:
        return "–", "no narrower weights"
    if max(s["speed_up"] for s in same) < 1.005:
        return "×1.00", "narrower weights gain nothing"
    gains = " · ".join(f"×{three(s['speed_up'])}" for s in same)
    return gains, f"the step with {' · '.join(s['dtype'] for s in same)} weights"


def _exactly(a: Answer) -> tuple[str, str]:
    exact = a["exact"]
    if exact is None:
        return "–", "counted exactly: the shape is unknown"
    change = exact["t_step_over_field"] - 1
    differs = f"{change * 100:+.1f}%" if abs(change) >= 5e-4 else "no difference"
    return duration(exact["t_step_s"]), f"step, counted exactly ({differs})"


def _latency(a: Answer) -> list[tuple[str, str]]:
    if a["e2el_s"] is None:
        return []
    return [(duration(a["e2el_s"]), f"answer of {count(a['output_tokens'])} tokens")]


def _prices(a: Answer) -> list[tuple[str, str]]:
    prices = a["prices"]
    if prices is None:
        return []
    given = prices["per_million_input_tokens"]
    both = f"{three(given)} in · " if given is not None else ""
    return [(f"{both}{three(prices['per_million_output_tokens'])} out", "price of 1M tokens")]


def assumptions(a: Answer, command: str) -> str:
    """Formulas, peaks and their sources, what is unknown, and the command that prints the same."""
    blocks = [
        _seen(a["assumptions"].get("matmul_fraction_seen")),
        _list("Formulas", a["formulas"]),
        _list("Assumptions", _used(a)),
        _list("Unknown", dict(enumerate(a["unknown"], 1))),
        f"<h4>On the command line</h4><code>{escape(command)}</code> "
        f'<button type="button" class="wi-way" data-copy="{escape(command)}">copy</button>',
    ]
    return "".join(blocks)


def _seen(fraction: float | None) -> str:
    """What large matmuls were seen to reach, to click: floors stay the datasheet's all the same."""
    if fraction is None:
        return ""
    change = urlencode({"matmul-fraction": f"{fraction:.3g}"})
    text = f"large bf16 matmuls were seen to reach {percent(fraction)} of the peak: take that"
    return f'<p><button type="button" class="wi-way" data-set="{change}">{text}</button></p>'


def _used(a: Answer) -> dict[str, Any]:
    """All but what a single device has no use for."""
    unused = ("link_bandwidth",) if a["devices"] == 1 else ()
    return {k: v for k, v in a["assumptions"].items() if k not in unused}


def _list(title: str, entries: Mapping[Any, Any]) -> str:
    if not entries:
        return ""
    rows = "".join(f"<dt>{escape(str(k))}</dt><dd>{_worded(k, v)}</dd>" for k, v in entries.items())
    return f"<h4>{title}</h4><dl>{rows}</dl>"


_UNITS = {
    "peak_flops": "FLOP/s",
    "bandwidth": "B/s",
    "link_bandwidth": "B/s each way",
    "memory_bytes": "B",
    "total_params": " parameters",
    "active_params": " parameters a token",
}


def _worded(key: Any, value: Any) -> str:
    """A fact with its unit; nested ones in a line; None is unknown."""
    if value is None:
        return "unknown"
    if isinstance(value, Mapping):
        return "; ".join(f"{escape(str(k))}: {_worded(k, v)}" for k, v in value.items())
    if key in _UNITS and isinstance(value, int | float):
        return escape(si(value, _UNITS[key]))
    return escape(f"{value:.6g}" if isinstance(value, float) else str(value))


def crossover(a: Answer) -> str:
    """B*, alone and with the KV cache, in a sentence."""
    return escape(a["sentences"]["crossover"])


def notes(entries: list[str]) -> str:
    """The foot of the page."""
    return "<ol>" + "".join(f"<li>{entry}</li>" for entry in entries) + "</ol>"
