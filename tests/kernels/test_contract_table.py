"""Every op, every argument, every wrong dtype, shape, stride, device and absence.

The contract's line comes before any launch: without a GPU, without the interpreter, with triton
untouched.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.contract import Arg, ContractChoice, ContractError
from kernels.registry import FOLDERS, contracts
from tests.kernels.contract_calls import (
    Call,
    Case,
    cases,
    right,
    tensor,
    wrong_dtypes,
    wrong_shapes,
    wrong_strides,
)

PLAIN: Call = {"eps": 1e-6, "scoring": "sqrt_softplus", "renormalise": True}
"""Arguments that no contract speaks of, and that have no default."""
MODES = {*PLAIN, "splits", "kind"}
EVERY = pytest.mark.parametrize("case", list(cases()), ids=str)


def launcher(case: Case) -> Callable[..., Any]:
    found = (importlib.import_module(f"kernels.{folder}.triton_impl") for folder in FOLDERS)
    return next(getattr(m, case.launcher) for m in found if hasattr(m, case.launcher))


def refused(case: Case, given: Call) -> str:
    """The line with which the launcher refuses; anything else that it does fails the test."""
    launch = launcher(case)
    plain = {n: v for n, v in PLAIN.items() if n in inspect.signature(launch).parameters}
    with pytest.raises(ContractError) as caught:
        launch(**given, **plain)
    text = str(caught.value)
    assert text.startswith(f"{case.launcher}: ")
    assert "\n" not in text
    return text


def other_choice(case: Case, arg: Arg, dtype: torch.dtype) -> bool:
    """Whether another contract of the same launcher wants this argument in that dtype."""
    choice = contracts()[case.launcher]
    if not isinstance(choice, ContractChoice) or arg.name != choice.by:
        return False
    return str(dtype).removeprefix("torch.") in choice.contracts


@EVERY
def test_a_right_call_passes(case: Case) -> None:
    sizes = case.contract.check(**right(case))
    assert {name: case.sizes[name] for name in sizes} == dict(sizes)


@EVERY
def test_the_contract_speaks_of_every_argument(case: Case) -> None:
    named = {arg.name for arg in case.contract.args} | set(case.contract.sizes)
    taken = set(inspect.signature(launcher(case)).parameters) - MODES
    assert named <= taken
    others = [c.contract.args for c in cases() if c.launcher == case.launcher]
    assert taken == set(case.contract.sizes) | {arg.name for args in others for arg in args}


@EVERY
def test_every_wrong_dtype(case: Case) -> None:
    seen = set()
    for arg, dtype in wrong_dtypes(case):
        text = refused(case, right(case) | {arg.name: tensor(case, arg, dtype)})
        seen.add(arg.name)
        if not other_choice(case, arg, dtype):  # else the contract of that dtype is asked
            assert arg.name in text
            assert str(dtype).removeprefix("torch.") in text
    assert seen == {arg.name for arg in case.contract.args}


@EVERY
def test_every_wrong_shape(case: Case) -> None:
    seen = set()
    for arg, shape in wrong_shapes(case):
        dtype = getattr(torch, arg.dtypes[0])
        text = refused(case, right(case) | {arg.name: torch.zeros(shape, dtype=dtype)})
        assert "must have" in text
        seen.add(arg.name)
    assert seen == {arg.name for arg in case.contract.args}


@EVERY
def test_every_wrong_stride(case: Case) -> None:
    for arg, spread in wrong_strides(case):
        text = refused(case, right(case) | {arg.name: spread})
        assert text.startswith(f"{case.launcher}: {arg.name} has strides ")


@EVERY
def test_every_missing_argument_and_every_wrong_device(case: Case) -> None:
    for arg in case.contract.args:
        if not arg.optional:
            text = refused(case, right(case) | {arg.name: None})
            assert f"{arg.name} is missing" in text
        text = refused(case, right(case) | {arg.name: tensor(case, arg).to("meta")})
        assert "move it" in text
        text = refused(case, right(case) | {arg.name: [0]})
        assert arg.name in text


@EVERY
def test_every_missing_number(case: Case) -> None:
    for name in case.contract.sizes:
        assert f"{name} is 0" in refused(case, right(case) | {name: 0})


def test_every_demand_on_several_arguments() -> None:
    by_name = {str(case): case for case in cases()}

    def told(name: str, **changes: Any) -> str:
        return refused(by_name[name], right(by_name[name]) | changes)

    assert "multiple of the 4 KV heads" in told(
        "paged_decode", cache=torch.zeros(32, 2, 4, 64, dtype=torch.bfloat16)
    )
    assert "must be whole blocks of block_size 16" in told(
        "paged_prefill", cache=torch.zeros(33, 2, 2, 64, dtype=torch.bfloat16)
    )
    assert "come together" in told("router", input_tokens=None)
    assert "come together" in told("router", hash_indices_table=None)
    assert "at most the 1 experts" in told("router", logits=torch.zeros(3, 1, dtype=torch.bfloat16))
    assert "x has 4 rows" in told("grouped_matmul", x=torch.zeros(4, 33, dtype=torch.bfloat16))
    many = torch.zeros(17, 96, dtype=torch.bfloat16)
    assert "x has 17 rows" in told("quantised_linear int8", x=many, out=None)


def test_every_launcher_has_a_contract_and_every_folder_is_known() -> None:
    assert list(contracts()) == [
        *("rms_norm", "add_rms_norm", "rope_and_cache", "paged_decode", "paged_prefill"),
        *("silu_and_mul", "quantised_linear", "router", "grouped_matmul", "sample"),
    ]
