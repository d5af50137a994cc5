"""The ops that have Triton kernels, and what each folder says about them. All of it lazily: naming
the ops imports neither torch nor triton."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernels.contract import Contract, ContractChoice

if TYPE_CHECKING:
    from kernels.checking.aot_spec import AotSpec
    from kernels.checking.case import Case

FOLDERS = (
    "rms_norm",
    "rope",
    "attention",
    "silu_and_mul",
    "quantised_linear",
    "moe",
    "sampling",
)


def contracts(folders: Sequence[str] = FOLDERS) -> dict[str, Contract | ContractChoice]:
    """Contracts by launcher name, in the order of the folders."""
    found: dict[str, Contract | ContractChoice] = {}
    for folder in folders:
        declared: Mapping[str, Contract | ContractChoice] = _part(folder, "contract").CONTRACTS
        found.update(declared)
    return found


def cases(folders: Sequence[str] = FOLDERS) -> list[Case]:
    """What `stepscope kernels check` runs. Imports torch."""
    return [case for folder in folders for case in _part(folder, "cases").cases()]


def specs(folders: Sequence[str] = FOLDERS) -> list[AotSpec]:
    """What `stepscope kernels aot` compiles. No triton before a function of theirs is asked."""
    return [spec for folder in folders for spec in _part(folder, "aot").specs()]


def _part(folder: str, part: str) -> Any:
    return import_module(f"kernels.{folder}.{part}")
