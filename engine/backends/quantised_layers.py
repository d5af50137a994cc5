"""Linear layers of the Triton path: dense ones, and weight-only int8 and int4."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from engine.backends.triton_model import Linear, MakeLinear
from engine.errors import UserError
from engine.quantisation import few_rows_limit, head_dtype
from kernels.linear.pack import INT4_GROUP, dequantised, quantise_int4, quantise_int8


def linear_maker(dtype: str, math: torch.dtype) -> MakeLinear:
    """What makes a layer of a weight as it is stored; `dtype` is the engine's, `math` that of the
    rows."""
    if few_rows_limit(dtype) is None:
        return partial(_dense, math)
    return partial(_quantised, dtype, math)


def _dense(math: torch.dtype, weight: Tensor, kind: str) -> Linear:
    return partial(functional.linear, weight=weight.to(math).contiguous())


def _quantised(dtype: str, math: torch.dtype, weight: Tensor, kind: str) -> Linear:
    return QuantisedLinear(weight, head_dtype(dtype) if kind == "head" else dtype, dtype, math)


class QuantisedLinear:
    """A few rows run on the quantised weights, more on a dense copy of what these stand for."""

    def __init__(self, weight: Tensor, dtype: str, engine_dtype: str, math: torch.dtype) -> None:
        """weight: [out, in] as stored; dtype: int8 or int4; engine_dtype decides how many rows are
        few. Raises UserError for a width that has no whole groups."""
        if dtype == "int4" and weight.shape[1] % INT4_GROUP:
            raise UserError(
                f"int4 needs widths that are multiples of {INT4_GROUP}, and this model has "
                f"{weight.shape[1]}: use int8 or bf16"
            )
        self._limit = few_rows_limit(engine_dtype) or 0
        self._dense = dequantised(weight.float(), dtype).to(math)
        self._stored, self._scales, self._minimums = _stored(weight.float(), dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, in] -> [rows, out]."""
        if len(x) > self._limit:
            return functional.linear(x, self._dense)
        from kernels.quantised_linear.triton_impl import quantised_linear

        found: Tensor = quantised_linear(x, self._stored, self._scales, self._minimums)
        return found


def _stored(weight: Tensor, dtype: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """As kernels.quantised_linear takes them."""
    from kernels.quantised_linear.reference import pack_int4

    if dtype == "int8":
        values, scales = quantise_int8(weight)
        return values.to(torch.int8), scales.float().reshape(-1), None
    levels, scales, minimums = quantise_int4(weight)
    packed = pack_int4(levels.reshape(weight.shape).to(torch.uint8))
    groups = (len(weight), -1)  # float16 as they are: one bit a weight less to read than float32
    return packed, scales.reshape(groups), minimums.reshape(groups)
