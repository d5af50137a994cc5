"""Runs a step on the vector kernels. Import this only where `kernels.simd.support.runs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from engine.backends.kernel_times import KernelTime
from engine.backends.simd import SimdCache, SimdInputs, SimdModel, build_inputs
from engine.batch import ScheduledBatch
from engine.models.simd_weights import SimdWeights
from engine.models.weights import TensorSource
from engine.quantisation import few_rows_limit


class SimdRunner:
    """Weights packed for the kernels, and a cache that is attention's packed matrix itself."""

    kernels: ClassVar[str] = "vector"

    def __init__(
        self,
        source: TensorSource,
        *,
        dtype: str,
        kv_dtype: str,
        kv_slots: int,
        progress: Callable[[float], None],
    ) -> None:
        config, limit = source.config, few_rows_limit(dtype)
        self.cache = SimdCache(config, kv_slots, kv_dtype)
        if limit is None:
            weights, few = SimdWeights(config, source.get, dtype, progress), None
        else:
            few = SimdWeights(config, source.get, dtype, lambda f: progress(f / 2))
            weights = SimdWeights(
                config, source.get, "bf16", lambda f: progress((1 + f) / 2), rounded_as=dtype
            )
        self.model = SimdModel(config, weights, self.cache, few_rows=few, few_rows_limit=limit or 0)

    def prepare(self, batch: ScheduledBatch, pad_token: int) -> SimdInputs:
        return build_inputs(batch, pad_token)

    def forward(self, inputs: SimdInputs, timed: bool = False) -> Tensor:
        return self.model.forward(inputs, timed)

    def kernel_times(self) -> list[KernelTime]:
        return self.model.kernel_times()
