"""Which steps have their kernels timed, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.base import Backend
from engine.backends.kernel_times import KernelTime
from engine.batch import ScheduledBatch
from engine.physics.kernel_cost import KernelWork, count_kernels
from engine.step_record import Accounting, phase_of, step_cost
from telemetry.clock import NS_PER_S, seconds
from telemetry.schema import KernelSampleRecord

EVERY_NS = NS_PER_S


class KernelSampling:
    """About one step a second of each phase: a rare prompt is seen beside many decodes."""

    def __init__(self, backend: Backend, accounting: Accounting) -> None:
        self._backend, self._accounting = backend, accounting
        self._next_ns: dict[str, int] = {}
        self._timed = False

    def begin(self, plan: ScheduledBatch, t_ns: int) -> None:
        """Before the forward pass of a step: the backend times it if it is one of those."""
        self._timed = self._backend.times_kernels and self.takes(plan, t_ns)
        if self._timed:
            self._backend.time_kernels()

    def records(self, step: int, plan: ScheduledBatch) -> list[KernelSampleRecord]:
        """After it; empty if it was not timed."""
        if not self._timed:
            return []
        return kernel_records(step, plan, self._backend.kernel_times(), self._accounting)

    def takes(self, plan: ScheduledBatch, t_ns: int) -> bool:
        """Whether this step is one; if so, the next of its phase is a second later."""
        phase = phase_of(plan)
        if t_ns < self._next_ns.get(phase, t_ns):
            return False
        self._next_ns[phase] = t_ns + EVERY_NS
        return True


def kernel_records(
    step: int, plan: ScheduledBatch, times: Sequence[KernelTime], accounting: Accounting
) -> list[KernelSampleRecord]:
    """One row a kernel that ran: its time, and its share of what the step computed and moved."""
    dtypes = accounting.step_dtypes(plan.rows)
    work = count_kernels(accounting.spec, step_cost(plan, accounting), *dtypes)
    return [_record(step, time, work.get(time.kernel)) for time in times]


def _record(step: int, time: KernelTime, work: KernelWork | None) -> KernelSampleRecord:
    flops, bytes_ = work or (None, None)
    return KernelSampleRecord(step, time.kernel, time.calls, seconds(time.time_ns), flops, bytes_)
