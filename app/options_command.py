"""A command whose options are the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def options_command(
    name: str, about: str, options: type[T], run: Callable[[T], None]
) -> Callable[..., None]:
    """For typer: `about` is its help; each field of options, with its Annotated, an option."""

    def command(**given: Any) -> None:
        run(options(**given))

    fields = inspect.signature(options).parameters.values()
    hints = get_type_hints(options, include_extras=True)
    typed = [p.replace(annotation=hints[p.name]) for p in fields]
    vars(command)["__signature__"] = inspect.Signature(typed)
    command.__name__, command.__doc__, command.__annotations__ = name, about, hints
    return command
