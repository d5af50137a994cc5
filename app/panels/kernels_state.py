"""The state of the contract lab: the dtypes of the router's four integers, as an address."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from app.panels.view import Params
from engine.errors import UserError, unknown

ARGUMENTS = ("topk_indices", "input_tokens", "hash_indices_table", "token_expert_indices")
DTYPES = ("int64", "int32")


@dataclass(frozen=True, slots=True)
class State:
    """As the router crashed: int64 routing, int32 metadata.

    show: the argument whose bytes are drawn; empty: the first that is read wrongly. element: whose
    read is outlined.
    """

    topk_indices: str = "int64"
    input_tokens: str = "int32"
    hash_indices_table: str = "int32"
    token_expert_indices: str = "int32"
    show: str = ""
    element: int = 0

    @property
    def dtypes(self) -> dict[str, str]:
        """By argument."""
        return {name: str(getattr(self, name)) for name in ARGUMENTS}


def option(field: str) -> str:
    """The name of a field in an address."""
    return field.replace("_", "-")


DEFAULTS: dict[str, str] = {option(f.name): str(f.default) for f in fields(State)}
ALWAYS = tuple(option(name) for name in ARGUMENTS)
"""What an address says even where it is the default."""


def parse(params: Params) -> State:
    """The state of an address; UserError names the option, what it was, and what is allowed."""
    given = {f.name: params[option(f.name)] for f in fields(State) if option(f.name) in params}
    for name, value in given.items():
        if name in ARGUMENTS and value not in DTYPES:
            raise unknown(f"dtype of {name}", value, DTYPES)
    if given.get("show") and given["show"] not in ARGUMENTS:
        raise unknown("argument", given["show"], ARGUMENTS)
    values: dict[str, Any] = {**given, "element": _element(given.get("element", "0"))}
    return State(**values)


def _element(text: str) -> int:
    if not text.isdecimal():
        raise UserError(f"element is {text!r}: use a whole number from 0")
    return min(int(text), 10_000)


def change(state: State, **choices: Any) -> str:
    """What a button sets, as a query string: the choices, and those that hang on them."""
    made = asdict(replace(state, **choices))
    return urlencode({option(name): made[name] for name in choices})
