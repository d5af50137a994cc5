"""What the contract lab found: computed by `app.contract_lab`, drawn by `app.panels.kernels`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Element:
    """One element as its reader sees it.

    first, last: the bytes of the buffer that it covers, last excluded; they may lie past its end.
    meant: what stands there for whoever reads with the right dtype. seen: what this reader gets;
    None: it is past the end, or was never written, and may be anything.
    """

    index: int
    first: int
    last: int
    meant: int
    seen: int | None


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of the router, as it was given.

    given: the dtype of the tensor. pointer: the dtype that the kernel takes it for. like: the
    argument whose dtype decides that; empty: always the same. data: the buffer. elements: as the
    reader sees them, who is the kernel, or for what the kernel writes the caller.
    """

    name: str
    given: str
    pointer: str
    like: str
    written: bool
    shape: tuple[int, ...]
    data: bytes
    values: tuple[int, ...]
    elements: tuple[Element, ...]

    @property
    def wrong(self) -> bool:
        return self.given != self.pointer

    @property
    def writer(self) -> str:
        """The dtype in which the bytes were laid down."""
        return self.pointer if self.written else self.given

    @property
    def reader(self) -> str:
        """The dtype in which they are taken up."""
        return self.given if self.written else self.pointer


@dataclass(frozen=True, slots=True)
class Route:
    """Hash routing of one token, as meant and as a kernel without a contract does it.

    token: what it reads as the token; None: past the end of input_tokens. offset: of the table's
    row, bytes from its start. experts: what it reads there; None: outside the table.
    """

    meant_token: int
    meant_experts: tuple[int, ...]
    token: int | None
    offset: int | None
    experts: tuple[int, ...] | None

    @property
    def right(self) -> bool:
        return self.token == self.meant_token and self.experts == self.meant_experts


@dataclass(frozen=True, slots=True)
class Attempt:
    """Something that was tried: the dtypes that it leads to, and the contract's word on them."""

    what: str
    why: str
    dtypes: tuple[str, ...]
    message: str
    fused: bool = True


@dataclass(frozen=True, slots=True)
class Lab:
    """All of it. message: the contract's line; empty: it passes. passing: combinations that do.
    by_ops: experts of each token as torch's own ops look them up, one after another."""

    slots: tuple[Slot, ...]
    message: str
    routes: tuple[Route, ...]
    experts: int
    table_bytes: int
    attempts: tuple[Attempt, ...]
    combinations: int
    passing: int
    by_ops: tuple[tuple[int, ...], ...]

    def slot(self, name: str) -> Slot:
        return next(slot for slot in self.slots if slot.name == name)
