"""Slices of recorded production loads, scaled to fit a small machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.workloads.files import file_workload
from engine.workloads.workload import Scale, Workload

DATA = Path(__file__).resolve().parents[2] / "data" / "workloads"

# A server's load on a laptop: fewer tokens and slower arrivals, one scale for both Azure slices.
AZURE_SCALE = Scale(prompt=1 / 8, output=1 / 4, time=3.0)
# The slice is a tenth of the conversations, so its arrivals can be faster than they were. A block
# of 512 tokens that requests share is 32 here, and shared by the same requests.
MOONCAKE_SCALE = Scale(prompt=1 / 16, output=1 / 8, time=0.5)


def azure_conv(seed: int, scale: Scale | None = AZURE_SCALE) -> Workload:
    """A slice of an Azure conversation service; recorded, so the seed changes only the text.

    Of all traces: scale None leaves lengths and times as they were recorded.
    """
    return _azure("azure-conv", "azure_llm_2023_conv_1000.csv", scale)


def azure_code(seed: int, scale: Scale | None = AZURE_SCALE) -> Workload:
    """A slice of an Azure code service: long prompts, short answers."""
    return _azure("azure-code", "azure_llm_2023_code_1000.csv", scale)


def _azure(name: str, file: str, scale: Scale | None) -> Workload:
    source = "an Azure LLM service, November 2023 (Patel et al., ISCA 2024, CC-BY 4.0)"
    return _slice(name, file, scale, source, 200)


def mooncake(seed: int, scale: Scale | None = MOONCAKE_SCALE) -> Workload:
    """A tenth of the conversations of Mooncake's trace: prompts share prefixes as recorded."""
    source = "a chat service (Qin et al., Mooncake, FAST 2025, Apache-2.0)"
    return _slice("mooncake", "mooncake_conversation_1000.jsonl", scale, source, 100)


def _slice(name: str, file: str, scale: Scale | None, source: str, requests: int) -> Workload:
    workload = file_workload(DATA / file, name, scale)
    fitted = str(scale) if scale else "as recorded"
    text = f"{workload.default_requests:,} requests of {source}: {fitted}"
    return replace(workload, description=text, default_requests=requests, file=None)
