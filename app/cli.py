"""The command line."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from app.errors import EngineFailedError
from app.kernels_command import kernels_app
from app.options import Concurrency, Json, Rate, Threads, Workload, with_engine
from app.replay.command import EXAMPLE as REPLAY_EXAMPLE
from app.replay.command import replay_command
from app.whatif import EXAMPLE, whatif_command
from engine.config import EngineConfig
from engine.errors import UserError
from engine.messages import Load
from engine.models.names import DEFAULT_MODEL
from telemetry.errors import StoreError

app = typer.Typer(
    name="stepscope",
    help="Watch an LLM inference engine work, step by step.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command(epilog="Example: stepscope demo --port 8600 --scheduler static")
@with_engine
def demo(
    engine: EngineConfig,
    workload: Workload = "steady",
    concurrency: Concurrency = None,
    rate: Rate = None,
    port: Annotated[int, typer.Option(help="Port of the dashboard.")] = 8501,
    db: Annotated[
        Path | None, typer.Option(help="Recording; default: one file in your data folder.")
    ] = None,
    recalibrate: Annotated[
        bool, typer.Option("--recalibrate", help="Measure this machine's peaks again.")
    ] = False,
) -> None:
    """Dashboard, engine and a live workload, in the browser."""
    from app.demo import Demo, run_demo

    engine = replace(engine, recalibrate=recalibrate, live=True, paced=engine.modelled)
    streams = 4 if concurrency is None and rate is None else concurrency
    run_demo(Demo(engine, Load(workload, streams, rate), db, port))


@app.command(
    epilog="Example: stepscope run --scheduler static --workload skew --max-batch 10 --db a.duckdb"
)
@with_engine
def run(
    db: Annotated[Path, typer.Option(help="DuckDB file; the run is added to it.")],
    engine: EngineConfig,
    workload: Workload = "skew",
    requests: Annotated[int | None, typer.Option(help="How many requests to run.")] = None,
    concurrency: Concurrency = None,
    rate: Rate = None,
    seed: Annotated[int, typer.Option(help="Seed of prompts, lengths and arrivals.")] = 0,
    as_json: Json = False,
) -> None:
    """Run a workload headless and record every step."""
    from app.headless import print_summary, run_headless

    summary = run_headless(engine, Load(workload, concurrency, rate, requests, seed), db)
    if as_json:
        print(json.dumps(summary))
    else:
        print_summary(summary)


@app.command(epilog="Example: stepscope calibrate --threads 2 --json")
def calibrate(
    threads: Threads = None,
    force: Annotated[bool, typer.Option("--force", help="Measure again.")] = False,
    as_json: Json = False,
) -> None:
    """Measured peaks of this machine: FLOP/s per dtype, read bandwidth, ridge."""
    from app.calibrate import print_calibration, run_calibration
    from engine.huge_pages import restart_with_huge_pages

    restart_with_huge_pages()  # measured as the engine will run
    found = run_calibration(threads, force=force)
    if as_json:
        print(json.dumps(found.model_dump(mode="json")))
    else:
        print_calibration(found)


@app.command(
    epilog="Example: stepscope bench --dtype bf16 --against llama.cpp --peers ~/peers --out b.json"
)
def bench(
    dtype: Annotated[
        list[str] | None, typer.Option(help="fp32, bf16, int8, int4 or auto; again for more.")
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="transformers, llama.cpp or vllm; again for more.")
    ] = None,
    peers: Annotated[
        Path | None,
        typer.Option(help="Folder with one virtual environment a peer; or STEPSCOPE_PEERS."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="The default model, a GGUF file, or a Hugging Face folder.")
    ] = DEFAULT_MODEL,
    threads: Threads = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Parts, such as decode,prefill,clients; default: all.")
    ] = None,
    load: Annotated[
        list[str] | None, typer.Option(help="Client loads: w16, A, B; default: all.")
    ] = None,
    alone: Annotated[
        bool, typer.Option(help="Measure by itself, too, what is compared with a peer.")
    ] = True,
    repeats: Annotated[int, typer.Option(help="Measurements of which the median counts.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Two repeats.")] = False,
    out: Annotated[Path | None, typer.Option(help="Save the result as JSON here, too.")] = None,
    as_json: Json = False,
) -> None:
    """Measure this engine on this machine, alone or beside others on the same weights."""
    from app.bench.command import run_bench, save
    from app.bench.options import bench_options
    from app.bench.report import print_report

    options = bench_options(
        dtype, against, peers, model, threads, only, repeats, quick, out, load, alone
    )
    result = run_bench(options)
    if out is not None:
        save(result, out)
    if as_json:
        print(json.dumps(result))
    else:
        print_report(result)


app.command(epilog=EXAMPLE)(whatif_command())
app.command(epilog=REPLAY_EXAMPLE)(replay_command())
app.add_typer(kernels_app)


def main() -> None:
    """Bad input is one line and exit code 2."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except (UserError, StoreError) as error:
        _fail(str(error))
    except typer.TyperException as error:
        _fail(f"{error.format_message().rstrip('.')}; see {_usage(error)} --help")
    except EngineFailedError as error:
        _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(128 + signal.SIGINT)
    sys.exit(code if isinstance(code, int) else 0)


def _terminated(signum: int, frame: object) -> None:
    """As an exception, so that a run ends its engine and closes its database."""
    sys.exit(128 + signum)


def _usage(error: typer.TyperException) -> str:
    """The command whose options the error is about."""
    context: typer.Context | None = getattr(error, "ctx", None)
    return context.command_path if context else "stepscope"


def _fail(message: str, code: int = 2) -> None:
    print("stepscope: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
