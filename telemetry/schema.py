"""The telemetry schema, declared once: every record with its fields, units and meaning.

DDL (`telemetry.ddl`), Arrow batches (`telemetry.recorder`) and the documentation are generated from
here. `run_id` is the first column of every table; records leave it out, since the store adds it.
Unknown is None (NULL), never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

SCHEMA_VERSION = 1

PHASES = ("prefill", "decode", "mixed")
SEQUENCE_PHASES = ("prefill", "decode", "padded", "recompute")
LIMITS = ("none", "sequences", "tokens", "blocks", "host")
BOUNDS = ("compute", "memory", "overhead")
BLOCK_STATES = ("used", "cached", "free")
FINISH_REASONS = ("stop", "length", "cancelled", "refused", "error")


@dataclass(frozen=True, slots=True)
class Col:
    """One column: its SQL type, unit and meaning."""

    sql: str
    doc: str
    unit: str = ""


def _enum(values: tuple[str, ...]) -> str:
    return "ENUM(" + ", ".join(f"'{v}'" for v in values) + ")"


def _s(doc: str) -> Col:
    return Col("DOUBLE", doc, "s")


def _n(doc: str, sql: str = "INTEGER") -> Col:
    return Col(sql, doc, "")


def _bytes(doc: str) -> Col:
    return Col("BIGINT", doc, "bytes")


def _flops(doc: str) -> Col:
    return Col("BIGINT", doc, "FLOP")


def _t(doc: str) -> Col:
    return Col("BIGINT", doc, "ns")


@dataclass(slots=True)
class RunRecord:
    """One run of one engine: what ran, on what, against which peaks."""

    started_wall: Annotated[Any, Col("TIMESTAMP", "wall clock at started_ns, UTC")]
    started_ns: Annotated[int, _t("monotonic clock at started_wall")]
    clock: Annotated[str, Col(_enum(("real", "modelled")), "what moved the step clock")]
    source: Annotated[str, Col("VARCHAR", "embedded, an attached server's kind, or recorded")]
    model: Annotated[str, Col("VARCHAR", "model name")]
    device: Annotated[str, Col("VARCHAR", "device name, with its threads on a CPU")]
    backend: Annotated[str, Col("VARCHAR", "cpu, cuda or modelled")]
    dtype: Annotated[str, Col("VARCHAR", "dtype of the weights and the math")]
    kv_dtype: Annotated[str, Col("VARCHAR", "dtype of the KV cache")]
    peak_flops: Annotated[float | None, Col("DOUBLE", "peak of the math dtype", "FLOP/s")]
    peak_bandwidth: Annotated[float | None, Col("DOUBLE", "peak read bandwidth", "bytes/s")]
    peaks_source: Annotated[str | None, Col("VARCHAR", "measured, or datasheet")]
    ttft_slo_s: Annotated[float | None, _s("target for TTFT")]
    tpot_slo_s: Annotated[float | None, _s("target for TPOT")]
    config: Annotated[str, Col("JSON", "everything else that shaped the run")]
    schema_version: Annotated[int, _n("version of this schema")] = SCHEMA_VERSION


@dataclass(slots=True)
class StepRecord:
    """One forward pass, from the start of scheduling to its tokens emitted."""

    step: Annotated[int, _n("number of the step in its run, from 0", "BIGINT")]
    t_start_ns: Annotated[int, _t("start; where the last step ended, while work waited")]
    t_step_s: Annotated[float, _s("whole step")]
    scheduler: Annotated[str, Col("VARCHAR", "scheduler that planned the step")]
    phase: Annotated[str, Col(_enum(PHASES), "what the step computed")]
    n_running: Annotated[int, _n("sequences admitted and unfinished when the step ran")]
    n_waiting: Annotated[int, _n("requests in the queue after scheduling")]
    prefill_seqs: Annotated[int, _n("sequences with prompt tokens, recomputing ones apart")]
    decode_seqs: Annotated[int, _n("sequences that decoded one token")]
    prefill_tokens: Annotated[int, _n("prompt tokens computed for the first time")]
    decode_tokens: Annotated[int, _n("emitted tokens computed for the first time")]
    batch_slots: Annotated[int, _n("places in the batch (max batch)")]
    padded_slots: Annotated[int, _n("slots run for a finished sequence of a static cohort")]
    padded_prefill_tokens: Annotated[int, _n("padding tokens run beside shorter prompts")]
    limit_bound: Annotated[str, Col(_enum(LIMITS), "limit that kept more from running")]
    flops: Annotated[int, _flops("all that ran, padding included")]
    linear_flops: Annotated[int, _flops("linear layers")]
    attention_flops: Annotated[int, _flops("scores and values over the true context")]
    head_flops: Annotated[int, _flops("LM head, sampled rows only")]
    padded_flops: Annotated[int, _flops("part of flops that was padding")]
    weight_bytes: Annotated[int, _bytes("weights read, once a step")]
    kv_read_bytes: Annotated[int, _bytes("KV read, once per sequence and chunk")]
    kv_write_bytes: Annotated[int, _bytes("KV written")]
    padded_bytes: Annotated[int, _bytes("part of KV traffic that was padding")]
    intensity: Annotated[float, Col("DOUBLE", "flops over all bytes", "FLOP/byte")]
    t_compute_s: Annotated[float | None, _s("flops / peak_flops")]
    t_memory_s: Annotated[float | None, _s("bytes / peak_bandwidth")]
    t_weights_s: Annotated[float | None, _s("part of t_memory_s for weights")]
    t_kv_s: Annotated[float | None, _s("part of t_memory_s for KV")]
    t_overhead_s: Annotated[float | None, _s("t_step_s - max(t_compute_s, t_memory_s), signed")]
    t_inefficiency_s: Annotated[float | None, _s("below-roof: forward_s minus the floor, signed")]
    t_host_s: Annotated[float, _s("schedule + prepare + sample; gaps are in schedule_s")]
    schedule_s: Annotated[float, _s("commands, load, telemetry of the last step, scheduling")]
    prepare_s: Annotated[float, _s("building the inputs of the forward pass")]
    forward_s: Annotated[float, _s("the forward pass")]
    sample_s: Annotated[float, _s("sampling, stop checks, tokens emitted")]
    involuntary_switches: Annotated[int | None, _n("times the OS took the engine's core away")]
    mfu: Annotated[float | None, Col("DOUBLE", "needed FLOPs / (t_step_s x peak)", "fraction")]
    mbu: Annotated[float | None, Col("DOUBLE", "needed bytes / (t_step_s x peak)", "fraction")]
    bound: Annotated[str | None, Col(_enum(BOUNDS), "larger modelled term, or overhead")]
    kv_blocks_total: Annotated[int, _n("KV blocks offered")]
    kv_blocks_used: Annotated[int, _n("blocks referenced by a sequence")]
    kv_blocks_cached: Annotated[int, _n("unreferenced blocks kept for their contents")]
    evictions: Annotated[int, _n("cached blocks given up since the last step")]
    activation_bytes: Annotated[int | None, _bytes("peak of activations")]
    prefix_hit_tokens: Annotated[int, _n("prompt tokens found in the prefix cache")]
    preemptions: Annotated[int, _n("sequences pushed out in this step")]
    recomputed_tokens: Annotated[int, _n("tokens computed again after preemption")]
    draft_tokens: Annotated[int | None, _n("speculated tokens")] = None
    accepted_tokens: Annotated[int | None, _n("speculated tokens accepted")] = None
    recompute_seqs: Annotated[int | None, _n("sequences that recomputed tokens")] = None
    recomputed_flops: Annotated[int | None, _flops("part of flops that was recomputation")] = None
    recomputed_bytes: Annotated[int | None, _bytes("part of KV traffic of recomputation")] = None


@dataclass(slots=True)
class SequenceStepRecord:
    """What one sequence got in one step; written column-wise."""

    step: Annotated[int, _n("step", "BIGINT")]
    request_id: Annotated[int, _n("request", "BIGINT")]
    slot: Annotated[int, _n("place in the batch, from 0", "SMALLINT")]
    phase: Annotated[str, Col(_enum(SEQUENCE_PHASES), "what its tokens were; recompute if any was")]
    tokens: Annotated[int, _n("tokens run for it, padding included")]
    emitted_tokens: Annotated[int, _n("tokens it emitted", "SMALLINT")]
    context_tokens: Annotated[int, _n("context after the step")]
    computed_context_tokens: Annotated[int, _n("context already in the KV cache before the step")]


@dataclass(slots=True)
class TokenRecord:
    """One emitted token."""

    request_id: Annotated[int, _n("request", "BIGINT")]
    index: Annotated[int, _n("place in the output, from 0")]
    token_id: Annotated[int, _n("token")]
    step: Annotated[int, _n("step that emitted it", "BIGINT")]
    t_ns: Annotated[int, _t("when it was emitted")]


@dataclass(slots=True)
class RequestRecord:
    """One request; written when it arrives and again whenever its state changes."""

    request_id: Annotated[int, _n("request, an integer key", "BIGINT")]
    arrived_ns: Annotated[int, _t("where the request entered")]
    admitted_ns: Annotated[int | None, _t("first scheduled")]
    first_token_ns: Annotated[int | None, _t("first token emitted")]
    finished_ns: Annotated[int | None, _t("last token emitted, or cancelled")]
    prompt_tokens: Annotated[int, _n("length of the prompt")]
    cached_tokens: Annotated[int, _n("prompt tokens taken from the prefix cache")]
    output_tokens: Annotated[int, _n("tokens emitted so far")]
    finish_reason: Annotated[str | None, Col(_enum(FINISH_REASONS), "why it ended")]
    preemptions: Annotated[int, _n("times it was pushed out")]
    label: Annotated[str | None, Col("VARCHAR", "workload and role, or 'prompt' for a person's")]


@dataclass(slots=True)
class BlockRecord:
    """A KV block changed hands: enough to draw the map at any step."""

    step: Annotated[int, _n("step", "BIGINT")]
    block: Annotated[int, _n("block")]
    state: Annotated[str, Col(_enum(BLOCK_STATES), "state from this step on")]
    request_id: Annotated[int | None, _n("its first holder", "BIGINT")]
    references: Annotated[int, _n("sequences that use it", "SMALLINT")]
    position: Annotated[
        int | None, _n("its place in the tables that hold it, or of what is cached, from 0")
    ] = None


@dataclass(slots=True)
class EventRecord:
    """A mark on every time axis."""

    t_ns: Annotated[int, _t("when")]
    step: Annotated[int | None, _n("step after which it took effect", "BIGINT")]
    kind: Annotated[str, Col("VARCHAR", "scheduler_switch, load, inject, preempt, pause, …")]
    detail: Annotated[str, Col("JSON", "what changed")]


@dataclass(slots=True)
class KernelSampleRecord:
    """Time and work of one kernel in one sampled step."""

    step: Annotated[int, _n("step", "BIGINT")]
    kernel: Annotated[str, Col("VARCHAR", "kernel name")]
    calls: Annotated[int, _n("calls in the step")]
    time_s: Annotated[float, _s("time of all calls")]
    flops: Annotated[int | None, _flops("of all calls")]
    bytes: Annotated[int | None, _bytes("of all calls")]


@dataclass(slots=True)
class DeviceSampleRecord:
    """What the device says about itself."""

    t_ns: Annotated[int, _t("when")]
    utilisation: Annotated[float | None, Col("DOUBLE", "share of time with a kernel", "fraction")]
    memory_used_bytes: Annotated[int | None, _bytes("memory in use")]
    power_w: Annotated[float | None, Col("DOUBLE", "power", "W")]
    temperature_c: Annotated[float | None, Col("DOUBLE", "temperature", "degC")]
    clock_hz: Annotated[float | None, Col("DOUBLE", "clock", "Hz")]
    cpu_percent: Annotated[float | None, Col("DOUBLE", "CPU use of the engine process", "%")]


TABLES: dict[str, type[Any]] = {
    "runs": RunRecord,
    "steps": StepRecord,
    "sequence_steps": SequenceStepRecord,
    "tokens": TokenRecord,
    "requests": RequestRecord,
    "blocks": BlockRecord,
    "events": EventRecord,
    "kernel_samples": KernelSampleRecord,
    "device_samples": DeviceSampleRecord,
}

# Live, these may be dropped (and are counted) rather than block the engine; the others never.
DROPPABLE = frozenset({"steps", "sequence_steps", "blocks", "kernel_samples", "device_samples"})
# Rows of these replace earlier rows with the same key.
KEYED = {"requests": "request_id"}


def columns(table: str) -> dict[str, Col]:
    """Columns of a table in order, without run_id."""
    record = TABLES[table]
    hints = get_type_hints(record, include_extras=True)
    return {f.name: get_args(hints[f.name])[1] for f in fields(record)}
