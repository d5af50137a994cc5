"""`stepscope kernels check`: all that is there passes, and what is wrong is caught."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.checking import pool
from kernels.checking.case import Case, Values
from kernels.checking.check import check
from kernels.checking.poison import GUARD_BYTES, Guarded, poisoned
from kernels.checking.tolerance import allowed, error, tolerance
from kernels.registry import contracts
from tests.kernels.planted import PLANTED

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def checked(stepscope: Path) -> dict[str, Any]:
    done = subprocess.run(
        [stepscope, "kernels", "check", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr or done.stdout[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_launcher_passes_in_every_dtype(checked: dict[str, Any]) -> None:
    """The error is within a tolerance that is the dtype's own, grown by long float32 sums only."""
    assert checked["passed"] is True
    assert checked["ops"]
    for row in checked["ops"]:
        assert row["passed"] is True, row
        assert row["failure"] is None
        assert 0 <= row["error"] <= row["tolerance"]
        least = {"fp32": 1.3e-6, "fp16": 1e-3, "bf16": 1.6e-2}[row["dtype"]]
        float8 = 2.0**-4 if "fp8" in row["shape"] else 0.0
        assert least <= row["tolerance"] <= max(2 * least, 1e-5) + float8
    assert {row["op"] for row in checked["ops"]} == set(contracts())
    for op in contracts():
        assert {row["dtype"] for row in checked["ops"] if row["op"] == op} >= {"fp16", "bf16"}, op


@pytest.mark.parametrize("mistake", sorted(PLANTED))
def test_a_planted_mistake_is_caught(mistake: str) -> None:
    """The same cases that pass without it (see above)."""
    worker = [sys.executable, "-m", "tests.kernels.planted.worker", mistake]

    def single(items: list[dict[str, Any]]) -> list[int]:
        return [i for i, item in enumerate(items) if item["dtype"] == "fp32"]

    rows = pool.run(worker, single, workers=2).rows
    caught = [row for row in rows if not row["passed"]]
    assert caught, f"a {mistake} passes"
    assert all(row["failure"] for row in caught)


# --- what the check looks at, on small ops in torch ---


def _case(run: Any, reference: Any = None, dtype: torch.dtype = torch.float32) -> Case:
    """y = 2 x on 3 x 5."""
    return Case(
        op="double",
        dtype=dtype,
        shape="3 x 5",
        reduced=1,
        inputs=lambda g, d: {"x": torch.randn(3, 5, generator=g, device=d).to(dtype)},
        outputs=lambda v: {"y": torch.full_like(v["x"], float("nan"))},
        run=run,
        reference=reference or (lambda v, _: {"y": 2 * v["x"]}),
    )


def _right(values: Values, out: Values) -> None:
    torch.mul(values["x"], 2, out=out["y"])


def _past_the_end(values: Values, out: Values) -> None:
    _right(values, out)
    out["y"].as_strided((1,), (1,), out["y"].storage_offset() + 15).fill_(0)


def _forgets_a_row(values: Values, out: Values) -> None:
    out["y"][:2] = 2 * values["x"][:2]


def _reads_past_the_end(values: Values, out: Values) -> None:
    beyond = values["x"].as_strided((3, 5), (5, 1), values["x"].storage_offset() + 1)
    torch.add(values["x"], beyond, out=out["y"])


def _writes_its_input(values: Values, out: Values) -> None:
    torch.mul(values["x"], 2, out=out["y"])
    values["x"].zero_()


def _slightly_off(values: Values, out: Values) -> None:
    torch.mul(values["x"], 2 * (1 + 3e-6), out=out["y"])


def _throws(values: Values, out: Values) -> None:
    raise ValueError("no such\ntile")


@pytest.mark.parametrize(
    ("run", "failure"),
    [
        (_past_the_end, "wrote outside y: its guard bands have changed"),
        (_forgets_a_row, "y holds NaN or infinity where its reference does not"),
        (_reads_past_the_end, "y holds NaN or infinity where its reference does not"),
        (_writes_its_input, "wrote to its input x"),
        (_slightly_off, "at most 1.3e-06 is allowed"),
        (_throws, "ValueError: no such tile"),
    ],
)
def test_what_a_kernel_must_not_do(run: Any, failure: str) -> None:
    outcome = check(_case(run), CPU)
    assert not outcome.passed
    assert outcome.failure is not None
    assert failure in outcome.failure


def test_a_right_kernel_passes_with_the_error_that_it_has() -> None:
    outcome = check(_case(_right), CPU)
    assert (outcome.passed, outcome.failure, outcome.error) == (True, None, 0.0)
    assert outcome.tolerance == 1.3e-6


def test_integers_compare_exactly_unless_they_tie() -> None:
    def case(ties: Any) -> Case:
        return Case(
            op="argmax",
            dtype=torch.float32,
            shape="2 x 2",
            reduced=1,
            inputs=lambda g, d: {"x": torch.tensor([[1.0, 1.0], [0.0, 2.0]], device=d)},
            outputs=lambda v: {"i": torch.full((2,), -1)},
            run=lambda v, out: out["i"].copy_(torch.tensor([1, 1])),
            reference=lambda v, _: {"i": torch.tensor([0, 1])},
            ties=ties,
        )

    refused = check(case(None), CPU)
    assert refused.failure == "i differs from its reference in 1 of 2 places"
    assert (refused.error, refused.passed) == (0.5, False)
    picked: list[Any] = []

    def tie(values: Values, found: Values, expected: Values) -> bool:
        picked.append((found["i"].tolist(), expected["i"].tolist()))
        rows = torch.arange(2)
        return torch.equal(values["x"][rows, found["i"]], values["x"][rows, expected["i"]])

    assert check(case(tie), CPU).passed
    assert picked == [([1, 1], [0, 1])]


def test_a_worker_that_ends_on_an_item_is_replaced() -> None:
    """As a kernel does that reads a wild address; the items behind it are answered."""
    code = (
        "import json, os, signal\n"
        "print(json.dumps({'blank': {'passed': False, 'error': None},"
        " 'items': [{'op': str(i)} for i in range(5)]}), flush=True)\n"
        "while True:\n"
        "    i = int(input())\n"
        "    if i == 2: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    print(json.dumps({'op': str(i), 'passed': True}), flush=True)\n"
    )
    found = pool.run([sys.executable, "-c", code], lambda items: [0, 2, 4], workers=2)
    assert [row["op"] for row in found.rows] == ["0", "2", "4"]
    assert [row["passed"] for row in found.rows] == [True, False, True]
    assert "signal 11" in found.rows[1]["failure"]


def test_a_worker_that_does_not_start_says_why() -> None:
    with pytest.raises(pool.WorkerError, match="exit code 1, ImportError: no kernels"):
        pool.run([sys.executable, "-c", "raise ImportError('no kernels')"], lambda items: [])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.bool]
)
def test_guard_bands_of_every_dtype(dtype: torch.dtype) -> None:
    """Strides are kept, gaps between rows are guarded like what is around."""
    tensor = torch.ones(4, 8).to(dtype)[:, :5]
    guarded = Guarded(tensor)
    assert guarded.view.stride() == (8, 1)
    assert torch.equal(guarded.view.double(), tensor.double())
    guarded.view.copy_(torch.zeros(4, 5).to(dtype))
    assert not guarded.spilled()
    assert guarded.changed()
    guarded.view.as_strided((1,), (1,), guarded.view.storage_offset() + 6).zero_()
    assert guarded.spilled()
    assert GUARD_BYTES % 4096 == 0


def test_poison_is_no_number_and_no_index() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        assert poisoned(3, dtype, CPU).float().isnan().all()
    assert poisoned(1, torch.int32, CPU).item() == 0x5A5A5A5A


def test_tolerances() -> None:
    """torch.testing's, and more for sums that are longer than 256."""
    assert tolerance(torch.float32, 256) == 1.3e-6
    assert tolerance(torch.float32, 4 * 256) == pytest.approx(2 * 1.3e-6)
    assert tolerance(torch.bfloat16, 4 * 256) == pytest.approx(1.6e-2 + 1.3e-6)
    assert allowed(torch.float16, 1, torch.float8_e4m3fn) == 1e-3 + 2.0**-4
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        a, b = torch.tensor([1.0], dtype=dtype), torch.tensor([1 + 2 * tolerance(dtype, 1)])
        with pytest.raises(AssertionError):
            torch.testing.assert_close(a, b.to(dtype), atol=0.0, rtol=tolerance(dtype, 1))


def test_errors_are_to_the_scale_of_the_output() -> None:
    expected = torch.tensor([3.0, -4.0, 0.0, 5.0], dtype=torch.float64)
    scale = math.sqrt(50 / 4)
    assert error(expected.float(), expected) == 0
    near = expected + torch.tensor([0.0, 0.0, 0.01, 0.0])
    assert error(near, expected) == pytest.approx(0.01 / scale)
    far = expected + torch.tensor([0.0, 0.0, 0.0, 0.01])
    assert error(far, expected) == pytest.approx(0.01 / 5)
    assert error(torch.tensor([math.nan, -4.0, 0.0, 5.0]), expected) == math.inf
    both = torch.tensor([math.nan, 1.0], dtype=torch.float64)
    assert error(both, both) == 0
