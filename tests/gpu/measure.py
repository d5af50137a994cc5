"""Times on a device, by its own events."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

_FLUSH_BYTES = 1 << 30  # above any L2; writing it also gives the host time to queue what follows
_TIMES = 15
_WARM = 3

Work = Callable[[], object]


@dataclass(slots=True)
class Bench:
    """rehearsal: everything runs once on the CPU, and times are None."""

    rehearsal: bool = False
    _flush: Tensor | None = field(default=None, repr=False)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.rehearsal else "cuda")

    def seconds(self, work: Work, times: int = _TIMES) -> float | None:
        """Median of `times` runs, each from a cold L2 cache, after some that compile and warm."""
        if self.rehearsal:
            work()
            return None
        for _ in range(_WARM):
            work()
        return statistics.median(self._once(work) for _ in range(times))

    def _once(self, work: Work) -> float:
        if self._flush is None:
            self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=self.device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def random(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device).normal_()

    def pick(self, full: int, tiny: int) -> int:
        """A size, and what stands for it in a rehearsal."""
        return tiny if self.rehearsal else full


def element_bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
