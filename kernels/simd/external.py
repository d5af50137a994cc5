"""Functions compiled once each, and called by their names from other compiled code.

numba puts the code of all that a function calls into the function's own module and compiles it
there again: microkernels six calls deep would be compiled six times, half a minute in all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from numba import cfunc, types


def external(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function of these types (or load it from the cache) and call it by address."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = cfunc(result(*arguments), nopython=True, cache=True, error_model="numpy")(
            function
        )
        name = f"stepscope.{function.__module__}.{function.__name__}"
        llvm.add_symbol(name, compiled.address)
        _KEPT.append(compiled)
        return types.ExternalFunction(name, result(*arguments))

    return decorate


def integers(count: int) -> Callable[[Callable[..., Any]], Any]:
    """As `external`, for `count` int64 arguments and no result."""
    return external(types.void, *[types.int64] * count)


_KEPT: list[Any] = []  # whose code must stay in memory
