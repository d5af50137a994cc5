"""What a modelled run says of itself: its mark on every page, and all that it assumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from app.units import count, duration, percent, si

# A clock that falls behind by more than this is told in bold: the page then shows slow motion.
LATE = 0.05
_NOTICED = 0.01


def is_modelled(run: Mapping[str, Any] | None) -> bool:
    """Whether a row of `runs` was moved by a cost model."""
    return run is not None and run["clock"] == "modelled"


def took(run: Mapping[str, Any] | None) -> str:
    """What the time of a step is: measured, or modelled."""
    return "modelled" if is_modelled(run) else "measured"


def short_device(device: str) -> str:
    """'NVIDIA H100 SXM 80 GB' as it fits in a list: 'H100 SXM 80 GB'."""
    return device.replace("NVIDIA ", "").replace("AMD Instinct ", "").replace("Google ", "")


def counter(text: str, behind: float | None) -> str:
    """The step counter of a modelled run. text: HTML; behind: share of real time, live only."""
    mark = '<span class="ss-modelled">modelled</span>'
    if behind is None or behind < _NOTICED:
        return f"{mark} {text}"
    late = f"{percent(behind)} behind real time"
    return f"{mark} {text} · {f'<b>{late}</b>' if behind > LATE else late}"


def summary(run: Mapping[str, Any]) -> str:
    """The badge in a line: device, model and dtype."""
    return f"MODELLED · {short_device(run['device'])} · {run['model']} {run['dtype']}"


def assumptions(run: Mapping[str, Any]) -> str:
    """Everything that shapes a modelled step's time, with where it is from, as HTML."""
    config = json.loads(run["config"])
    stated = config.get("assumptions") or {}
    rows = [*_device_rows(stated), *_setting_rows(stated), *_model_rows(run, config)]
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td><td>{escape(source)}</td></tr>"
        for name, value, source in rows
    )
    formula = escape(str(stated.get("formula", "")))
    return (
        '<div class="ss-assumed"><p><b>No such device is here.</b> The scheduler, the KV blocks '
        "and the load are the real ones; a step takes what the cost model says, and the tokens "
        f"are synthetic.</p><p><code>{formula}</code></p><table>{body}</table></div>"
    )


Row = tuple[str, str, str]


def _device_rows(stated: Mapping[str, Any]) -> list[Row]:
    sources = stated.get("sources", {})
    devices = int(stated.get("devices", 1))
    each = " each" if devices > 1 else ""
    peak = f"peak {stated.get('math_dtype')}"
    rows = [
        ("device", str(stated.get("device_title")), _parallel(stated)),
        (peak, si(stated.get("peak_flops"), "FLOP/s") + each, sources.get("peak_flops", "")),
        ("bandwidth", si(stated.get("bandwidth"), "B/s") + each, sources.get("bandwidth", "")),
        ("memory", si(stated.get("memory_bytes"), "B") + each, sources.get("memory_bytes", "")),
    ]
    if devices > 1:
        link = si(stated.get("link_bandwidth"), "B/s per direction")
        rows.append(("link", link, sources.get("link_bandwidth", "")))
    return rows


def _parallel(stated: Mapping[str, Any]) -> str:
    tensor, expert = stated.get("tensor_parallel", 1), stated.get("expert_parallel", 1)
    return f"tensor parallel {tensor}, expert parallel {expert}" if tensor * expert > 1 else ""


def _setting_rows(stated: Mapping[str, Any]) -> list[Row]:
    sources = stated.get("sources", {})
    return [
        (name, text(stated.get(key)), str(sources.get(key, "")))
        for name, key, text in (
            ("matmul reaches", "matmul_fraction", lambda v: f"{percent(v)} of peak"),
            ("reading reaches", "bandwidth_fraction", lambda v: f"{percent(v)} of peak"),
            ("overhead a step", "overhead_s", duration),
            ("usable memory", "usable_memory", percent),
        )
    ]


def _model_rows(run: Mapping[str, Any], config: Mapping[str, Any]) -> list[Row]:
    sources = config.get("model_sources", {})
    kv = f"{run['kv_dtype']}, {count(config.get('kv_blocks_capacity'))} blocks"
    params = si(config.get("total_params"), "").replace(" G", "B").replace(" M", "M")
    return [
        ("model", f"{run['model']}, {params} parameters", str(sources.get("spec", ""))),
        ("weights", str(run["dtype"]), "read once a step, whatever the batch"),
        ("KV cache", kv, "what fits beside the weights"),
        ("tokens", "synthetic", f"text is cut with the tokenizer of {config.get('tokenizer')}"),
    ]
