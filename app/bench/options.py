"""What `stepscope bench` was asked for, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.bench.loads import LOADS
from engine.config import AUTO, DTYPES
from engine.errors import UserError, unknown
from engine.models.names import DEFAULT_MODEL
from engine.threads import available_cores, check_threads

SECTIONS = (
    *("decode", "prefill", "clients", "telemetry", "quality", "linears", "crossover"),
    *("startup", "memory"),
)
PEERS = ("transformers", "llama.cpp", "vllm")
PEER_DTYPES = ("bf16", "fp32")  # what every side has; int8 and int4 of ours have no equal there
PEER_SECTIONS = ("decode", "prefill", "clients")
REPEATS, QUICK_REPEATS = 5, 2
MAX_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """threads None: all cores. peers: a folder with one virtual environment for each peer.

    alone: whether parts that are compared with a peer are measured by themselves, too.
    """

    model: str = DEFAULT_MODEL
    dtypes: tuple[str, ...] = (AUTO,)
    against: tuple[str, ...] = ()
    peers: Path | None = None
    threads: int | None = None
    only: tuple[str, ...] = SECTIONS
    repeats: int = REPEATS
    loads: tuple[str, ...] = LOADS
    alone: bool = True

    def __post_init__(self) -> None:
        _all_known("dtype", self.dtypes, (AUTO, *DTYPES))
        _all_known("peer", self.against, PEERS)
        _all_known("part of the bench", self.only, SECTIONS)
        _all_known("client load", self.loads, LOADS)
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise UserError(f"repeats is {self.repeats}: use 1 to {MAX_REPEATS}")
        if self.threads is not None:
            check_threads(self.threads)
        if self.against:
            self._check_comparison()

    def _check_comparison(self) -> None:
        if not set(self.only) & set(PEER_SECTIONS):
            raise UserError(
                f"--only {','.join(self.only)} leaves nothing to compare: add one of "
                f"{', '.join(PEER_SECTIONS)}, or leave --against out"
            )
        if not set(self.dtypes) & {AUTO, *PEER_DTYPES}:
            raise UserError(
                f"{', '.join(self.dtypes)} has no equal in {', '.join(self.against)}: add "
                f"--dtype {' or --dtype '.join(PEER_DTYPES)}, or leave --against out"
            )

    @property
    def cores(self) -> int:
        """Threads to compute with."""
        return self.threads or available_cores()


def bench_options(
    dtype: list[str] | None,
    against: list[str] | None,
    peers: Path | None,
    model: str,
    threads: int | None,
    only: list[str] | None,
    repeats: int,
    quick: bool,
    out: Path | None,
    loads: list[str] | None = None,
    alone: bool = True,
) -> BenchOptions:
    """From the command line. Raises UserError."""
    if out is not None:
        _check_out(out)
    return BenchOptions(
        model=model,
        dtypes=_names(dtype) if dtype else (AUTO,),
        against=_names(against or []),
        peers=peers,
        threads=threads,
        only=_names(only) if only else SECTIONS,
        repeats=QUICK_REPEATS if quick else repeats,
        loads=_names(loads) if loads else LOADS,
        alone=alone,
    )


def _names(given: list[str]) -> tuple[str, ...]:
    """Each name once, in the order given; one option may hold several, with commas between."""
    parts = (part.strip() for text in given for part in text.split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _check_out(out: Path) -> None:
    if out.exists():
        raise UserError(f"{out} exists already: name another file for --out, or move that one")
    if not out.absolute().parent.is_dir():
        raise UserError(f"{out.absolute().parent} is no folder: make it, or name another --out")


def _all_known(kind: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    if not given and kind != "peer":
        raise UserError(f"no {kind} is named: use one or more of {', '.join(known)}")
    for name in given:
        if name not in known:
            raise unknown(kind, name, known)
