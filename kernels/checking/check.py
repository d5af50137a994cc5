"""Runs a kernel against its float64 reference, in memory that betrays what it should not touch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

import torch
from torch import Tensor

from kernels.checking.case import Case, Values
from kernels.checking.poison import Guarded, guard
from kernels.checking.tolerance import allowed, error, tolerance

Errors = list[tuple[float, float]]
"""(error, what is allowed) of each output."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """error, tolerance: of the output that comes nearest to its tolerance, see
    kernels.checking.tolerance; of integers the share that differs, and none may. error None: an
    output is not a number, or nothing could be compared. failure: one line, else None."""

    op: str
    dtype: str
    shape: str
    error: float | None
    tolerance: float
    passed: bool
    failure: str | None = None


def check(case: Case, device: torch.device, seed: int = 0) -> Outcome:
    """Run a case on fresh random inputs; twice on a GPU, where a result that moves is a race."""
    errors: Errors = []
    try:
        failure = _failure(case, device, seed, errors)
    except Exception as fault:  # whatever a kernel under test throws is its result
        failure = _line(fault)
    most = tolerance(case.dtype, case.reduced, case.rounded_terms)
    worst, most = max(errors, key=lambda e: e[0] / e[1], default=(math.inf, most))
    return Outcome(
        op=case.op,
        dtype=dtype_name(case.dtype),
        shape=case.shape,
        error=worst if math.isfinite(worst) else None,
        tolerance=most,
        passed=failure is None,
        failure=failure,
    )


def dtype_name(dtype: torch.dtype) -> str:
    names = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
    return names[dtype]


def _failure(case: Case, device: torch.device, seed: int, errors: Errors) -> str | None:
    """What is wrong with a case, else None; errors of float outputs are added to `errors`."""
    generator = torch.Generator(device).manual_seed(_seed(case, seed))
    inputs = case.inputs(generator, device)
    outputs = case.outputs(inputs)
    expected = case.reference(_exact(inputs), _exact(outputs))
    if set(expected) != set(outputs):
        return f"the case writes {sorted(outputs)} but its reference gives {sorted(expected)}"
    written, trespass = _run(case, inputs, outputs)
    if trespass is not None:
        return trespass
    if device.type != "cpu":
        again, _ = _run(case, inputs, outputs)
        moved = [name for name in written if not written[name].same_bits(again[name])]
        if moved:
            return f"{moved[0]} differs between two runs on the same inputs: a race"
    found = {name: guarded.view for name, guarded in written.items()}
    return _compare(case, inputs, found, expected, errors)


def _run(case: Case, inputs: Values, outputs: Values) -> tuple[dict[str, Guarded], str | None]:
    """Outputs as written, and what was touched that must not be."""
    read, written = guard(inputs), guard(outputs)
    case.run({**inputs, **_views(read)}, {**outputs, **_views(written)})
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    for name, guarded in written.items():
        if guarded.spilled():
            return written, f"wrote outside {name}: its guard bands have changed"
    for name, guarded in read.items():
        if guarded.changed():
            return written, f"wrote to its input {name}"
    return written, None


def _compare(
    case: Case, inputs: Values, found: Values, expected: Values, errors: Errors
) -> str | None:
    for name, value in expected.items():
        if found[name].shape != value.shape:
            return f"{name} is {tuple(found[name].shape)}, its reference {tuple(value.shape)}"
        if found[name].dtype.is_floating_point:
            failure = _compare_floats(case, name, found[name], value, errors)
        else:
            failure = _compare_integers(case, name, inputs, found, expected, errors)
        if failure is not None:
            return failure
    return None


def _compare_floats(
    case: Case, name: str, found: Tensor, expected: Tensor, errors: Errors
) -> str | None:
    off = error(found, expected.double())
    most = allowed(case.dtype, case.reduced, found.dtype, case.rounded_terms)
    errors.append((off, most))
    if off <= most:
        return None
    if math.isinf(off):
        return f"{name} holds NaN or infinity where its reference does not"
    return f"{name} is off by {off:.2g}, at most {most:.2g} is allowed"


def _compare_integers(
    case: Case, name: str, inputs: Values, found: Values, expected: Values, errors: Errors
) -> str | None:
    """Their error is the share of places that differ; none may."""
    wrong, places = int((found[name] != expected[name]).sum()), expected[name].numel()
    if wrong and case.ties is not None and case.ties(inputs, found, expected):
        wrong = 0
    errors.append((wrong / max(1, places), tolerance(case.dtype, case.reduced)))
    return f"{name} differs from its reference in {wrong} of {places} places" if wrong else None


def _views(guarded: Mapping[str, Guarded]) -> Values:
    return {name: each.view for name, each in guarded.items()}


def _exact(values: Values) -> Values:
    """Copies, floats as float64."""
    return {
        name: value.double().clone()
        if isinstance(value, Tensor) and value.dtype.is_floating_point
        else value.clone()
        if isinstance(value, Tensor)
        else value
        for name, value in values.items()
    }


def _seed(case: Case, seed: int) -> int:
    """Of its own for every case, whatever else runs."""
    return crc32(f"{seed} {case.op} {case.dtype} {case.shape}".encode())


def _line(fault: Exception) -> str:
    text = " ".join(str(fault).split())
    return f"{type(fault).__name__}: {text[:300]}"
