"""The Roofline page in words: its headline, and why the selected step is where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from app.figures.data import known
from app.figures.other_roofs import Other
from app.figures.plane import Decode, Peaks
from app.panels.markup import headline
from app.panels.roofline_cost import Experts
from app.units import count, duration, percent, si, three
from engine.physics.roofline import crossover_batch_with_kv

Step = Mapping[str, Any]


def sentence(step: Step, peaks: Peaks | None, decode: Decode | None, named: str = "") -> str:
    """The headline. named: begins it where it is about a step that is not simply the newest."""
    at = float(step["intensity"])
    if peaks is None:
        strong = f"{named or 'This step: '}{three(at)} FLOP for each byte."
        return headline(strong, "Peaks are not reported by this source, so there is no roof.")
    side = "memory-bound" if at < peaks.ridge else "compute-bound"
    strong = (
        f"{named}{three(at)} FLOP/byte, {_beside_ridge(at, peaks)}: {side}, "
        f"{percent(reached(step, peaks))} of its roof."
    )
    return headline(strong, _crossing(peaks, decode))


def reached(step: Step, peaks: Peaks) -> float:
    """What the whole step did of what its roof allows; above 1 a peak is wrong."""
    roof = peaks.roof(float(step["intensity"]))
    return float(step["flops"]) / float(step["t_step_s"]) / roof


def _beside_ridge(at: float, peaks: Peaks) -> str:
    left = at < peaks.ridge
    away = peaks.ridge / at if left else at / peaks.ridge
    return f"×{three(away)} {'left' if left else 'right'} of the ridge"


def _crossing(peaks: Peaks, decode: Decode | None) -> str:
    if decode is None:
        return ""
    cross = crossover_batch_with_kv(decode.model, decode.context, peaks.flops, peaks.bandwidth)
    if cross.batch is None:
        return f"No batch reaches the ridge: {cross.reason}."
    return f"Decode crosses it at batch {three(cross.batch)}."


def explained(
    step: Step,
    peaks: Peaks | None,
    decode: Decode | None,
    experts: Experts | None,
    others: Sequence[Other],
) -> str:
    """Why the step is where it is, with all numbers; HTML."""
    parts = [f"<b>Why step {count(step['step'])} is there:</b> {escape(_work(step, experts))}"]
    if peaks is None:
        parts.append("No roof: peaks are not reported by this source.")
    else:
        elsewhere = [escape(_elsewhere(step, other)) for other in others if other.is_device]
        # Two lines is all there is: beside another device, where the rest went is left to Live.
        parts += [escape(_floor(step, peaks)), _took(step, peaks, brief=bool(elsewhere))]
        parts += [escape(one_more(step, peaks, decode, experts)), *elsewhere]
    return f'<div class="why">{" ".join(p for p in parts if p)}</div>'


def _work(step: Step, experts: Experts | None) -> str:
    """Who ran, and what that computes and moves."""
    flops, weights = si(step["flops"], "FLOP"), si(step["weight_bytes"], "B")
    touched = ""
    if experts:
        of = f"{three(experts.touched(_rows(step)))} of {experts.experts} experts a layer"
        touched = f", about {of}"
    return (
        f"{_who(step)}: {flops} over {weights} of weights{touched} and "
        f"{si(step['kv_bytes'], 'B')} of KV, {three(step['intensity'])} FLOP/byte."
    )


def _rows(step: Step) -> int:
    """All that ran, padding too: what the experts are picked by."""
    names = ("prefill_tokens", "decode_tokens", "recomputed_tokens", "padded_tokens")
    return sum(int(step[name] or 0) for name in names)


def _who(step: Step) -> str:
    kinds = [
        (step["prefill_tokens"], f"{count(step['prefill_tokens'])} prompt tokens"),
        (step["recomputed_tokens"], f"{count(step['recomputed_tokens'])} recomputed"),
        (step["decode_seqs"], _decodes(int(step["decode_seqs"] or 0))),
        (step["padded_tokens"], f"{count(step['padded_tokens'])} of padding"),
    ]
    return " beside ".join(words for n, words in kinds if n) or "nothing ran"


def _decodes(sequences: int) -> str:
    return "1 sequence decodes a token" if sequences == 1 else f"{sequences} decode a token each"


def _floor(step: Step, peaks: Peaks) -> str:
    """Which side of the ridge, and the least time that this costs."""
    at, memory, compute = float(step["intensity"]), *_floors(step, peaks)
    if memory >= compute:
        side = f"Under the ridge of {three(peaks.ridge)}" if at < peaks.ridge else "At the ridge"
        return f"{side} reading binds: {duration(memory)} at least (math {duration(compute)})."
    return (
        f"Over the ridge of {three(peaks.ridge)} math binds: {duration(compute)} at least "
        f"(reading {duration(memory)})."
    )


def _floors(
    step: Step, peaks: Peaks, flops: float = 0.0, moved: float = 0.0
) -> tuple[float, float]:
    """t_memory and t_compute of the step with so much more of each, seconds."""
    bytes_ = float(step["weight_bytes"]) + float(step["kv_bytes"]) + moved
    return bytes_ / peaks.bandwidth, (float(step["flops"]) + flops) / peaks.flops


def _took(step: Step, peaks: Peaks, brief: bool) -> str:
    """HTML: the share of the roof, and where the rest went, unless it is to be brief."""
    share, took = reached(step, peaks), duration(float(step["t_step_s"]))
    if share > 1.0005:
        return (
            f"It took {took}, {percent(share)} of its roof: "
            "<b>faster than the peaks allow, so recalibrate.</b>"
        )
    slower, host = known(step["t_inefficiency_s"]), known(step["t_host_s"])
    rest = [(slower, "below the roof"), (host, "host")]
    lost = ", ".join(
        f"{duration(s)} {what}" for s, what in rest if s is not None and s > 0 and not brief
    )
    return f"It took {took}, {percent(share)} of its roof{f' ({lost})' if lost else ''}."


def one_more(
    step: Step, peaks: Peaks, decode: Decode | None, experts: Experts | None = None
) -> str:
    """What another decoding sequence of the current context would add to the step's floor."""
    if decode is None:
        return ""
    model, rows = decode.model, _rows(step)
    fresh = model.read_bytes(rows + 1) - model.read_bytes(rows) if experts else 0.0
    kv = model.sequence_bytes(decode.context)
    before = max(_floors(step, peaks))
    memory, compute = _floors(step, peaks, model.sequence_flops(decode.context), kv + fresh)
    added = max(memory, compute) - before
    text = f"One more sequence would add {duration(added)} ({percent(added / before)})"
    if compute > memory:
        return f"{text}: its math."
    if fresh > 0.05 * kv:
        return f"{text}: its KV and experts that no other row needs."
    return f"{text}: its KV, the weights are read anyway."


def _elsewhere(step: Step, other: Other) -> str:
    at, flops = float(step["intensity"]), float(step["flops"])
    return (
        f"On {other.name}: {duration(other.floor_s(flops, at))} at least, "
        f"{_beside_ridge(at, other.peaks)} of {three(other.peaks.ridge)}."
    )
