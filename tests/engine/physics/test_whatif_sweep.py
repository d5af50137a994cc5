"""A sweep is the same what-ifs one by one; its best point is found again by looking at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.errors import UserError
from engine.physics.catalogue import find_device
from engine.physics.max_batch import largest_batch
from engine.physics.sweep import Grid, sweep
from engine.physics.whatif import answer
from tests.engine.asking import ask, meets

GRID = Grid(
    batches=(1, 16, 64, 256),
    dtypes=("bf16", "fp8"),
    devices=(find_device("h100-sxm"), find_device("h200")),
    tensor_parallels=(1, 2),
)


def test_every_point_is_the_answer_to_its_own_question() -> None:
    w = ask("llama-3.1-70b", context=2000, tpot_slo_s=0.04, price_per_hour=2.0, overhead_s=0.018)
    rows = sweep(w, GRID)["rows"]
    assert len(rows) == 4 * 2 * 2 * 2
    for row in rows:
        d = replace(
            w.deployment,
            device=find_device(row["device"]),
            weight_dtype=row["dtype"],
            tensor_parallel=row["tensor_parallel"],
        )
        alone = answer(replace(w, deployment=d, batch=row["batch"]))
        for name in ("t_step_s", "t_compute_s", "t_memory_s", "tokens_per_s", "bound", "fits"):
            assert row[name] == alone[name], name
        price = alone["prices"]["per_million_output_tokens"]
        assert row["per_million_output_tokens"] == pytest.approx(price)
        assert row["meets_target"] == meets(replace(w, deployment=d), row["batch"])


def test_the_best_point_has_the_most_tokens_per_device_of_those_that_meet_the_target() -> None:
    found = sweep(ask("llama-3.1-70b", context=2000, tpot_slo_s=0.03), GRID)
    meeting = [row for row in found["rows"] if row["meets_target"]]
    assert 0 < len(meeting) < len(found["rows"])
    most = max(row["tokens_per_s"] / row["devices"] for row in meeting)
    assert found["best"]["tokens_per_s_per_device"] == most
    assert found["best"] in meeting
    assert (found["best"]["device"], found["best"]["batch"]) == ("h200", 256)


def test_each_deployment_says_its_largest_batch() -> None:
    w = ask("llama-3.1-70b", context=2000, tpot_slo_s=0.03)
    for deployment in sweep(w, GRID)["deployments"]:
        d = replace(
            w.deployment,
            device=find_device(deployment["device"]),
            weight_dtype=deployment["dtype"],
            tensor_parallel=deployment["tensor_parallel"],
        )
        most = largest_batch(replace(w, deployment=d))
        assert most is not None
        assert (deployment["max_batch"], deployment["max_batch_limit"]) == (most.batch, most.limit)


def test_no_point_is_best_where_none_meets_the_target() -> None:
    found = sweep(ask("llama-3.1-405b", tpot_slo_s=0.001), Grid((1, 2)))
    assert found["best"] is None
    assert [row["meets_target"] for row in found["rows"]] == [False, False]


def test_an_empty_axis_keeps_what_was_asked() -> None:
    (row,) = sweep(ask(dtype="fp8", batch=7), Grid(batches=()))["rows"]
    assert (row["dtype"], row["batch"], row["device"]) == ("fp8", 7, "h100-sxm")


def test_a_deployment_that_cannot_be_is_left_out_with_the_reason() -> None:
    found = sweep(ask(), Grid((1,), tensor_parallels=(1, 3)))
    assert [row["tensor_parallel"] for row in found["rows"]] == [1]
    (reason,) = found["skipped"]
    assert reason.startswith("3 x h100-sxm in bf16: tensor_parallel is 3")
    assert "use a divisor" in reason


def test_a_grid_beyond_measure_is_refused() -> None:
    with pytest.raises(UserError, match="the grid has 30,000 points: use at most 20,000"):
        Grid(batches=range(1, 15_001), dtypes=("bf16", "fp8"))


def test_a_time_per_token_is_no_target_of_a_prefill() -> None:
    with pytest.raises(UserError, match="leave it out of a sweep over prefills"):
        sweep(ask(phase="prefill", prompt_tokens=10, tpot_slo_s=0.1), GRID)
    found = sweep(ask(phase="prefill", prompt_tokens=1000), Grid((1, 2)))
    assert found["rows"][1]["tokens_per_s"] * found["rows"][1]["t_step_s"] == 2000
