"""The Roofline page: experts, other dtypes and devices beside the run, one step in words."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pandas as pd
import pytest

from app.figures.crossover import crossover, intensity
from app.figures.plane import Decode, Peaks
from app.panels import roofline, roofline_compare, roofline_text
from app.panels.roofline_cost import decode_of, experts_of
from app.panels.view import View
from app.theme import LIGHT
from app.units import count, duration, percent, si, three
from engine.physics.catalogue import devices, find_device, find_model
from engine.physics.cost import ChunkWork, StepCost, count_step, times
from engine.physics.model_spec import ModelSpec
from engine.physics.roofline import decode_intensity
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.synthetic import PEAK_BANDWIDTH, PEAK_FLOPS, RUN_ID, SMOLLM2, Simulation, race

H100 = find_device("h100-sxm")
CALIBRATED = {
    "spec": asdict(SMOLLM2),
    "calibration": {"dtypes": {"bf16": {"peak_flops": 420e9}, "fp32": {"peak_flops": 210e9}}},
}


def spec_of(name: str) -> ModelSpec:
    spec = find_model(name).spec
    assert spec is not None
    return spec


MIXTRAL = spec_of("mixtral-8x7b")


class Measured(Simulation):
    """A run that says how its machine was calibrated, and what its model is."""

    config: dict[str, Any] = CALIBRATED

    def run_row(self) -> dict[str, Any]:
        return super().run_row() | {"config": json.dumps(self.config)}


@pytest.fixture
def calibrated(store: Store) -> Reader:
    simulation = Measured(slots=6)
    simulation.arrive(9)
    while simulation.advance():
        pass
    simulation.write(store)
    return store.reader()


def decodes(spec: ModelSpec, batch: int, context: int) -> StepCost:
    return count_step(spec, [ChunkWork(1, context - 1, 0, 1)] * batch, "bf16", "bf16")


def costs(spec: ModelSpec, batch: int, context: int) -> pd.DataFrame:
    """As `queries.roofline.decode_costs` has a step of the engine."""
    step = decodes(spec, batch, context)
    return pd.DataFrame(
        [
            {
                "decode_seqs": batch,
                "weight_bytes": step.weight_bytes,
                "matmul_flops": (step.linear_flops + step.head_flops) / batch,
                "attention_flops": step.attention_flops / batch,
                "kv_bytes": step.kv_bytes / batch,
                "context_tokens": float(context),
            }
        ]
    )


def run_of(spec: ModelSpec, **more: Any) -> dict[str, Any]:
    config = {"spec": asdict(spec), **more}
    return {"dtype": "bf16", "peak_flops": 989e12, "config": json.dumps(config)}


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "llama-3.1-8b"])
@pytest.mark.parametrize("seen", [1, 5, 32])
def test_one_counted_step_redraws_every_other_batch(name: str, seen: int) -> None:
    """Of a mixture of experts too, of which each batch reads another number of experts."""
    spec = spec_of(name)
    decode = decode_of(costs(spec, seen, 700), run_of(spec))
    assert decode is not None
    for batch in (1, 2, 8, 64, 512):
        counted = decodes(spec, batch, 700)
        assert decode.model.read_bytes(batch) == pytest.approx(counted.weight_bytes, rel=1e-3)
        assert decode_intensity(decode.model, batch, 700) == pytest.approx(
            counted.intensity, rel=1e-3
        )


def of_mixtral() -> tuple[Decode, Peaks]:
    decode = decode_of(costs(MIXTRAL, 4, 512), run_of(MIXTRAL))
    assert decode is not None
    return decode, Peaks(989e12, 3.35e12, "datasheet")


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [t for t in figure["data"] if t["name"] == name]
    return found


def texts(figure: dict[str, Any]) -> str:
    return " | ".join(a["text"] for a in figure["layout"]["annotations"])


def test_the_curves_of_a_mixture_are_the_counted_ones() -> None:
    decode, peaks = of_mixtral()
    plane = trace(intensity(decode, peaks, 4, LIGHT), "decode")
    cost = crossover(decode, peaks, pd.DataFrame({"t_step_s": []}), None, LIGHT)
    drawn = {n: trace(cost, n) for n in ("weights", "weights + KV", "math")}
    for batch in (1, 4, 64):
        at = plane["x"].index(batch)
        step = decodes(MIXTRAL, batch, 512)
        real = times(step, peaks.flops, peaks.bandwidth)
        assert plane["y"][at] == pytest.approx(step.intensity, rel=2e-3)
        assert drawn["weights"]["y"][at] == pytest.approx(real.t_weights_s * 1e3, rel=2e-3)  # type: ignore[operator]
        assert drawn["weights + KV"]["y"][at] == pytest.approx(real.t_memory_s * 1e3, rel=2e-3)  # type: ignore[operator]
        assert drawn["math"]["y"][at] == pytest.approx(real.t_compute_s * 1e3, rel=2e-3)  # type: ignore[operator]
    weights = drawn["weights"]["y"]
    assert weights[-1] > 3 * weights[0], "one row reads two of eight experts, many rows all"


def test_experts_are_touched_as_the_model_says() -> None:
    moe, found = MIXTRAL.moe, experts_of(run_of(MIXTRAL), MIXTRAL)
    assert moe is not None
    assert found is not None
    for rows in (1, 3, 40):
        assert found.touched(rows) == pytest.approx(moe.touched(rows))
    assert experts_of(run_of(SMOLLM2), SMOLLM2) is None


def test_dtypes_to_choose_are_those_that_were_measured(calibrated: Reader) -> None:
    row = calibrated.row("SELECT * FROM runs")
    assert row is not None
    assert roofline_compare.dtype_choices(row, "") == ["fp32"]
    assert roofline_compare.dtype_choices(row, "h100-sxm") == ["fp32", "fp16", "fp8"]
    rates = roofline_compare.rates_of(row)
    assert (rates.own, rates.source) == ("bf16", "measured")


def test_a_modelled_runs_dtypes_are_its_devices() -> None:
    run = run_of(MIXTRAL, assumptions={"device": "h100-sxm", "devices": 2})
    rates = roofline_compare.rates_of(run | {"peak_flops": 2 * 989e12})
    assert rates.flops["fp8"] == 2 * H100.peak_flops["fp8"]
    assert (rates.own, rates.source) == ("bf16", "datasheet")
    assert roofline_compare.rates_of({"config": "{}", "dtype": "x", "peak_flops": None}).flops == {}


def page(reader: Reader, **params: str) -> View:
    return roofline.panels(reader, RUN_ID, params, LIGHT)


def test_another_dtypes_roof_is_dashed_and_named(calibrated: Reader) -> None:
    figure = page(calibrated, compare_dtype="fp32").figures["roofline"]
    flat, own = trace(figure, "fp32 compute roof"), trace(figure, "compute roof")
    assert flat["line"] == {"color": LIGHT.compute, "width": 2, "dash": "dash"}
    assert flat["y"] == [pytest.approx(210e9)] * 2
    assert own["line"]["dash"] == "solid", "the run is judged by its own"
    assert "fp32 210 GFLOP/s (measured)" in texts(figure)


def test_fp32_weights_halve_the_intensity(calibrated: Reader) -> None:
    figure = page(calibrated, compare_dtype="fp32").figures["intensity"]
    own, other = trace(figure, "decode"), trace(figure, "fp32 weights")
    assert other["line"]["dash"] == "dot"
    assert other["y"][0] / own["y"][0] == pytest.approx(0.5, rel=0.05)
    assert "fp32 ridge" in texts(figure)


def test_a_device_shares_the_picture(calibrated: Reader) -> None:
    plain = page(calibrated).figures["roofline"]
    figure = page(calibrated, compare_device="h100-sxm").figures["roofline"]
    slope = trace(figure, "H100 SXM 80 GB bf16 memory roof")
    assert slope["line"] == {"color": LIGHT.memory, "width": 2, "dash": "dash"}
    assert slope["x"][1] == pytest.approx(H100.peak_flops["bf16"] / H100.bandwidth, rel=1e-4)
    assert "H100 SXM 80 GB bf16 989 TFLOP/s, 3.35 TB/s (datasheet)" in texts(figure)
    low, high = figure["layout"]["yaxis"]["range"]
    assert 10**high > 989e12 > 10 ** plain["layout"]["yaxis"]["range"][1]
    assert 10**low < min(trace(figure, "decode")["y"])
    assert 10 ** figure["layout"]["xaxis"]["range"][1] > 4 * 295


def test_the_same_step_on_the_device_is_on_its_roof(calibrated: Reader) -> None:
    for scale in ("absolute", "normalised"):
        view = page(calibrated, compare_device="h100-sxm", scale=scale)
        there = trace(view.figures["roofline"], "the same step on H100 SXM 80 GB bf16")
        row = calibrated.row("SELECT * FROM steps ORDER BY step DESC LIMIT 1")
        assert row is not None
        peaks = Peaks(989e12, 3.35e12, "datasheet")
        across, up = (peaks.ridge, peaks.flops) if scale == "normalised" else (1, 1)
        assert there["x"] == [pytest.approx(row["intensity"] / across, rel=1e-3)]
        assert there["y"] == [pytest.approx(peaks.roof(row["intensity"]) / up, rel=1e-3)]
        floor = duration(row["flops"] / peaks.roof(row["intensity"]))
        assert f"On H100 SXM 80 GB bf16: {floor} at least" in view.html["why"]


def test_normalised_puts_a_devices_batches_under_one_roof(calibrated: Reader) -> None:
    figure = page(calibrated, compare_device="h100-sxm", scale="normalised").figures["roofline"]
    names = {t["name"] for t in figure["data"]}
    assert not {n for n in names if n.endswith("roof") and n.startswith("H100")}
    ladder = trace(figure, "H100 SXM 80 GB bf16 decode")
    assert ladder["customdata"] == [1, 2, 4, 8, 16, 32, 64]
    for x, y in zip(ladder["x"], ladder["y"], strict=True):
        assert y == pytest.approx(min(1.0, x), rel=2e-3)
    left, _ = figure["layout"]["xaxis"]["range"]
    assert 10**left < ladder["x"][0], "far left of its ridge, and still on the picture"


def test_a_dtype_that_only_the_device_has_is_its_roof_alone(calibrated: Reader) -> None:
    figure = page(calibrated, compare_device="h100-sxm", compare_dtype="fp8").figures["roofline"]
    names = {t["name"] for t in figure["data"]}
    assert "H100 SXM 80 GB fp8 compute roof" in names
    assert "fp8 compute roof" not in names


@pytest.mark.parametrize("params", [{"compare_dtype": "fp31"}, {"compare_device": "<i>h100</i>"}])
def test_names_from_an_address_that_nobody_knows_compare_nothing(
    params: dict[str, str], calibrated: Reader
) -> None:
    assert page(calibrated, **params) == page(calibrated)


def step_of(reader: Reader, where: str) -> dict[str, Any]:
    row = reader.row(f"SELECT * FROM steps WHERE run_id = '{RUN_ID}' AND {where} LIMIT 1")
    assert row is not None
    return row


def why(reader: Reader, step: int) -> str:
    first, last = str(max(0, step - 30)), str(step + 30)
    return page(reader, first=first, last=last, step=str(step)).html["why"]


def test_a_decode_step_is_explained_with_its_numbers(reader: Reader) -> None:
    row = step_of(reader, "phase = 'decode' AND decode_seqs = 8 AND padded_slots = 0")
    text, peaks = why(reader, row["step"]), Peaks(PEAK_FLOPS, PEAK_BANDWIDTH, "measured")
    assert f"<b>Why step {count(row['step'])} is there:</b> 8 decode a token each:" in text
    kv = row["kv_read_bytes"] + row["kv_write_bytes"]
    for said in (
        f"{si(row['flops'], 'FLOP')} over {si(row['weight_bytes'], 'B')} of weights",
        f"{si(kv, 'B')} of KV, {three(row['intensity'])} FLOP/byte.",
        f"Under the ridge of {three(peaks.ridge)} reading binds: {duration(row['t_memory_s'])}",
        f"(math {duration(row['t_compute_s'])})",
        f"It took {duration(row['t_step_s'])}, {percent(row['t_memory_s'] / row['t_step_s'])} of",
        f"{duration(row['t_inefficiency_s'])} below the roof, {duration(row['t_host_s'])} host",
        "its KV, the weights are read anyway.",
    ):
        assert said in text


def test_one_more_sequence_is_what_the_count_says(calibrated: Reader) -> None:
    row = step_of(calibrated, "phase = 'decode' AND decode_seqs = 4")
    text = why(calibrated, row["step"])
    contexts = calibrated.rows(
        "SELECT context_tokens FROM sequence_steps WHERE step = $s", {"s": row["step"]}
    )
    starts = [c - 1 for (c,) in contexts]
    mean = sum(starts) / len(starts)

    def floor(decode_starts: list[Any]) -> float:
        cost = count_step(SMOLLM2, (), "bf16", "bf16", decode_starts=decode_starts)
        return times(cost, PEAK_FLOPS, PEAK_BANDWIDTH).floor_s or 0.0

    added = floor([*starts, round(mean)]) - floor(starts)
    said = text.split("would add ")[1].split(" (")[0]
    value, unit = said.split()
    assert float(value) * {"µs": 1e-6, "ms": 1e-3}[unit] == pytest.approx(added, rel=0.02)


def test_a_prefill_step_is_bound_by_its_math(reader: Reader) -> None:
    row = step_of(reader, "phase = 'mixed' AND t_compute_s > 2 * t_memory_s")
    text = why(reader, row["step"])
    assert f"{row['prefill_tokens']} prompt tokens beside " in text
    assert f"math binds: {duration(row['t_compute_s'])} at least" in text
    assert "would add" in text
    assert ": its math." in text


def test_a_step_over_its_roof_says_recalibrate(store: Store) -> None:
    simulation = race()
    for row in simulation.rows["steps"]:
        row["t_step_s"] *= 0.5
    simulation.write(store)
    view = roofline.panels(store.reader(), RUN_ID, {}, LIGHT)
    assert "faster than the peaks allow, so recalibrate.</b>" in view.html["why"]
    assert "above the roof: recalibrate" in texts(view.figures["roofline"])


def test_without_peaks_it_says_what_is_missing(store: Store) -> None:
    race(peaks=(None, None)).write(store)
    view = page(store.reader(), compare_device="h100-sxm")
    assert "peaks are not reported by this source" in view.html["why"]
    assert "peaks are not reported by this source" in texts(view.figures["crossover"])


def test_without_sequence_steps_the_curves_say_what_is_missing(store: Store) -> None:
    simulation = race()
    simulation.rows["sequence_steps"] = []
    simulation.write(store)
    figures = page(store.reader()).figures
    for name in ("intensity", "crossover"):
        assert "not reported by this source" in texts(figures[name])
    assert trace(figures["crossover"], "measured median, P10–P90")["x"]


def test_a_prompt_leaves_the_point_on_the_newest_decode(reader: Reader) -> None:
    """A step with prompt tokens has no place on a curve over decode batches."""
    row = step_of(reader, "phase = 'mixed' AND step > 300")
    step = row["step"]
    view = page(reader, first=str(step - 30), last=str(step + 30), step=str(step))
    before = step_of(
        reader,
        f"phase = 'decode' AND padded_slots = 0 AND step <= {step} ORDER BY step DESC",
    )
    for name in ("intensity", "crossover"):
        assert trace(view.figures[name], "live")["x"] == [before["decode_seqs"]]
    assert trace(view.figures["crossover"], "live")["y"] == [
        pytest.approx(before["t_step_s"] * 1e3, rel=1e-3)
    ]


def step_record(spec: ModelSpec, batch: int, context: int) -> dict[str, Any]:
    """As `queries.roofline.selected` has a decode step that took twice its floor."""
    cost = decodes(spec, batch, context)
    real = times(cost, 989e12, 3.35e12)
    took = {name: getattr(real, name) for name in ("t_compute_s", "t_memory_s")}
    none = dict.fromkeys(("prefill_tokens", "recomputed_tokens", "padded_tokens"), 0)
    counts = {"step": 7, "decode_seqs": batch, "decode_tokens": batch, **none}
    moved = {"weight_bytes": cost.weight_bytes, "kv_bytes": cost.kv_bytes}
    work = {"flops": cost.flops, "intensity": cost.intensity, **moved}
    parts = {"t_step_s": 2 * (real.floor_s or 0.0), "t_inefficiency_s": None, "t_host_s": 1e-4}
    return {**counts, **work, **took, **parts}


def test_a_step_of_a_mixture_tells_of_the_experts_it_reads() -> None:
    decode, peaks = of_mixtral()
    experts, moe = experts_of(run_of(MIXTRAL), MIXTRAL), MIXTRAL.moe
    assert experts is not None
    assert moe is not None
    for batch, reason in ((3, "experts that no other row needs"), (64, "weights are read anyway")):
        text = roofline_text.explained(step_record(MIXTRAL, batch, 512), peaks, decode, experts, ())
        assert f"about {three(moe.touched(batch))} of 8 experts a layer" in text
        assert reason in text
        before, after = (
            times(decodes(MIXTRAL, b, 512), peaks.flops, peaks.bandwidth).floor_s or 0.0
            for b in (batch, batch + 1)
        )
        said = text.split("would add ")[1].split(" (")[0].split()
        assert float(said[0]) * {"µs": 1e-6, "ms": 1e-3}[said[1]] == pytest.approx(
            after - before, rel=0.02
        )
        assert "50.0% of its roof" in text


@pytest.mark.parametrize("device", list(devices()))
def test_every_device_can_stand_beside_every_run(device: str, calibrated: Reader) -> None:
    for scale in ("absolute", "normalised"):
        view = page(calibrated, compare_device=device, compare_dtype="fp32", scale=scale)
        json.dumps(view.figures, allow_nan=False)
        assert "(datasheet)" in texts(view.figures["roofline"]) or scale == "normalised"
        assert " at least, ×" in view.html["why"]


class Quantised(Simulation):
    def run_row(self) -> dict[str, Any]:
        return super().run_row() | {"dtype": "int8"}


def test_curves_of_quantised_weights_say_for_which_batch_they_are(
    store: Store, reader: Reader
) -> None:
    """Beyond a few rows a step runs on copies of them in bfloat16."""
    simulation = Quantised(slots=2)
    simulation.arrive(2)
    for _ in range(6):
        simulation.advance()
    simulation.write(store)
    said = "What one more sequence costs</b>, with the weights that batch 2 reads"
    assert said in texts(page(store.reader()).figures["crossover"])
    assert "with the weights" not in texts(page(reader).figures["crossover"])
