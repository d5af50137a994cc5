"""The contract lab: the router's four integer arguments in any dtypes, and what comes of it.

The buffers are real (numpy), the contract is the router's own, asked with descriptions of tensors,
since the server has no torch. What a kernel without a contract reads follows from the bytes: it
takes each buffer for the dtype that its pointer was compiled for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from app.panels import kernels
from app.panels.kernels_facts import Attempt, Element, Lab, Route, Slot
from app.panels.kernels_state import ARGUMENTS, DTYPES, parse
from app.panels.view import Params, View
from app.theme import Theme
from engine.errors import UserError
from kernels.contract import ContractError, TensorInfo
from kernels.moe.contract import CONTRACTS

TOKENS = (5, 2, 3, 0)
TABLE = ((3, 5), (1, 7), (6, 2), (0, 4), (5, 1), (2, 6))
"""The experts of each token of a vocabulary of six, as hash routing has them (DeepSeek V4)."""
EXPERTS, K = 8, 2
ROUTER = CONTRACTS["router"]

Integers = NDArray[np.int64]
_SLOTS = np.arange(len(TOKENS) * K).reshape(K, len(TOKENS)).T
_EXPERTS = np.array([TABLE[token] for token in TOKENS])
_MEANT: dict[str, Integers] = {
    "topk_indices": _EXPERTS,
    "input_tokens": np.array(TOKENS),
    "hash_indices_table": np.array(TABLE),
    "token_expert_indices": _SLOTS,
}


def panels(params: Params, look: Theme, /) -> View:
    """The still view `kernels`; what cannot be is told in one line."""
    try:
        state = parse(params)
    except UserError as error:
        return kernels.refused(str(error))
    return kernels.view(lab(state.dtypes), state)


def lab(dtypes: dict[str, str]) -> Lab:
    """What comes of these dtypes, by argument."""
    tokens, table = (_slot(name, dtypes) for name in ("input_tokens", "hash_indices_table"))
    routes = tuple(_route(element, table) for element in tokens.elements)
    slots = (_indices(routes, dtypes), tokens, table, _slot("token_expert_indices", dtypes))
    every = [dict(zip(ARGUMENTS, pick, strict=True)) for pick in product(DTYPES, repeat=4)]
    return Lab(
        slots=slots,
        message=message(dtypes),
        routes=routes,
        experts=EXPERTS,
        table_bytes=len(table.data),
        attempts=_attempts(),
        combinations=len(every),
        passing=sum(not message(pick) for pick in every),
        by_ops=_by_ops(dtypes),
    )


def message(dtypes: dict[str, str]) -> str:
    """What the router's contract says of these dtypes; empty when it passes."""
    given = {name: TensorInfo(dtypes[name], _MEANT[name].shape) for name in ARGUMENTS}
    logits = TensorInfo("float32", (len(TOKENS), EXPERTS))
    try:
        ROUTER.check(logits=logits, k=K, **given)
    except ContractError as error:
        return str(error)
    return ""


# --- bytes ---


def _slot(name: str, dtypes: dict[str, str]) -> Slot:
    arg = ROUTER.arg(name)
    pointer = dtypes[arg.same_as] if arg.same_as else _fixed(name, dtypes)
    data = _buffer(name, dtypes[name], pointer if arg.written else dtypes[name])
    reader = dtypes[name] if arg.written else pointer
    meant = _MEANT[name].ravel()
    return Slot(
        name=name,
        given=dtypes[name],
        pointer=pointer,
        like=arg.same_as or "",
        written=arg.written,
        shape=_MEANT[name].shape,
        data=data,
        values=tuple(int(value) for value in meant),
        elements=_elements(meant, data, reader),
    )


def _fixed(name: str, dtypes: dict[str, str]) -> str:
    """Of an argument that must match none: as given where that is allowed, else what is."""
    allowed = ROUTER.arg(name).dtypes
    return dtypes[name] if dtypes[name] in allowed else allowed[0]


def _buffer(name: str, dtype: str, writer: str) -> bytes:
    """The memory of a tensor of that dtype; its values were laid down by someone who took it for
    `writer`. What nobody wrote is zero, as in a fresh allocation here; on a GPU it is anything."""
    whole = np.zeros(_MEANT[name].size, dtype)
    laid = _MEANT[name].astype(writer).tobytes()[: whole.nbytes]
    return laid + whole.tobytes()[len(laid) :]


def _elements(meant: Integers, data: bytes, reader: str) -> tuple[Element, ...]:
    size = np.dtype(reader).itemsize
    found = [read(data, i * size, reader) for i in range(len(meant))]
    return tuple(
        Element(i, i * size, (i + 1) * size, int(meant[i]), seen) for i, seen in enumerate(found)
    )


def read(data: bytes, offset: int, dtype: str) -> int | None:
    """One number at a byte of the buffer; None where it reaches past the end."""
    size = np.dtype(dtype).itemsize
    if not 0 <= offset <= len(data) - size:
        return None
    return int(np.frombuffer(data, dtype, count=1, offset=offset)[0])


# --- routing ---


def _route(token: Element, table: Slot) -> Route:
    size = np.dtype(table.pointer).itemsize
    meant = TABLE[token.meant]
    if token.seen is None:
        return Route(token.meant, meant, None, None, None)
    offset = token.seen * K * size
    found = [read(table.data, offset + i * size, table.pointer) for i in range(K)]
    known = tuple(expert for expert in found if expert is not None)
    return Route(token.meant, meant, token.seen, offset, known if len(known) == K else None)


def _indices(routes: tuple[Route, ...], dtypes: dict[str, str]) -> Slot:
    """topk_indices with what the kernel writes there; the experts of a row that it could not find
    are never written."""
    slot = _slot("topk_indices", dtypes)
    rows = [route.experts or (None,) * K for route in routes]
    found = [expert for row in rows for expert in row]
    elements = tuple(replace(e, seen=seen) for e, seen in zip(slot.elements, found, strict=True))
    written = np.array([expert or 0 for expert in found]).astype(slot.given)
    return replace(slot, data=written.tobytes(), elements=elements)


def _by_ops(dtypes: dict[str, str]) -> tuple[tuple[int, ...], ...]:
    """Without the fused router each op takes the dtype from the tensor that it is handed."""
    table = np.array(TABLE, dtypes["hash_indices_table"])
    chosen = table[np.array(TOKENS, dtypes["input_tokens"])].astype(dtypes["topk_indices"])
    return tuple(tuple(int(expert) for expert in row) for row in chosen)


# --- what was tried ---

_CRASHED = ("int64", "int32", "int32", "int32")
_FIXED = ("int64", "int64", "int64", "int32")
_SAME = "the launch has the same four arguments"
_TRIED = (
    ("As it crashed", "expert parallelism's all-to-all asks for int64 indices", _CRASHED, True),
    ("Eager, no CUDA graphs", f"nothing is recorded, but {_SAME}", _CRASHED, True),
    ("torch.compile off", f"nothing is generated, but {_SAME}", _CRASHED, True),
    ("Cast all to int64", "the error moves: one slot is int32, always", ("int64",) * 4, True),
    ("Cast the hash pair to topk_indices.dtype", "each slot gets its own", _FIXED, True),
    ("Tensor parallel, op by op", "no all-to-all, no fused router", ("int32",) * 4, False),
)
"""What, why it does or does not help, the dtypes that it leads to, whether the router is fused."""


def _attempts() -> tuple[Attempt, ...]:
    return tuple(
        Attempt(what, why, dtypes, message(dict(zip(ARGUMENTS, dtypes, strict=True))), fused)
        for what, why, dtypes, fused in _TRIED
    )
