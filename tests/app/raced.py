"""A simulated race, with the marks that the orchestrator leaves in the recording."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.app.synthetic import Simulation

PLAN = {"workload": "skew", "requests": 40, "slots": 10, "seed": 0, "chunk_tokens": 256}
MODES = ("static", "continuous")


def mark(simulation: Simulation, race: str, part: str, **more: Any) -> None:
    simulation.event("race", json.dumps({"race": race, "part": part, **more}))


def begin(simulation: Simulation, race: str, modes: Sequence[str] = MODES) -> None:
    mark(simulation, race, "begin", **PLAN, modes=modes)
    simulation.now_ns += 10_000_000


def start(simulation: Simulation, race: str, leg: int, mode: str) -> None:
    """Everything has arrived; nothing has run."""
    simulation.switch(mode)
    mark(simulation, race, "start", leg=leg, mode=mode)
    simulation.now_ns += 1_000_000
    simulation.arrive(40)


def finish(simulation: Simulation, race: str, leg: int, mode: str) -> None:
    while simulation.advance():
        pass
    simulation.now_ns += 1_000_000
    mark(simulation, race, "end", leg=leg, mode=mode)
    simulation.now_ns += 10_000_000


def raced(name: str = "first", simulation: Simulation | None = None) -> Simulation:
    """Some other load, then 40 skewed requests under static and under continuous."""
    made = simulation or Simulation()
    made.arrive(9)
    while made.advance():
        pass
    begin(made, name)
    for leg, mode in enumerate(MODES):
        start(made, name, leg, mode)
        finish(made, name, leg, mode)
    mark(made, name, "done")
    return made
