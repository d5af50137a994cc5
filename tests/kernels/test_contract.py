"""A contract accepts what fits, and says in one line what does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernels.contract import Arg, Contract, ContractChoice, ContractError, Rule, TensorInfo
from kernels.contract_shapes import size_of, solve, terms
from kernels.registry import contracts

FLOATS = ("float32", "bfloat16")
NORM = Contract(
    "norm",
    (
        Arg("x", FLOATS, ("rows", "dim")),
        Arg("weight", FLOATS, ("dim",), same_as="x"),
        Arg("out", FLOATS, ("rows", "dim"), same_as="x", optional=True, written=True),
    ),
)


def said(contract: Contract | ContractChoice, **given: object) -> str:
    with pytest.raises(ContractError) as caught:
        contract.check(**given)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


# --- dimensions ---


def test_dimensions_are_sums_of_products() -> None:
    sizes = {"heads": 6, "kv_heads": 2, "k": 96, "rows": 3}
    assert size_of("heads + 2*kv_heads", sizes) == 10
    assert size_of("k/32", sizes) == 3
    assert size_of("rows*k", sizes) == 288
    assert size_of("rows + 1", sizes) == 4
    assert size_of(2, {}) == 2
    assert size_of("k/36", sizes) is None  # no whole number
    assert size_of("unknown", sizes) is None


def test_the_one_unknown_name_is_solved_for() -> None:
    assert solve("2*dim", 64, {}) == ("dim", 32)
    assert solve("2*dim", 65, {}) is None
    assert solve("heads + 2*kv_heads", 10, {"heads": 6}) == ("kv_heads", 2)
    assert solve("heads + 2*kv_heads", 4, {"heads": 6}) is None  # would be negative
    assert solve("rows*k", 12, {}) is None  # two unknown
    assert solve("seqs + 1", 6, {}) == ("seqs", 5)


@pytest.mark.parametrize("text", ["a - b", "2 dim", "a*(b)", ""])
def test_other_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no product"):
        terms(text)


# --- what fits ---


def test_a_check_returns_the_sizes() -> None:
    x, weight = torch.zeros(3, 65), torch.zeros(65)
    assert NORM.check(x=x, weight=weight) == {"rows": 3, "dim": 65}
    assert NORM.check(x=x, weight=weight, out=None) == {"rows": 3, "dim": 65}
    assert NORM.check(x=x[:0], weight=weight) == {"rows": 0, "dim": 65}


def test_sizes_cannot_be_changed_by_a_caller() -> None:
    sizes = NORM.check(x=torch.zeros(3, 4), weight=torch.zeros(4))
    with pytest.raises(TypeError):
        sizes["rows"] = 9  # type: ignore[index]


def test_what_passed_once_is_remembered_and_what_failed_is_not() -> None:
    contract = Contract("norm", NORM.args)
    x, weight = torch.zeros(3, 4), torch.zeros(4)
    assert contract.check(x=x, weight=weight) is contract.check(x=x + 1, weight=weight)
    for _ in range(2):
        said(contract, x=x, weight=weight.bfloat16())
    # The same tensors in each other's place, and one fewer, are other calls.
    said(contract, x=weight, weight=x)
    said(contract, weight=weight)
    assert len(contract._passed) == 1


def test_memory_of_what_passed_does_not_grow_without_end() -> None:
    contract = Contract("norm", NORM.args)
    for rows in range(5000):
        contract.check(x=TensorInfo("float32", (rows, 4)), weight=TensorInfo("float32", (4,)))
    assert len(contract._passed) <= 4096


def test_strides_of_a_dimension_of_one_do_not_matter() -> None:
    x = torch.zeros(8, 4)[::8]
    assert x.stride() == (32, 1)
    assert NORM.check(x=x, weight=torch.zeros(4))["rows"] == 1


def test_rows_may_be_apart_where_the_layout_says_rows() -> None:
    contract = Contract("q", (Arg("q", FLOATS, ("rows", "heads", "dim"), layout="rows"),))
    fused = torch.zeros(3, 10, 8)
    assert contract.check(q=fused[:, :6])["heads"] == 6
    message = said(contract, q=fused.transpose(1, 2))
    assert "must be adjacent along the last dimension" in message


# --- what does not ---


def test_each_message_names_op_argument_found_expected_and_whom_it_must_match() -> None:
    x, weight = torch.zeros(3, 65), torch.zeros(65)
    assert said(NORM, x=x, weight=weight.bfloat16()) == (
        "norm: weight is bfloat16, must be float32 like x: convert it in the caller"
    )
    assert said(NORM, x=x.int(), weight=weight) == (
        "norm: x is int32, must be float32 or bfloat16: convert it in the caller"
    )
    assert said(NORM, x=x, weight=weight[1:]) == (
        "norm: weight has shape [64], must have [dim] = [65] (dim is 65 by x): make them agree"
    )
    assert said(NORM, x=x, weight=weight[None]) == (
        "norm: weight has shape [1, 65], must have [dim]: reshape it"
    )
    assert said(NORM, x=torch.zeros(65, 3).t(), weight=weight) == (
        "norm: x has strides [1, 3] for shape [3, 65], must be contiguous, strides [65, 1]: "
        "call .contiguous() where it is made"
    )
    assert said(NORM, x=x, weight=None) == (
        "norm: weight is missing, must be a tensor of float32 or bfloat16, shape [dim]: pass it"
    )
    assert said(NORM, x=x, weight=weight, out=x.bfloat16()) == (
        "norm: out is bfloat16, must be float32 like x: "
        "the kernel writes into it, so allocate it so"
    )
    assert said(NORM, x=x, weight=weight.to("meta")) == (
        "norm: weight is on meta, must be on cpu like x: move it"
    )
    assert said(NORM, x=[1.0], weight=weight).startswith("norm: x is of type list, must be a")
    assert said(NORM, x=x, weigth=weight) == (
        "norm: takes no weigth; its arguments are x, weight, out"
    )


def test_an_output_that_is_not_given_counts_as_it_will_be_allocated() -> None:
    args = (
        Arg("indices", ("int64", "int32"), ("rows",), optional=True, written=True),
        Arg("tokens", ("int64", "int32"), ("rows",), same_as="indices"),
    )
    contract = Contract("route", args)
    int32 = torch.zeros(3, dtype=torch.int32)
    assert said(contract, tokens=int32) == (
        "route: tokens is int32, must be int64 like indices, allocated as int64 when not given: "
        "convert it in the caller"
    )
    assert contract.check(tokens=int32, indices=int32)["rows"] == 3


def test_plain_numbers_are_sizes() -> None:
    args = (Arg("qkv", FLOATS, ("rows", "heads + 2*kv_heads")),)
    even = Rule(
        "{heads} heads, must be a multiple of {kv_heads}: check",
        lambda s, g: s["heads"] % s["kv_heads"] == 0,
    )
    contract = Contract("rope", args, sizes=("heads",), rules=(even,))
    qkv = torch.zeros(3, 10)
    assert contract.check(qkv=qkv, heads=6)["kv_heads"] == 2
    assert said(contract, qkv=qkv, heads=4) == "rope: 4 heads, must be a multiple of 3: check"
    assert said(contract, qkv=qkv, heads=12).startswith("rope: qkv has shape [3, 10], must have")
    for value in (None, 0, True, 2.0):
        assert "heads is" in said(contract, qkv=qkv, heads=value)


def test_a_choice_asks_the_contract_of_the_deciding_dtype() -> None:
    choice = contracts()["quantised_linear"]
    assert isinstance(choice, ContractChoice)
    x, scales = torch.zeros(3, 64), torch.zeros(8)
    int8 = torch.zeros(8, 64, dtype=torch.int8)
    assert choice.check(x=x, weight=int8, scales=scales)["n"] == 8
    int4 = torch.zeros(8, 32, dtype=torch.uint8)
    groups = torch.zeros(8, 2)
    assert choice.check(x=x, weight=int4, scales=groups, minimums=groups)["k"] == 64
    assert said(choice, x=x, weight=int4, scales=groups).startswith(
        "quantised_linear: minimums is missing"
    )
    assert said(choice, x=x, weight=x, scales=scales) == (
        "quantised_linear: weight is float32, must be int8 or uint8: pass such a one"
    )
    assert "weight is missing" in said(choice, x=x, scales=scales)


# --- descriptions instead of tensors ---


def test_a_description_is_checked_like_the_tensor_that_it_describes() -> None:
    router = contracts()["router"]
    for dtypes in [("int64", "int32"), ("int32", "int32"), ("int64", "int64"), ("int32", "int64")]:
        shapes = {"logits": (4, 8), "topk_indices": (4, 2), "hash_indices_table": (9, 2)}
        named = ("float32", dtypes[0], dtypes[1])
        infos = {n: TensorInfo(d, s) for (n, s), d in zip(shapes.items(), named, strict=True)}
        infos["input_tokens"] = TensorInfo(dtypes[1], (4,))
        real = {n: torch.zeros(i.shape, dtype=getattr(torch, i.dtype)) for n, i in infos.items()}
        assert _outcome(router, infos) == _outcome(router, real)


def _outcome(contract: Contract | ContractChoice, given: dict[str, object]) -> object:
    try:
        return dict(contract.check(**given, k=2))  # type: ignore[arg-type]
    except ContractError as error:
        return str(error)


def test_the_docs_quote_what_contracts_say() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "kernels.md").read_text()
    x, weight = torch.zeros(3, 65), torch.zeros(64)
    assert said(contracts()["rms_norm"], x=x, weight=weight) in page
    long, int32 = torch.zeros(4, 2).long(), torch.zeros(4, dtype=torch.int32)
    router = {"logits": torch.zeros(4, 8), "topk_indices": long, "hash_indices_table": long}
    assert said(contracts()["router"], **router, input_tokens=int32, k=2) in page


def test_contracts_load_without_torch_and_triton() -> None:
    code = (
        "import sys, kernels.contract, kernels.registry, kernels.moe.contract;"
        "sys.exit(bool({'torch', 'triton'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_contract_without_torch_knows_torchs_strides() -> None:
    for shape in [(), (3,), (3, 1), (2, 0, 4), (4, 3, 2)]:
        assert TensorInfo("float32", shape).stride() == torch.zeros(shape).stride()
