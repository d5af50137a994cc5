"""Options of `stepscope whatif`, each declared once; nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from app.options import Json

Text = str | None
Number = float | None
Whole = int | None


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command was given; None where it was not."""

    model: Annotated[
        Text, typer.Option(help="A name of the catalogue, or a Hugging Face config.json.")
    ] = None
    device: Annotated[str, typer.Option(help="A name of the catalogue.")] = "h100-sxm"
    dtype: Annotated[str, typer.Option(help="Of the weights: bf16, fp16, fp8, int8, int4.")] = (
        "bf16"
    )
    kv_dtype: Annotated[
        Text, typer.Option(help="Of the KV cache; default: the weights', at least 16 bits.")
    ] = None
    math_dtype: Annotated[
        Text, typer.Option(help="Of the math; default: the weights', at least 16 bits.")
    ] = None
    batch: Annotated[int, typer.Option(help="Sequences in the step.")] = 1
    context: Annotated[int, typer.Option(help="Tokens of each in the KV cache before it.")] = 0
    phase: Annotated[str, typer.Option(help="decode or prefill.")] = "decode"
    prompt_tokens: Annotated[Whole, typer.Option(help="New tokens of each in a prefill.")] = None
    output_tokens: Annotated[Whole, typer.Option(help="Tokens of an answer, for its E2EL.")] = None
    tpot_slo: Annotated[Number, typer.Option(help="Most time per output token, ms.")] = None
    price_per_hour: Annotated[Number, typer.Option(help="Of one device.")] = None
    tensor_parallel: Annotated[int, typer.Option(help="Devices that share each matrix.")] = 1
    expert_parallel: Annotated[int, typer.Option(help="Groups that share the experts.")] = 1
    link_bandwidth_gb: Annotated[
        Number, typer.Option(help="Between devices, GB/s per direction; default: the device's.")
    ] = None
    matmul_fraction: Annotated[
        float, typer.Option(help="Part of the peak FLOP/s that matmuls reach.")
    ] = 1.0
    bandwidth_fraction: Annotated[
        float, typer.Option(help="Part of the peak bandwidth that reading reaches.")
    ] = 1.0
    overhead_ms: Annotated[float, typer.Option(help="Added to each step.")] = 0.0
    composition: Annotated[
        str, typer.Option(help="overlap: reading beside computing; additive-kv: KV by itself.")
    ] = "overlap"
    usable_memory: Annotated[
        float, typer.Option(help="Share of memory that weights and KV may fill.")
    ] = 1.0
    devices: Annotated[Text, typer.Option(help="Several, with commas: side by side.")] = None
    dtypes: Annotated[Text, typer.Option(help="Several, with commas: side by side.")] = None
    sweep: Annotated[
        bool, typer.Option("--sweep", help="A grid over batches, and over what has commas.")
    ] = False
    batches: Annotated[Text, typer.Option(help="Of a sweep; default: 1,2,4 to 1024.")] = None
    tensor_parallels: Annotated[Text, typer.Option(help="Of a sweep, such as 1,2,4,8.")] = None
    params: Annotated[Number, typer.Option(help="All parameters, such as 70e9.")] = None
    active_params: Annotated[Number, typer.Option(help="Of them active for a token.")] = None
    kv_bytes_per_token: Annotated[Number, typer.Option(help="Given instead of counted.")] = None
    peak_tflops: Annotated[Number, typer.Option(help="Instead of the device's peak.")] = None
    bandwidth_gb: Annotated[Number, typer.Option(help="Instead of the device's, GB/s.")] = None
    memory_gb: Annotated[Number, typer.Option(help="Instead of the device's.")] = None
    as_json: Json = False
