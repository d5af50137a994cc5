"""Options of `stepscope replay`, each declared once; nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from app.options import Json

Text = str | None
Number = float | None
Whole = int | None


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command was given; None where it was not, which keeps what was recorded."""

    file: Annotated[Path, typer.Argument(help="A file that stepscope run or demo recorded.")]
    run: Annotated[Text, typer.Option(help="Which of its runs; default: the newest.")] = None
    scheduler: Annotated[Text, typer.Option(help="no-batching, static, continuous or chunked.")] = (
        None
    )
    chunk_tokens: Annotated[Whole, typer.Option(help="Token budget of a step, for chunked.")] = None
    max_batch: Annotated[Whole, typer.Option(help="Slots: sequences that run at once.")] = None
    kv_blocks: Annotated[Whole, typer.Option(help="Blocks of the KV cache.")] = None
    prefix_cache: Annotated[
        bool | None, typer.Option(help="Share the KV blocks of equal beginnings of prompts.")
    ] = None
    draws: Annotated[Whole, typer.Option(help="Replays of one setting: 8, in a sweep 3.")] = None
    sweep: Annotated[
        bool, typer.Option("--sweep", help="A grid over token budgets, batches and KV blocks.")
    ] = False
    schedulers: Annotated[Text, typer.Option(help="Of a sweep; default: chunked.")] = None
    budgets: Annotated[
        Text, typer.Option(help="Token budgets of a sweep; default: 32,64 to 1024.")
    ] = None
    batches: Annotated[Text, typer.Option(help="Max batches of a sweep, such as 4,8,16.")] = None
    blocks: Annotated[Text, typer.Option(help="KV blocks of a sweep, such as 256,512.")] = None
    ttft_slo: Annotated[Number, typer.Option(help="Target of a sweep: P99 TTFT, ms.")] = None
    tpot_slo: Annotated[Number, typer.Option(help="Target of a sweep: P99 TPOT, ms.")] = None
    itl_slo: Annotated[Number, typer.Option(help="Target of a sweep: worst gap, ms.")] = None
    as_json: Json = False
