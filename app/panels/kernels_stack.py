"""The layers below a served model: what each can see, and which symptom points at it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Layer:
    """symptom: what one notices. look: where to look first. could: could it have caught a dtype
    that a kernel takes for another?"""

    name: str
    sees: str
    symptom: str
    look: str
    could: str
    catches: bool = False


LAYERS = (
    Layer(
        "Serving engine",
        "requests, slots, KV blocks, parallel groups",
        "queues grow, preemptions, a slow first token with an idle device",
        "Scheduling, KV cache, Requests",
        "No: it hands tensors on. But it chose expert parallelism, which asked for int64",
    ),
    Layer(
        "Torch: tensors and dispatcher",
        "dtype, shape, strides and device of every tensor",
        "“expected scalar type …”, shape errors, CPU tensor among GPU ones",
        "the argument that the message names",
        "For its own ops, yes. For a custom op it looks at devices: dtypes are the op's to check",
    ),
    Layer(
        "torch.compile",
        "the graph between two breaks",
        "slow first steps, recompiles when shapes change, errors gone in eager mode",
        "graph breaks and guards",
        "No: a custom op is a box in its graph. Off or on, the call is the same",
    ),
    Layer(
        "CUDA graphs",
        "a recorded row of launches with fixed addresses",
        "stale outputs, errors only on replay, host gaps when off",
        "sizes that were captured; what allocates while capturing",
        "No: it replays whatever was launched",
    ),
    Layer(
        "Kernels",
        "addresses, and the types they were compiled for",
        "wrong numbers, illegal address, garbage only at odd shapes",
        "this page: the op's contract",
        "Only at its door, where tensors still have dtypes: a contract checks there",
        catches=True,
    ),
    Layer(
        "Libraries (matmul, collectives)",
        "descriptors that the caller filled in",
        "“not supported” status, a hang in a collective, one rank behind",
        "ranks that disagree on shape or dtype",
        "For its own calls. The router is none of them",
    ),
    Layer(
        "Driver and runtime",
        "launches, memory maps, faults",
        "“illegal memory access”, told at a later and innocent call",
        "the same run with blocking launches",
        "Only when a read leaves all mapped memory, after the fact and by another name",
    ),
    Layer(
        "Hardware",
        "bytes",
        "throttling, corrected and uncorrected memory errors, a slow link",
        "clocks, power, error counters",
        "No: no byte was wrong",
    ),
)


def table() -> str:
    """As HTML, the layer that can catch it marked."""
    heads = ("layer", "what it sees", "a symptom that points here", "look first at")
    last = "could it have caught the router's error?"
    head = "".join(f"<th>{name}</th>" for name in (*heads, last))
    body = "".join(_row(layer) for layer in LAYERS)
    return f'<table class="kn-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _row(layer: Layer) -> str:
    cells = (layer.sees, layer.symptom, layer.look, layer.could)
    mark = ' class="kn-here"' if layer.catches else ""
    rest = "".join(f"<td>{escape(text)}</td>" for text in cells)
    return f"<tr{mark}><td><b>{escape(layer.name)}</b></td>{rest}</tr>"
