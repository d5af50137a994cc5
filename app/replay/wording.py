"""Predictions in words, for the command and the page alike. Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.units import UNKNOWN, duration, percent, three

FIGURES = (
    ("output tokens/s", "output_tokens_per_s", None),
    ("makespan", "makespan_s", None),
    ("TTFT P50", "ttft_s", "p50"),
    ("TTFT P99", "ttft_s", "p99"),
    ("TPOT P50", "tpot_s", "p50"),
    ("TPOT P99", "tpot_s", "p99"),
    ("ITL P50", "itl_s", "p50"),
    ("ITL P99", "itl_s", "p99"),
    ("worst gap", "itl_s", "max"),
    ("padded slot-steps", "padded_slot_fraction", None),
    ("preemptions", "preemptions", None),
)
"""What is compared: its name, its key in a summary, and the key inside that."""
FAR = 1.5  # a step with so many times the rows of any recorded one is told


def value(summary: Mapping[str, Any], key: str, inner: str | None) -> float | None:
    """One figure of a summary."""
    found: float | None = summary[key][inner] if inner else summary[key]
    return found


def shown(key: str, number: float | None) -> str:
    """A figure with its unit."""
    if number is None:
        return UNKNOWN
    if key.endswith("_s") and key != "output_tokens_per_s":
        return duration(number)
    return percent(number) if key.endswith("fraction") else three(number)


def label(settings: Mapping[str, Any]) -> str:
    """Settings in a few words."""
    budget = f" of {settings['chunk_tokens']:,}" if settings["scheduler"] == "chunked" else ""
    cache = ", prefix cache" if settings["prefix_cache"] else ""
    blocks = f"{settings['kv_blocks']:,} KV blocks"
    return f"{settings['scheduler']}{budget}, batch {settings['max_batch']}, {blocks}{cache}"


def change(before: float | None, after: float | None) -> str:
    """'+12%', or 'x 12' where it is more than threefold."""
    if not before or after is None:
        return UNKNOWN
    ratio = after / before
    return f"x {three(ratio)}" if ratio > 3 else f"{ratio - 1:+.0%}"


def remarks(found: Mapping[str, Any], predicted: Mapping[str, Any]) -> list[str]:
    """What a reader must know before believing a prediction."""
    lines = [_range(predicted["draws"])]
    beyond = predicted["largest_step_over_recorded"]
    if beyond > FAR:
        lines.append(
            f"The largest step has {three(beyond)} times the rows of any recorded one: there the "
            "model is extrapolated."
        )
    if found["requests_left_out"]:
        lines.append(f"{found['requests_left_out']} requests without a token were left out.")
    return lines + (found["notes"] if predicted["settings"]["prefix_cache"] else [])


def _range(draws: int) -> str:
    if draws == 1:
        return "One replay, so no range: the recording is long, or --draws 1 was asked for."
    return (
        f"The range is that of {draws} replays, each at the pace of one stretch of the recording; "
        "how another day's machine differs is not in it."
    )


def model_lines(model: Mapping[str, Any]) -> list[str]:
    """The fit in words: how well it holds, phase by phase."""
    phases = [
        f"{phase} {r['p5']:+.0%} to {r['p95']:+.0%} ({r['steps']:,} steps)"
        for phase, r in model["residuals"]["phases"].items()
    ]
    low, high = model["residuals"]["pace"]
    return [
        f"Measured over fitted time, 90% of steps: {', '.join(phases)}; "
        f"the machine's pace over the recording: {low:+.0%} to {high:+.0%}."
    ]
