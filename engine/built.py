"""An engine with what its owner must know about it. No torch: a modelled engine has none."""

from __future__ import annotations

from dataclasses import dataclass

from engine.engine import Engine
from engine.physics.model_spec import ModelSpec
from engine.tokenizer import Tokenizer
from telemetry.schema import RunRecord


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """model_path: where the weights came from; of a modelled engine, the model's name.

    as_recorded: the built-in traces run at their own lengths and times, not scaled down to fit a
    small machine.
    """

    engine: Engine
    tokenizer: Tokenizer
    spec: ModelSpec
    run: RunRecord
    model_path: str
    as_recorded: bool = False
