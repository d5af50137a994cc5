"""How long a planned batch takes, by the fitted model and what its residuals add."""

from __future__ import annotations

from engine.backends.modelled import StepParts
from engine.batch import ScheduledBatch
from engine.replay.residuals import Ratio
from engine.replay.step_model import StepTimeModel
from engine.replay.steps import Work
from engine.step_record import Accounting, step_cost


class FittedTime:
    """engine.backends.modelled.StepTime of a fitted model. ratio None: exactly as fitted.

    most_rows, most_context: of any step so far, to be held against what was recorded.
    """

    def __init__(
        self, model: StepTimeModel, accounting: Accounting, ratio: Ratio | None = None
    ) -> None:
        self._model, self._accounting, self._ratio = model, accounting, ratio
        self.most_rows = self.most_kv_bytes = 0.0

    def __call__(self, batch: ScheduledBatch) -> StepParts:
        work = self._work(batch)
        self.most_rows = max(self.most_rows, work.rows)
        self.most_kv_bytes = max(self.most_kv_bytes, work.kv_bytes)
        host_s, forward_s = self._model.host_s(work), self._model.forward_s(work)
        if self._ratio is None:
            return StepParts(host_s, forward_s)
        factor = self._ratio(work.phase, host_s + forward_s)
        return StepParts(host_s * factor, forward_s * factor)

    def _work(self, batch: ScheduledBatch) -> Work:
        cost = step_cost(batch, self._accounting)
        return Work(
            phase_of(batch),
            cost.linear_flops + cost.head_flops,
            cost.weight_bytes,
            cost.attention_flops,
            cost.kv_bytes,
            batch.num_chunks,
            batch.rows,
        )


def phase_of(batch: ScheduledBatch) -> str:
    """As the step is recorded: decode, prefill, or mixed where both run."""
    phases = {chunk.phase for chunk in batch.others}
    prompts = phases & {"prefill", "recompute"}
    if not prompts:
        return "decode"
    return "mixed" if phases - prompts or batch.decodes else "prefill"
