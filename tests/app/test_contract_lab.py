"""The contract lab against torch and struct: what the bytes say, and what the page says of them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import product
from urllib.parse import parse_qsl

import pytest
import torch

from app import contract_lab
from app.contract_lab import EXPERTS, TABLE, TOKENS, lab
from app.panels import kernels, kernels_bytes
from app.panels.kernels_facts import Lab, Slot
from app.panels.kernels_stack import LAYERS
from app.panels.kernels_state import ALWAYS, ARGUMENTS, DEFAULTS, DTYPES, State, parse
from app.panels.view import View
from app.theme import LIGHT
from engine.errors import UserError
from kernels.contract import ContractError
from kernels.moe.contract import CONTRACTS

CRASHED = ("int64", "int32", "int32", "int32")
FIXED = ("int64", "int64", "int64", "int32")
SILENT = ("int32", "int64", "int64", "int32")
COMBINATIONS = list(product(DTYPES, repeat=4))
TYPES = {"int64": torch.int64, "int32": torch.int32}
VALUES = {
    "topk_indices": [[TABLE[token][slot] for slot in range(2)] for token in TOKENS],
    "input_tokens": list(TOKENS),
    "hash_indices_table": [list(row) for row in TABLE],
    "token_expert_indices": [[slot * 4 + row for slot in range(2)] for row in range(4)],
}


def of(dtypes: tuple[str, ...]) -> Lab:
    return lab(dict(zip(ARGUMENTS, dtypes, strict=True)))


def shown(**params: str) -> View:
    return contract_lab.panels({k.replace("_", "-"): v for k, v in params.items()}, LIGHT)


def seen(slot: Slot) -> list[int | None]:
    return [element.seen for element in slot.elements]


# --- the bytes ---


def test_int32_tokens_read_as_int64_are_two_in_one_and_then_none() -> None:
    slot = of(CRASHED).slot("input_tokens")
    assert slot.data == struct.pack("<4i", *TOKENS)
    viewed = torch.tensor(TOKENS, dtype=torch.int32).view(torch.int64).tolist()
    assert seen(slot) == [*viewed, None, None]
    assert viewed[0] == 5 + (2 << 32)
    assert [(e.first, e.last) for e in slot.elements] == [(0, 8), (8, 16), (16, 24), (24, 32)]


@pytest.mark.parametrize("dtypes", COMBINATIONS, ids="-".join)
def test_every_buffer_is_what_torch_would_view_it_as(dtypes: tuple[str, ...]) -> None:
    found = of(dtypes)
    for slot, given in zip(found.slots, dtypes, strict=True):
        if slot.name == "topk_indices":
            continue  # holds what the kernel found, which the routes are held against
        meant = torch.tensor(VALUES[slot.name]).ravel()
        memory = torch.zeros(len(meant), dtype=TYPES[given])
        writer = memory.view(TYPES[slot.writer])
        writer[: len(meant)] = meant[: len(writer)].to(writer.dtype)
        assert slot.data == memory.numpy().tobytes()
        read = memory.view(TYPES[slot.reader]).tolist()[: len(meant)]
        assert seen(slot) == read + [None] * (len(meant) - len(read))
        assert slot.wrong == (seen(slot) != meant.tolist())


@pytest.mark.parametrize("dtypes", COMBINATIONS, ids="-".join)
def test_the_contract_says_what_it_says_of_real_tensors(dtypes: tuple[str, ...]) -> None:
    given = {
        name: torch.tensor(VALUES[name], dtype=TYPES[dtype])
        for name, dtype in zip(ARGUMENTS, dtypes, strict=True)
    }
    found = of(dtypes)
    assert found.message == _said(given)
    # Independently: the hash pair follows topk_indices, the fourth never does.
    assert (found.message == "") == (dtypes[0] == dtypes[1] == dtypes[2] and dtypes[3] == "int32")


def _said(given: dict[str, torch.Tensor]) -> str:
    try:
        CONTRACTS["router"].check(logits=torch.zeros(4, EXPERTS), k=2, **given)
    except ContractError as error:
        return str(error)
    return ""


def test_two_of_sixteen_pass_and_casting_all_to_int64_moves_the_error() -> None:
    found = of(CRASHED)
    assert (found.combinations, found.passing) == (16, 2)
    before, after = found.message, of(("int64",) * 4).message
    assert before.startswith("router: input_tokens is int32, must be int64 like topk_indices")
    assert after.startswith("router: token_expert_indices is int64, must be int32")
    moved = of(("int64",) * 4).slot("token_expert_indices")
    assert seen(moved)[:4] == [0 + (4 << 32), 1 + (5 << 32), 2 + (6 << 32), 3 + (7 << 32)]
    assert seen(moved)[4:] == [0] * 4  # never written


# --- the routes ---


def test_a_token_of_eight_bytes_leads_far_out_of_the_table() -> None:
    first, second, third, _ = of(CRASHED).routes
    assert first.token == 5 + (2 << 32)
    assert first.offset == first.token * 2 * 8
    assert first.experts is None
    assert (second.token, second.offset, second.experts) == (3, 48, None)  # 48 B: just outside
    assert (third.token, third.offset) == (None, None)


def test_int64_read_as_int32_gives_wrong_experts_that_look_right() -> None:
    routes = of(SILENT).routes
    assert [route.token for route in routes] == [5, 0, 2, 0]
    assert routes[0].experts == (2, 0)  # bytes 40 to 47 are one number, 2: its two halves
    assert all(0 <= expert < EXPERTS for route in routes for expert in route.experts or ())
    assert not any(route.right for route in routes)
    assert seen(of(SILENT).slot("topk_indices"))[:2] == [2, 0]


@pytest.mark.parametrize("dtypes", COMBINATIONS, ids="-".join)
def test_torchs_own_ops_find_the_right_experts_in_any_dtypes(dtypes: tuple[str, ...]) -> None:
    table = torch.tensor(TABLE, dtype=TYPES[dtypes[2]])
    chosen = table[torch.tensor(TOKENS, dtype=TYPES[dtypes[1]])]
    assert [list(row) for row in of(dtypes).by_ops] == chosen.tolist() == VALUES["topk_indices"]
    right = [route.right for route in of(dtypes).routes]
    assert all(right) == (dtypes[0] == dtypes[1] == dtypes[2])


# --- what was tried ---


def test_what_was_tried_is_judged_by_the_contract() -> None:
    said = {attempt.what: attempt.message for attempt in of(CRASHED).attempts}
    crash = said["As it crashed"]
    assert crash
    assert said["Eager, no CUDA graphs"] == said["torch.compile off"] == crash
    assert said["Cast all to int64"] not in ("", crash)
    assert said["Cast the hash pair to topk_indices.dtype"] == ""
    assert said["Tensor parallel, op by op"] == ""


# --- the page ---


def test_the_page_starts_as_the_router_crashed() -> None:
    view = shown()
    assert view.html["headline"].startswith("<b>Stopped before the launch.</b>")
    assert "past the end of its buffers" in view.html["headline"]
    assert "input_tokens is int32, must be int64 like topk_indices" in view.html["message"]
    assert "reported as “expected scalar type Long but found Int”" in view.html["slots"]
    assert "137 GB" in view.html["routes"]
    assert "8,589,934,597" in view.html["elements"]


def test_one_read_of_eight_bytes_is_outlined_over_two_cells_of_four() -> None:
    cells = shown(element="1").html["bytes"]
    outline = re.findall(r'class="kn-outline" style="grid-area:1/(\d+)/4/(\d+)"', cells)
    assert outline == [("10", "18")]  # the ways stand in column 1, byte 8 in column 10
    written = re.findall(r'class="kn-written" style="grid-area:1/(\d+)/2/(\d+)">(\d+)<', cells)
    assert [w for w in written if 10 <= int(w[0]) < 18] == [("10", "14", "3"), ("14", "18", "0")]
    assert cells.count("kn-past") == 16
    assert cells.count("past the end</button>") == 2


def test_a_table_that_is_read_past_its_end_takes_three_lines() -> None:
    view = shown(show="hash_indices_table", element="11")
    assert view.html["bytes"].count('class="kn-line"') == 3
    assert view.html["bytes"].count("kn-past") == 48
    assert view.html["bytes"].count("kn-outline") == 1


def test_what_passes_says_so() -> None:
    fixed = {"input_tokens": "int64", "hash_indices_table": "int64"}
    view = shown(**fixed)
    assert view.html["headline"].startswith("<b>The contract passes.</b>")
    assert "kn-bad" not in view.html["slots"] + view.html["elements"] + view.html["routes"]
    assert "kn-wrong" not in view.html["bytes"]
    wrong = shown(**fixed, token_expert_indices="int64")
    assert "two numbers where its caller reads one" in wrong.html["headline"]
    silent = shown(topk_indices="int32", **fixed)
    assert "wrong experts, and nothing tells" in silent.html["headline"]


def buttons(view: View) -> Iterator[dict[str, str]]:
    for text in re.findall(r'data-set="([^"]*)"', "".join(view.html.values())):
        yield dict(parse_qsl(text.replace("&amp;", "&"), keep_blank_values=True))


@pytest.mark.parametrize("dtypes", [CRASHED, FIXED, SILENT, ("int64",) * 4], ids="-".join)
def test_every_button_leads_to_a_page(dtypes: tuple[str, ...]) -> None:
    given = dict(zip(ALWAYS, dtypes, strict=True))
    found = list(buttons(contract_lab.panels(given, LIGHT)))
    assert len(found) > 20
    for choices in found:
        assert set(choices) <= set(DEFAULTS)
        assert "message" in contract_lab.panels(given | choices, LIGHT).html


def test_presets_are_whole_states() -> None:
    for preset in kernels.PRESETS:
        assert set(preset["set"]) == set(DEFAULTS)
        assert parse(preset["set"]).show == ""
    assert parse(kernels.PRESETS[0]["set"]) == State()


def test_what_cannot_be_is_one_line() -> None:
    assert "use one of int32, int64" in shown(input_tokens="float32").html["headline"]
    assert "unknown argument" in shown(show="<b>").html["headline"]
    assert "&lt;b&gt;" in shown(show="<b>").html["headline"]
    with pytest.raises(UserError, match="whole number"):
        parse({"element": "-1"})
    last = shown(element="99")
    assert kernels_bytes.outlined(of(CRASHED).slot("input_tokens"), State(element=99)).index == 3
    assert last.html["bytes"].count("kn-outline") == 1


def test_one_layer_of_the_stack_can_catch_it() -> None:
    assert [layer.name for layer in LAYERS if layer.catches] == ["Kernels"]
    assert shown().html["stack"].count("<tr") == len(LAYERS) + 1
