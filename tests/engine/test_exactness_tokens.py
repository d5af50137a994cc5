"""No schedule changes an answer: greedy tokens across budgets, modes, caches and preemption.

On the vector kernels tokens are equal outright in fp32 and bf16. Where sums have several orders
(torch's kernels; int8 and int4, which switch to bf16 copies beyond a few rows) the first difference
must be a proven tie; `python -m tests.exactness_report` says how many there are.
"""

from __future__ import annotations

import pytest

from engine.models.weights import ModelSource
from kernels.simd.support import runs
from tests.engine.exactness import CASES, SWITCHES, Case
from tests.engine.ties import KINDS, Bench, exact, make_backend

EVERYTHING = {"fp32 auto", "bf16 auto"}
FEW = {"budget 7, prefix cache", "preempted", "200 switches"}  # of the slower or the inexact


@pytest.fixture(scope="module", params=KINDS)
def bench(request: pytest.FixtureRequest, smollm: ModelSource) -> Bench:
    dtype = request.param.split()[0]
    if request.param in EVERYTHING:
        return Bench(smollm, dtype, request.getfixturevalue(f"smollm_{dtype}"))
    if dtype.startswith("int") and not runs(dtype):
        pytest.skip(f"{dtype} does not run on this CPU")
    return Bench(smollm, dtype, make_backend(smollm, request.param))


def cases_of(kind: str) -> list[Case]:
    return [case for case in CASES if kind in EVERYTHING or case.name in FEW]


@pytest.mark.parametrize(
    ("bench", "case"),
    [pytest.param(k, c, id=f"{k}-{c.name}") for k in KINDS for c in cases_of(k)],
    indirect=["bench"],
    scope="module",
)
def test_no_schedule_changes_an_answer(bench: Bench, case: Case) -> None:
    outcome, tally = bench.run(case)
    print(f"{tally}; a tie up to {bench.bound:.1e}")
    assert outcome.preemptions > 0 or not case.tight
    assert outcome.hits > 0 or case.tight or not case.settings.get("prefix_cache")
    assert outcome.steps >= SWITCHES or not case.switching
    assert not tally.gaps or not exact(bench.backend, bench.dtype)
