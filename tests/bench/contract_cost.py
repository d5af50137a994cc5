"""What a contract costs a launch: nanoseconds a check, beside an empty call with the arguments.

    .venv/bin/python -m tests.bench.contract_cost [--json]

Each row: a check of tensors that passed before (every step but the first), the same call into a
function that does nothing, and a check of sizes that were never seen, which examines everything.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

from telemetry.clock import now_ns
from tests.kernels.contract_calls import Case, cases, right

CALLS, ROUNDS = 2000, 15


def nothing(**given: Any) -> None:
    """The cost of passing the arguments alone."""


def cost_ns(call: Callable[..., Any], given: dict[str, Any]) -> float:
    """Nanoseconds a call: the median of rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begun = now_ns()
        for _ in range(CALLS):
            call(**given)
        rounds.append((now_ns() - begun) / CALLS)
    return statistics.median(rounds)


def row(case: Case) -> dict[str, Any]:
    given = right(case)
    examine = case.contract._examine

    def fresh(**arguments: Any) -> Any:
        return examine(arguments)

    return {
        "launcher": str(case),
        "tensors": len(case.contract.args),
        "check_ns": round(cost_ns(case.contract.check, given)),
        "empty_call_ns": round(cost_ns(nothing, given)),
        "first_check_ns": round(cost_ns(fresh, given)),
    }


def main() -> None:
    torch.set_num_threads(1)
    rows = [row(case) for case in cases()]
    if "--json" in sys.argv[1:]:
        print(json.dumps({"contracts": rows}))
        return
    for r in rows:
        print(
            f"{r['launcher']:24} {r['tensors']} tensors: {r['check_ns']:6,} ns a check, "
            f"{r['empty_call_ns']:4,} ns an empty call, {r['first_check_ns']:8,} ns the first time"
        )


if __name__ == "__main__":
    main()
