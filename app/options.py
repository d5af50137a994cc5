"""Options that several commands share; each is declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from engine.config import (
    AUTO,
    CUDA_DTYPES,
    CUDA_KV_DTYPES,
    DTYPES,
    KV_DTYPES,
    MODELLED_DTYPES,
    MODELLED_KV_DTYPES,
    EngineConfig,
)
from engine.models.names import DEFAULT_MODEL
from engine.schedulers import DEFAULT_CHUNK_TOKENS, SCHEDULERS
from engine.workloads import WORKLOADS

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Threads = Annotated[int | None, typer.Option(help="Threads of the engine.")]
Workload = Annotated[str, typer.Option(help=f"{', '.join(WORKLOADS)}, or a CSV or JSONL file.")]
Concurrency = Annotated[int | None, typer.Option(help="Closed loop: streams kept busy.")]
Rate = Annotated[float | None, typer.Option(help="Open loop: requests per second (Poisson).")]


def engine_config(
    model: Annotated[
        str,
        typer.Option(
            help=f"{DEFAULT_MODEL}, a GGUF file, a Hugging Face folder, or random:<a name of the "
            "catalogue>; modelled: a name of the catalogue, or a config.json."
        ),
    ] = DEFAULT_MODEL,
    dtype: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(DTYPES)}, or auto: the faster one by calibration; cuda: "
            f"{', '.join(CUDA_DTYPES)}; modelled: {', '.join(MODELLED_DTYPES)}."
        ),
    ] = AUTO,
    kv_dtype: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(KV_DTYPES)}, or auto: what suits --dtype; cuda: "
            f"{', '.join(CUDA_KV_DTYPES)}; modelled: {', '.join(MODELLED_KV_DTYPES)}."
        ),
    ] = AUTO,
    scheduler: Annotated[str, typer.Option(help=f"{', '.join(SCHEDULERS)}.")] = "continuous",
    max_batch: Annotated[int, typer.Option(help="Slots: sequences that run at once.")] = 16,
    chunk_tokens: Annotated[
        int, typer.Option(help="Token budget of a step, for chunked.")
    ] = DEFAULT_CHUNK_TOKENS,
    prefix_cache: Annotated[
        bool, typer.Option(help="Share the KV blocks of equal beginnings of prompts.")
    ] = False,
    kv_blocks: Annotated[
        int | None,
        typer.Option(help="Blocks of the KV cache; default: what 1 GiB holds, or the device."),
    ] = None,
    threads: Threads = None,
    ttft_slo: Annotated[float, typer.Option(help="Target of the time to first token, ms.")] = 1e3,
    tpot_slo: Annotated[float, typer.Option(help="Target of the time per output token, ms.")] = 100,
    backend: Annotated[
        str,
        typer.Option(
            help="cpu; cuda: this machine's GPU; or modelled: a device of the catalogue by its "
            "cost model."
        ),
    ] = "cpu",
    device: Annotated[
        str | None, typer.Option(help="Modelled: a device of the catalogue, such as h100-sxm.")
    ] = None,
    math_dtype: Annotated[
        str, typer.Option(help="Modelled: of the math, or auto: the weights', at least 16 bits.")
    ] = AUTO,
    tensor_parallel: Annotated[
        int, typer.Option(help="Modelled: devices that share each matrix.")
    ] = 1,
    expert_parallel: Annotated[
        int, typer.Option(help="Modelled: groups that share the experts.")
    ] = 1,
    link_bandwidth_gb: Annotated[
        float | None,
        typer.Option(help="Modelled: GB/s per direction; default: the device's."),
    ] = None,
    matmul_fraction: Annotated[
        float | None,
        typer.Option(help="Modelled: part of the peak FLOP/s reached; default: as measured."),
    ] = None,
    bandwidth_fraction: Annotated[
        float | None,
        typer.Option(help="Modelled: part of the peak bandwidth reached; default 0.85."),
    ] = None,
    overhead_ms: Annotated[
        float | None, typer.Option(help="Modelled: host time a step; default 0.1.")
    ] = None,
) -> EngineConfig:
    """The engine that these options ask for. Raises UserError."""
    return EngineConfig(
        model=model,
        dtype=dtype,
        kv_dtype=kv_dtype,
        scheduler=scheduler,
        max_batch=max_batch,
        chunk_tokens=chunk_tokens,
        prefix_cache=prefix_cache,
        kv_blocks=kv_blocks,
        threads=threads,
        ttft_slo_s=ttft_slo / 1e3,
        tpot_slo_s=tpot_slo / 1e3,
        backend=backend,
        device=device,
        math_dtype=math_dtype,
        tensor_parallel=tensor_parallel,
        expert_parallel=expert_parallel,
        link_bandwidth=None if link_bandwidth_gb is None else link_bandwidth_gb * 1e9,
        matmul_fraction=matmul_fraction,
        bandwidth_fraction=bandwidth_fraction,
        overhead_s=None if overhead_ms is None else overhead_ms / 1e3,
    )


def with_engine(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `engine` is made of `engine_config`'s options."""
    shared = list(inspect.signature(engine_config).parameters.values())
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "engine"]

    @wraps(command)
    def run(**options: Any) -> None:
        engine = engine_config(**{p.name: options.pop(p.name) for p in shared})
        command(engine=engine, **options)

    hints = {**_hints(engine_config), **_hints(command)}
    del hints["engine"]
    keyword = [p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in [*own, *shared]]
    run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    run.__annotations__ = hints
    return run


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)
