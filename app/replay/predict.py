"""What a run would have come to under other settings, by the same figures as a recorded one."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from engine.replay.fit import fit_steps
from engine.replay.recording import Recording, Settings
from engine.replay.replay import Outcome, replay
from engine.replay.residuals import STRETCHES, Residuals, residuals
from engine.replay.step_model import StepTimeModel
from telemetry.batches import table_of, token_table
from telemetry.clock import wall_now
from telemetry.queries.summary import run_summary
from telemetry.schema import RunRecord
from telemetry.store import Store

DRAWS = STRETCHES
_WORST_TTFT = "SELECT max(ttft_s) FROM request_latency WHERE run_id = $run"
_MEANINGLESS = ("outputs_sha256", "dropped_records")  # no text was made, no record was sent


@dataclass(frozen=True, slots=True)
class Fitted:
    """A recording with the step-time model that was fitted to it."""

    recording: Recording
    model: StepTimeModel
    residuals: Residuals

    @classmethod
    def of(cls, recording: Recording) -> Fitted:
        """Raises UserError for a recording too short to fit."""
        steps = recording.steps
        model = fit_steps(steps, recording.peak_flops, recording.peak_bandwidth)
        return cls(recording, model, residuals(model, steps))

    def to_json(self) -> dict[str, Any]:
        """The model as design.md's `replay` shows it."""
        return {"coefficients": self.model.to_json(), "residuals": self.residuals.summary}


class Predictor:
    """Predictions of one recording; close it when done (or use `with`)."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted
        self._store = Store(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def predict(
        self,
        settings: Settings,
        draws: int = DRAWS,
        tell: Callable[[int], None] = lambda done: None,
    ) -> dict[str, Any]:
        """The keys of `run`, the median of several replays each; `low` and `high`, their range.

        Each replay draws residuals of its own. Raises UserError where a request can never run.
        """
        recording, summaries, largest = self.fitted.recording, [], 0.0
        for draw in range(draws):
            ratio = self.fitted.residuals.ratios(draw)
            outcome = replay(recording, settings, self.fitted.model, ratio)
            summaries.append(self._summary(outcome))
            tell(draw + 1)
            largest = max(largest, outcome.most_rows / float(recording.steps.rows.max()))
        return {
            **combined(summaries, _middle),
            "low": combined(summaries, min),
            "high": combined(summaries, max),
            "settings": asdict(settings),
            "draws": draws,
            "largest_step_over_recorded": largest,
        }

    def _summary(self, outcome: Outcome) -> dict[str, Any]:
        """The figures of `stepscope run`, by the same queries over the same tables."""
        run_id = self._store.start_run(_run_record(self.fitted.recording))
        tables = {
            "steps": table_of("steps", outcome.steps),
            "requests": table_of("requests", list(outcome.requests.values())),
            "events": table_of("events", outcome.events),
            "tokens": token_table(outcome.tokens),
        }
        self._store.append(run_id, tables)
        self._store.flush()
        with self._store.reader() as reader:
            worst_s = reader.value(_WORST_TTFT, {"run": run_id})
            known = {**run_summary(reader, run_id), "ttft_worst_s": worst_s}
            return {**known, **dict.fromkeys(_MEANINGLESS)}


def combined(summaries: Sequence[Any], choose: Callable[[list[Any]], Any]) -> Any:
    """One summary of several, figure by figure; what any of them lacks stays None."""
    first = summaries[0]
    if isinstance(first, dict):
        return {key: combined([s[key] for s in summaries], choose) for key in first}
    return None if any(value is None for value in summaries) else choose(list(summaries))


def _middle(values: list[Any]) -> Any:
    """The median; of counts one that occurred."""
    whole = all(isinstance(value, int) for value in values)
    return statistics.median_low(values) if whole else statistics.median(values)


def _run_record(recording: Recording) -> RunRecord:
    return RunRecord(
        started_wall=wall_now(),
        started_ns=0,
        clock="modelled",
        source="replay",
        model=recording.spec.name,
        device="replay",
        backend="modelled",
        dtype=recording.dtype,
        kv_dtype=recording.kv_dtype,
        peak_flops=recording.peak_flops,
        peak_bandwidth=recording.peak_bandwidth,
        peaks_source=None,
        ttft_slo_s=recording.ttft_slo_s,
        tpot_slo_s=recording.tpot_slo_s,
        config=json.dumps({}),
    )
