"""Weight-only quantisation: until how many rows it pays, and what a step then reads. No torch.

int8: one scale for each output. int4: groups of 32 inputs with a scale and a minimum in half
precision, as GGUF's Q4_1; the LM head stays int8, since its rounding costs more than all the rest
(mean KL 0.07 against 0.004 on the default model).
"""

from __future__ import annotations

FEW_ROWS = {"int8": 4, "int4": 6}
"""Rows up to which a step runs on the quantised weights. Measured with `stepscope bench`: beyond
them unpacking costs more than reading bfloat16, and a step runs on bfloat16 copies of the same
(dequantised) weights."""


def few_rows_limit(dtype: str) -> int | None:
    """Most rows of a step that runs on quantised weights; None for a dtype without them."""
    return FEW_ROWS.get(dtype)


def step_dtype(dtype: str, rows: int) -> str:
    """The dtype of the weights that a step with so many rows reads."""
    limit = FEW_ROWS.get(dtype)
    return dtype if limit is None or rows <= limit else "bf16"


def counted_as(dtype: str) -> str:
    """The name under which physics counts this dtype's bytes."""
    return "int4_g32" if dtype == "int4" else dtype


def head_dtype(dtype: str) -> str:
    """The dtype of the LM head where the linear layers have this one."""
    return "int8" if dtype == "int4" else dtype


def math_dtype(dtype: str) -> str:
    """The dtype whose peak FLOP/s bounds the math."""
    return "bf16" if dtype in FEW_ROWS else dtype


def resident_dtypes(dtype: str) -> tuple[str, ...]:
    """Dtypes of the copies of the weights that are kept in memory."""
    return (dtype, "bf16") if dtype in FEW_ROWS else (dtype,)
