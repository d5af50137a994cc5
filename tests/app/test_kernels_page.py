"""The Kernels page over a run: what kernels took, against SQL over the same rows, and states."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from app.figures.kernel_parts import Kernel, TimedStep, share
from app.figures.kernel_roofline import kernel_roofline, points, spread
from app.figures.kernel_share import kernel_share
from app.figures.plane import Peaks
from app.panels import kernels_step
from app.panels.kernels_table import device
from app.panels.view import View
from app.panels.window import window
from app.theme import DARK, LIGHT
from engine.physics.cost import StepCost
from engine.physics.kernel_cost import count_kernels
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.synthetic import PEAK_BANDWIDTH, PEAK_FLOPS, RUN_ID, SMOLLM2, Simulation

PEAKS = Peaks(PEAK_FLOPS, PEAK_BANDWIDTH, "measured")
SHARES = {
    "embedding": 0.01,
    "rms_norm": 0.05,
    "qkv_linear": 0.1,
    "rope_and_cache": 0.02,
    "attention": 0.12,
    "out_linear": 0.08,
    "gate_up_linear": 0.25,
    "down_linear": 0.12,
    "lm_head": 0.15,
}
"""Of the forward pass; a tenth of it is no kernel."""


class Timed(Simulation):
    """Every third step has its kernels timed."""

    def advance(self) -> bool:
        before = len(self.rows["steps"])
        went = super().advance()
        for step in self.rows["steps"][before:]:
            if step["step"] % 3 == 0:
                self.rows["kernel_samples"] += self._kernels(step)
        return went

    def _kernels(self, step: dict[str, Any]) -> list[dict[str, Any]]:
        cost = StepCost(*(step[name] for name in StepCost._fields[:8]))
        work = count_kernels(SMOLLM2, cost, "bf16")
        return [
            {
                "step": step["step"],
                "kernel": name,
                "calls": 1,
                "time_s": part * step["forward_s"],
                "flops": work[name].flops,
                "bytes": work[name].bytes,
            }
            for name, part in SHARES.items()
        ]


class SeldomSampled(Timed):
    """In two of three timed steps nothing is sampled."""

    def _kernels(self, step: dict[str, Any]) -> list[dict[str, Any]]:
        rows = super()._kernels(step)
        return rows if step["step"] % 9 == 0 else [r for r in rows if r["kernel"] != "lm_head"]


def written(store: Store, simulation: Simulation) -> Reader:
    simulation.arrive(40)
    while simulation.advance():
        pass
    simulation.write(store)
    return store.reader()


@pytest.fixture
def timed(store: Store) -> Reader:
    return written(store, Timed(slots=4))


def view(reader: Reader, **params: str) -> View:
    return kernels_step.panels(reader, RUN_ID, params, LIGHT)


def steps(reader: Reader) -> dict[str, TimedStep]:
    shown = window(reader, RUN_ID, {}, kernels_step.SPAN_S)
    assert shown is not None
    return {step.phase: step for step in kernels_step.steps_of(reader, RUN_ID, shown)}


def rows_of(reader: Reader, phase: str, kernel: str) -> list[tuple[Any, ...]]:
    sql = """
    SELECT k.time_s, k.flops, k.bytes, s.forward_s, s.t_host_s FROM kernel_samples k
    JOIN steps s ON s.run_id = k.run_id AND s.step = k.step
    WHERE k.run_id = $run AND s.phase = $phase AND k.kernel = $kernel
    """
    return reader.rows(sql, {"run": RUN_ID, "phase": phase, "kernel": kernel})


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [t for t in figure["data"] if t["name"] == name]
    return found


# --- SQL against the figures ---


@pytest.mark.parametrize("phase", ["decode", "mixed"])
def test_a_kernels_medians_are_those_of_its_rows(timed: Reader, phase: str) -> None:
    step = steps(timed)[phase]
    assert [k.name for k in step.kernels] == list(SHARES)  # in the order in which they run
    for kernel in step.kernels:
        columns = list(zip(*rows_of(timed, phase, kernel.name), strict=True))
        assert step.n == len(columns[0]) > 1
        assert kernel.time_s == pytest.approx(statistics.median(columns[0]))
        if kernel.flops is not None:
            assert kernel.flops == statistics.median(columns[1])
        assert kernel.bytes == statistics.median(columns[2])
    gaps = [0.1 * forward for *_, forward, _ in rows_of(timed, phase, "attention")]
    assert step.gaps_s == pytest.approx(statistics.median(gaps))
    assert step.host_s == statistics.median(r[4] for r in rows_of(timed, phase, "attention"))


def test_the_bar_is_the_whole_step(timed: Reader) -> None:
    """Pieces lie end to end from 0 to 100%, and each is what SQL says of it."""
    found = steps(timed)
    figure = kernel_share(list(found.values()), PEAKS, LIGHT)
    for phase, step in found.items():
        pieces = sorted(
            (base, x, trace["name"])
            for trace in figure["data"]
            for base, x, y in zip(trace["base"], trace["x"], trace["y"], strict=True)
            if y == phase
        )
        at = 0.0
        for base, x, _ in pieces:
            assert base == pytest.approx(at, abs=0.02)
            at = base + x
        assert at == pytest.approx(100, abs=0.05)
        assert [name for *_, name in pieces[-2:]] == ["launch gaps", "host"]
        floors = sum(x for _, x, name in pieces if name.endswith("floor"))
        within = sum(min(k.floor_s(PEAKS), k.time_s) for k in step.kernels)
        assert floors == pytest.approx(100 * within / step.t_step_s, rel=0.01)


def test_points_stand_where_their_counts_put_them(timed: Reader) -> None:
    step = steps(timed)["decode"]
    marks = trace(kernel_roofline(step, PEAKS, DARK), "kernels")
    shown = [k for k in step.kernels if k.flops]
    assert [k.name for k in shown] == [
        *("qkv_linear", "attention", "out_linear", "gate_up_linear", "down_linear", "lm_head")
    ]
    for kernel, x, y in zip(shown, marks["x"], marks["y"], strict=True):
        time_s, flops, bytes_ = kernel.time_s, kernel.flops or 0, kernel.bytes or 1
        assert x == pytest.approx(flops / bytes_, rel=1e-3)
        assert y == pytest.approx(flops / time_s, rel=1e-3)
    # Area is time: a kernel of 0.25 beside one of 0.1.
    size = dict(zip([k.name for k in shown], marks["marker"]["size"], strict=True))
    ratio = (size["gate_up_linear"] / size["qkv_linear"]) ** 2
    assert ratio == pytest.approx(2.5, rel=0.02)


def test_words_and_table_say_the_same(timed: Reader) -> None:
    made, step = view(timed), steps(timed)["decode"]
    assert f"Decode: {share(step.kernels_s / step.t_step_s)} of" in made.html["headline"]
    assert "gate_up takes most" in made.html["headline"]
    assert f"medians of {step.n} timed steps" in made.html["kernel-table"]
    assert made.html["kernel-table"].count("not counted") == 3
    assert "<b>Mixed</b>" in view(timed, phase="mixed").html["kernel-table"]
    assert "<b>Decode</b>" in view(timed, phase="nonsense").html["kernel-table"]


def test_a_kernel_that_seldom_runs_takes_nothing_on_the_median(store: Store) -> None:
    """The LM head runs in no chunk of a prompt but the last: it is not as long as where it ran."""
    found = steps(written(store, SeldomSampled(slots=4)))["decode"]
    head = next(k for k in found.kernels if k.name == "lm_head")
    assert (head.calls, head.time_s, head.flops) == (0, 0.0, 0.0)
    assert next(k for k in found.kernels if k.name == "attention").time_s > 0


# --- states ---


def test_a_run_without_samples_opens_and_says_so(reader: Reader) -> None:
    made = view(reader)
    assert "not reported by this source" in made.html["headline"]
    assert "not reported by this source" in made.html["blank"]
    assert not made.figures
    assert made.html["counter"]


class Modelled(Simulation):
    """On a device that is not here."""

    def run_row(self) -> dict[str, Any]:
        return super().run_row() | {"clock": "modelled", "backend": "modelled"}


def test_a_modelled_device_runs_no_kernel(store: Store) -> None:
    made = view(written(store, Modelled(slots=4)))
    assert "not reported by this source" in made.html["headline"]
    assert "A cost model" in made.html["blank"]


def test_a_window_without_a_timed_step_says_how_to_find_one(timed: Reader) -> None:
    made = view(timed, first="1", last="2")
    assert "steps 1 to 2" in made.html["blank"]
    assert not made.figures
    assert view(timed, first="3", last="3").html["headline"].startswith("<b>")


def test_without_peaks_nothing_is_split_and_nothing_has_a_roof(store: Store) -> None:
    made = view(written(store, Timed(slots=4, peaks=(None, None))))
    names = {trace["name"] for trace in made.figures["kernel-share"]["data"]}
    assert names == {"kernel", "launch gaps", "host"}
    assert [t["name"] for t in made.figures["kernel-roofline"]["data"]] == ["kernels"]
    assert "roof" not in made.html["headline"]


def test_before_the_first_step(store: Store) -> None:
    assert not view(store.reader()).figures


# --- what busy does not say ---


def test_busy_is_not_useful(timed: Reader) -> None:
    step = steps(timed)["decode"]
    told = device({"utilisation": 1.0, "cpu_percent": None}, step, PEAKS)
    assert "GPU utilisation 100%" in told
    assert "not that it did useful work" in told
    assert "CPU use 198%" in device({"cpu_percent": 198.0}, step, PEAKS)
    assert "not reported by this source" in device({}, step, PEAKS)
    assert "not reported by this source" in view(timed).html["device"]


# --- one by one ---


def kernel(name: str, time_s: float, flops: float | None, bytes_: float | None) -> Kernel:
    return Kernel(name, 1, time_s, flops, bytes_)


def step_of(kernels: Sequence[Kernel]) -> TimedStep:
    return TimedStep(7, "decode", 1, 0.001, 0.001, "1 decode", kernels)


def test_a_kernel_over_its_roof_is_ringed() -> None:
    fast = kernel("attention", 0.001, 4e6, 2 * PEAK_BANDWIDTH * 0.001)
    slow = kernel("lm_head", 0.001, 4e6, 0.5 * PEAK_BANDWIDTH * 0.001)
    assert fast.reached(PEAKS) == pytest.approx(2.0)
    figure = kernel_roofline(step_of([fast, slow]), PEAKS, LIGHT)
    assert len(trace(figure, "above the roof")["x"]) == 1
    assert any("1 above the roof" in n["text"] for n in figure["layout"]["annotations"])


def test_what_is_not_counted_has_no_place_and_no_share() -> None:
    norm = kernel("rms_norm", 0.001, None, 1e4)
    assert norm.intensity is None
    assert norm.reached(PEAKS) is None
    assert points(step_of([norm])) == []
    assert kernel_roofline(step_of([norm]), PEAKS, LIGHT)["data"]


def test_labels_keep_apart() -> None:
    assert spread([]) == []
    assert spread([10.0, 100.0]) == [10.0, 100.0]
    moved = spread([50.0, 51.0, 52.0, 200.0])
    assert moved == pytest.approx([34.0, 51.0, 68.0, 200.0])


def test_shares_have_two_figures() -> None:
    assert [share(v) for v in (0.943, 0.1834, 0.0096, 0.00016, 1.0)] == [
        *("94%", "18%", "0.96%", "0.016%", "100%")
    ]
