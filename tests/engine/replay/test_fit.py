"""The fit finds a machine whose times are known, from one scheduler's steps, and says how sure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.errors import UserError
from engine.replay.fit import LEAST_STEPS, fit_steps
from engine.replay.recording import Recording
from engine.replay.residuals import residuals
from engine.replay.step_model import StepTimeModel
from engine.replay.steps import Steps, Work
from telemetry.schema import PHASES
from tests.engine.replay.machine import (
    CONTINUOUS,
    PEAK_BANDWIDTH,
    PEAK_FLOPS,
    SPEC,
    Machine,
    arrivals,
    blank,
    recorded,
    run,
    steps_of,
)

MACHINE = Machine()


@pytest.fixture(scope="module")
def recording() -> Recording:
    return recorded(blank(arrivals()), MACHINE)


@pytest.fixture(scope="module")
def model(recording: Recording) -> StepTimeModel:
    return fit_steps(recording.steps, PEAK_FLOPS, PEAK_BANDWIDTH)


def test_recorded_steps_are_met(recording: Recording, model: StepTimeModel) -> None:
    error = recording.steps.step_s / model.step_s(recording.steps) - 1
    assert np.abs(error).max() < 0.03


@pytest.mark.parametrize("other", ["static", "chunked", "no-batching"])
def test_steps_of_other_schedulers_are_met(
    recording: Recording, model: StepTimeModel, other: str
) -> None:
    asked = CONTINUOUS.changed(scheduler=other, chunk_tokens=64)
    steps = steps_of(run(recording, asked, MACHINE).steps)
    error = steps.step_s / model.step_s(steps) - 1
    assert abs(np.median(error)) < 0.01
    assert np.quantile(np.abs(error), 0.95) < 0.05


def test_no_coefficient_is_negative(model: StepTimeModel) -> None:
    for fit in model.phases.values():
        assert (fit.forward >= 0).all()
        assert (fit.host >= 0).all()


def test_one_step_at_a_time_and_many_at_once_agree(
    recording: Recording, model: StepTimeModel
) -> None:
    steps, one_by_one = recording.steps, []
    for i in range(len(steps)):
        counts = [getattr(steps, name)[i] for name in Work._fields[1:]]
        work = Work(PHASES[steps.phase[i]], *counts)
        one_by_one.append(model.forward_s(work) + model.host_s(work))
    assert one_by_one == pytest.approx(model.step_s(steps).tolist(), rel=1e-9)


def test_held_up_steps_do_not_bend_the_fit(recording: Recording, model: StepTimeModel) -> None:
    factor = np.where(np.arange(len(recording.steps)) % 17 == 0, 8.0, 1.0)
    spiky = replace(recording.steps, forward_s=recording.steps.forward_s * factor)
    bent = fit_steps(spiky, PEAK_FLOPS, PEAK_BANDWIDTH)
    ratio = bent.step_s(recording.steps) / model.step_s(recording.steps)
    assert np.abs(ratio - 1).max() < 0.05


def test_a_phase_that_was_not_recorded_takes_the_shared_physics(recording: Recording) -> None:
    no_prompts = recording.steps.where(recording.steps.phase != PHASES.index("prefill"))
    model = fit_steps(no_prompts, PEAK_FLOPS, PEAK_BANDWIDTH)
    prompts = recording.steps.of_phase("prefill")
    assert len(prompts) >= 5
    assert np.median(prompts.step_s / model.step_s(prompts)) == pytest.approx(1, abs=0.05)


def test_more_work_never_takes_less_time(model: StepTimeModel) -> None:
    base = Work("mixed", 1e10, 2.7e8, 1e8, 1e7, 4, 40)
    for name in Work._fields[1:]:
        times = []
        for factor in (0.5, 1, 2, 8):
            work = base._replace(**{name: getattr(base, name) * factor})
            times.append(model.forward_s(work) + model.host_s(work))
        assert times == sorted(times), name


def test_the_shared_fit_does_not_beat_the_peaks(recording: Recording) -> None:
    # Only decodes of one sequence: what part reading has in their time, nothing in them says.
    steps = recording.steps
    alone = steps.where((steps.rows == 1) & (steps.phase == PHASES.index("decode")))
    assert len(alone) >= LEAST_STEPS
    fit = fit_steps(alone, PEAK_FLOPS, PEAK_BANDWIDTH)
    per_flop = fit.phases["prefill"].forward[1]
    assert 1 / (per_flop * fit.bend.ridge) <= 1.06 * PEAK_BANDWIDTH
    assert 1 / per_flop <= 1.06 * PEAK_FLOPS


def test_without_peaks_it_still_fits(recording: Recording) -> None:
    steps = recording.steps
    error = steps.step_s / fit_steps(steps).step_s(steps) - 1
    assert np.quantile(np.abs(error), 0.95) < 0.1


def test_a_short_recording_is_refused(recording: Recording) -> None:
    few = recording.steps.where(np.arange(LEAST_STEPS - 1))
    with pytest.raises(UserError, match=f"{LEAST_STEPS - 1} steps.*{LEAST_STEPS} or more"):
        fit_steps(few)


# --- residuals ---


def drifting(steps: Steps) -> Steps:
    """The second half ran 30% slower."""
    late = np.arange(len(steps)) >= len(steps) / 2
    slower = np.where(late, 1.3, 1.0)
    return replace(steps, forward_s=steps.forward_s * slower, host_s=steps.host_s * slower)


def test_drift_is_pace_and_not_scatter(recording: Recording) -> None:
    steps = drifting(recording.steps)
    left = residuals(fit_steps(steps, PEAK_FLOPS, PEAK_BANDWIDTH), steps)
    assert max(left.paces) / min(left.paces) == pytest.approx(1.3, abs=0.1)
    spread = [r for scatter in left.scatter.values() for r in scatter.ratios]
    assert np.quantile(spread, 0.95) / np.quantile(spread, 0.05) < 1.25


def test_a_draw_is_the_same_each_time_and_differs_from_others(recording: Recording) -> None:
    steps = recorded(blank(arrivals()), MACHINE, noise=0.1).steps
    left = residuals(fit_steps(steps, PEAK_FLOPS, PEAK_BANDWIDTH), steps)
    one, again, other = (left.ratios(n) for n in (0, 0, 1))
    drawn = [one("decode", 0.01) for _ in range(50)]
    assert drawn == [again("decode", 0.01) for _ in range(50)]
    assert drawn != [other("decode", 0.01) for _ in range(50)]
    assert np.std(np.log(drawn)) == pytest.approx(0.1, rel=0.5)


def test_a_spike_of_short_steps_is_not_drawn_for_long_ones(recording: Recording) -> None:
    steps = recording.steps
    short = (steps.step_s < np.median(steps.step_s)) & (np.arange(len(steps)) % 10 == 0)
    assert short.sum() > 20
    spiky = replace(steps, host_s=steps.host_s + np.where(short, 0.05, 0.0))
    left = residuals(fit_steps(spiky, PEAK_FLOPS, PEAK_BANDWIDTH), spiky)
    longest, least = float(steps.step_s.max()), float(steps.step_s.min())
    ratio = left.ratios(0)
    assert max(ratio("mixed", longest) for _ in range(200)) < 1.2
    assert max(ratio("decode", least) for _ in range(200)) > 4


def test_the_summary_counts_the_phases(recording: Recording, model: StepTimeModel) -> None:
    summary = residuals(model, recording.steps).summary
    counted = {phase: r["steps"] for phase, r in summary["phases"].items()}
    assert sum(counted.values()) == len(recording.steps)
    assert SPEC.total_params == pytest.approx(134.5e6, rel=0.01)
