"""What a step of the vector kernels is told: records of int64, whose fields are named here."""

from __future__ import annotations

from enum import IntEnum, IntFlag

TIMESPEC_BYTES = 16


class StepField(IntEnum):
    """int64 fields of a step, by position; all but counts are addresses or bytes."""

    ROWS = 0
    LAYERS = 1
    HIDDEN = 2
    X_STRIDE = 3  # bytes of a row of the residual stream
    HEADS = 4
    KV_HEADS = 5
    HEAD_DIM = 6
    EPS = 7  # a float32 in the lower half
    EMBEDDING = 8
    EMBEDDING_BF16 = 9
    LAYER_TABLE = 10  # a `LayerField` record for each layer
    FINAL_NORM = 11
    HEAD = 12  # linear record
    COS = 13  # float32 [positions, head_dim / 2]
    SIN = 14
    TOKENS = 15  # int64 [rows]
    SPANS = 16  # a `SpanField` record for each chunk
    SPAN_COUNT = 17
    SAMPLED = 18  # int64 [sampled] rows whose logits are wanted
    SAMPLED_COUNT = 19
    X = 20  # float32 [rows, hidden], the residual stream
    ACT = 21  # input of a linear layer
    ACT_STRIDE = 22
    ACT_BF16 = 23
    QKV = 24  # float32
    QKV_STRIDE = 25
    Q = 26  # queries in the cache's dtype
    Q_STRIDE = 27
    KV_BF16 = 28
    HEAD_BYTES = 29  # of all pages of one KV head in a layer
    PAGE_BYTES = 30  # of 16 tokens of one KV head
    LOGITS = 31  # float32
    LOGITS_STRIDE = 32
    SCRATCH = 33
    SCRATCH_BYTES = 34  # of each thread
    COUNTER = 35  # the next attention task
    LAST_X = 36  # float32 [sampled, hidden]
    HEAD_BF16 = 37  # whether the head takes bfloat16 rows
    PARTS = 38  # which ops run: a sum of `Part`
    TIMES = 39  # int64 [TIMES_SIZE] to be filled with the time of each `StepKernel`; 0: not timed


class Part(IntFlag):
    """Ops of a step. A step runs all; to time some of them, run those alone."""

    NORMS = 1
    LINEARS = 2
    ROPE = 4
    ATTENTION = 8
    HEAD = 16
    ALL = 31


class StepKernel(IntEnum):
    """What of a step is timed together, in the order in which it first runs."""

    EMBEDDING = 0
    RMS_NORM = 1
    QKV_LINEAR = 2
    ROPE_AND_CACHE = 3
    ATTENTION = 4
    OUT_LINEAR = 5
    GATE_UP_LINEAR = 6  # with SiLU and the product, while the sums are still in registers
    DOWN_LINEAR = 7
    LM_HEAD = 8


# Of the times: room for a timespec, the last stamp, then (nanoseconds, calls) of each kernel.
TIMES_HEADER = TIMESPEC_BYTES // 8 + 1
TIMES_SIZE = TIMES_HEADER + 2 * len(StepKernel)


class LayerField(IntEnum):
    """int64 fields of a layer: addresses of gains (float32) and of linear records."""

    ATTN_NORM = 0
    QKV = 1
    OUT = 2
    MLP_NORM = 3
    GATE_UP = 4
    DOWN = 5
    CACHE = 6  # first page of the layer


class SpanField(IntEnum):
    """int64 fields of a chunk: rows first..first+rows-1 at positions from start on."""

    FIRST = 0
    ROWS = 1
    START = 2
    PAGES = 3  # address of int64, the page of each 16 tokens


STEP_FIELDS, LAYER_FIELDS, SPAN_FIELDS = len(StepField), len(LayerField), len(SpanField)
