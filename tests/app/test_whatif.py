"""`stepscope whatif`: its answer, tables and sweeps, what it refuses, and how it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.whatif import question
from app.whatif_options import Options
from engine.errors import UserError
from engine.physics.catalogue import find_device, find_model
from engine.physics.deployment import Deployment
from engine.physics.overrides import with_params, with_rates
from engine.physics.whatif import WhatIf
from tests.app.asking import found, said
from tests.commands import Command

ROOT = Path(__file__).resolve().parents[2]

# --- the answer ---

CONTRACT = """model device dtype batch context phase t_compute_s t_memory_s t_step_s ridge intensity
bound b_star b_star_with_kv weight_bytes kv_bytes_per_token kv_bytes fits tokens_per_s
single_stream_tokens_per_s tpot_slo_s max_batch max_batch_limit composition assumptions"""


@pytest.mark.process
def test_the_case_that_everybody_tries_first(stepscope: Path, tmp_path: Path) -> None:
    line = "whatif --model llama-3.1-70b --device h100-sxm --dtype fp16 --batch 1 --context 0"
    ended = Command(stepscope, tmp_path).run(*line.split(), "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    a = json.loads(ended.stdout)
    assert set(CONTRACT.split()) <= set(a)
    assert a["t_memory_s"] == pytest.approx(0.042, rel=0.01)
    assert a["t_compute_s"] == pytest.approx(0.14e-3, rel=0.02)
    assert round(a["ridge"]) == 295
    assert a["bound"] == "memory"
    assert a["fits"] is False
    assert a["memory"]["weight_bytes"] > a["memory"]["memory_bytes"] == 80e9
    assert {"devices", "dtype", "device"} == {fit["change"] for fit in a["would_fit"]}
    assert a["would_fit"][0]["devices"] == 2


def test_no_cache_crosses_over_late_and_the_reason_is_given() -> None:
    for context, exists in ((400, True), (512, False)):
        a = found("--model", "llama-3.1-8b", "--context", context)
        assert (a["b_star_with_kv"] is not None) == exists
        assert (a["b_star_with_kv_reason"] is None) == exists


def test_assumptions_say_every_peak_and_its_source() -> None:
    d = found("--model", "llama-3.1-8b", "--matmul-fraction", 0.8, "--overhead-ms", 2)[
        "assumptions"
    ]
    assert (d["peak_flops"], d["bandwidth"]) == (989e12, 3350e9)
    assert (d["matmul_fraction"], d["bandwidth_fraction"], d["overhead_s"]) == (0.8, 1.0, 0.002)
    assert "datasheet" in d["sources"]["peak_flops"]
    assert "Llama-3.1-8B" in d["model_sources"]["spec"]


def test_a_config_json_is_a_model(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    a = found("--model", tmp_path / "config.json")
    assert a["kv_bytes_per_token"] == 131072
    assert a["weight_bytes"] == 2 * 8_030_261_248


def test_without_json_it_is_a_table_and_sentences() -> None:
    out = said("--model", "llama-3.1-70b", "--dtype", "fp16", "--tensor-parallel", 2)
    assert "Llama 3.1 70B, fp16, on 2 x NVIDIA H100 SXM 80 GB: decode, batch 1, context 0" in out
    for cells in (("reading", "21.1 ms"), ("computing", "71.3 µs"), ("ridge", "295")):
        assert any(all(cell in line for cell in cells) for line in out.splitlines()), cells
    assert "- 141 GB of weights fit in 160 GB" in out
    assert "Modelled, not measured: 100% of the peak FLOP/s (NVIDIA H100 datasheet" in out


def test_what_is_unknown_is_said() -> None:
    out = said("--model", "deepseek-v4-pro", "--context", 1000)
    assert "- Not known: KV cache per token: t_memory_s and t_step_s are floors without it." in out
    assert "KV unknown" in out


def test_prompt_answer_and_price_have_rows() -> None:
    line = "--model llama-3.1-8b --prompt-tokens 4096 --output-tokens 100 --price-per-hour 2"
    out = said(*line.split())
    for name in ("prefill of 4,096", "whole answer", "million output tokens"):
        assert name in out


def test_every_option_reaches_the_question() -> None:
    asked = question(
        Options(
            model="mixtral-8x7b",
            device="h200",
            dtype="fp8",
            kv_dtype="fp8",
            math_dtype="fp8",
            batch=3,
            context=40,
            phase="prefill",
            prompt_tokens=50,
            output_tokens=60,
            tpot_slo=70.0,
            price_per_hour=8.0,
            tensor_parallel=2,
            expert_parallel=4,
            link_bandwidth_gb=90.0,
            matmul_fraction=0.1,
            bandwidth_fraction=0.2,
            overhead_ms=3.0,
            composition="additive-kv",
            usable_memory=0.4,
            params=5e10,
            active_params=6e9,
            kv_bytes_per_token=7.0,
            peak_tflops=8.0,
            bandwidth_gb=9.0,
            memory_gb=10.0,
        )
    )
    model = with_params(find_model("mixtral-8x7b"), 5e10, 6e9)
    device = with_rates(find_device("h200"), "fp8", 8e12, 9e9, 10e9)
    math = {"matmul_fraction": 0.1, "bandwidth_fraction": 0.2, "overhead_s": 0.003}
    deployment = Deployment(device, "fp8", "fp8", "fp8", 2, 4, **math, link_bandwidth=90e9)
    assert asked == WhatIf(
        *(model, deployment, 3, 40, "prefill", 50, 0.07, 8.0, "additive-kv", 0.4, 7.0, 60)
    )


@pytest.mark.parametrize(
    ("dtype", "others"), [("fp16", "fp16"), ("bf16", "bf16"), ("fp8", "bf16"), ("int4", "bf16")]
)
def test_cache_and_math_have_the_weights_dtype_with_at_least_16_bits(
    dtype: str, others: str
) -> None:
    d = question(Options(model="qwen3-8b", dtype=dtype)).deployment
    assert (d.weight_dtype, d.kv_dtype, d.math_dtype) == (dtype, others, others)


# --- several ---


def test_devices_and_dtypes_stand_side_by_side() -> None:
    line = ["--model", "llama-3.1-70b", "--devices", "h100-sxm,h200", "--dtypes", "fp16,fp8"]
    answers = found(*line)["compare"]
    assert [(a["device"], a["dtype"]) for a in answers] == [
        *(("h100-sxm", "fp16"), ("h100-sxm", "fp8"), ("h200", "fp16"), ("h200", "fp8"))
    ]
    assert [a["fits"] for a in answers] == [False, True, False, True]
    out = said(*line)
    cells = next(row for row in out.splitlines() if "fits" in row).split("│")[2:6]
    assert [cell.strip() for cell in cells] == ["no", "yes", "no", "yes"]
    assert out.count("What would: ") == 2


def test_one_answer_is_the_same_alone_and_side_by_side() -> None:
    both = found("--model", "qwen3-8b", "--devices", "l4,l40s")["compare"]
    assert both[1] == found("--model", "qwen3-8b", "--device", "l40s")


def test_a_sweep_marks_the_point_that_meets_the_target() -> None:
    line = [
        "--model",
        "llama-3.1-8b",
        "--context",
        "4000",
        "--tpot-slo",
        "20",
        "--sweep",
        "--batches",
        "1,32,64,128",
    ]
    grid = found(*line)
    assert [row["batch"] for row in grid["rows"]] == [1, 32, 64, 128]
    assert grid["best"]["batch"] == 64
    out = said(*line).splitlines()
    assert [row.split()[0] for row in out if "◀ best" in row] == ["64"]
    assert [row.split()[0] for row in out if "too big" in row] == ["128"]
    bars = [row.count("█") for row in out if "█" in row]
    assert bars == sorted(bars)
    assert len({row.index("┃") for row in out if "┃" in row}) == 1  # the target is one line
    assert max(len(row) for row in out[:-2]) <= 80


def test_a_sweep_over_all_axes() -> None:
    line = "--model llama-3.1-8b --sweep --devices l4,h200 --dtypes bf16,fp8,int4"
    grid = found(*line.split(), "--tensor-parallels", "1,2", "--batches", "1,8")
    assert len(grid["rows"]) == 2 * 3 * 2 * 2
    assert len(found("--model", "llama-3.1-8b", "--sweep")["rows"]) == 11  # 1 to 1024


# --- bad input ---

REFUSED = [
    ("", "which model? Give --model with a name, or --params with a size"),
    ("--model lama-3.1-8b", "unknown model 'lama-3.1-8b'"),
    ("--model lama-3.1-8b", "did you mean 'llama-3.1-8b'?"),
    ("--model llama-3.1-8b --device h100", "did you mean 'h100-pcie' or 'h100-sxm'?"),
    ("--model llama-3.1-8b --devices h200,h100", "unknown device 'h100'"),
    ("--model llama-3.1-8b --dtype fp7", "unknown dtype 'fp7'"),
    ("--model llama-3.1-8b --dtypes bf16,fp7", "unknown dtype 'fp7'"),
    ("--model llama-3.1-8b --kv-dtype fp7", "unknown kv-dtype 'fp7'"),
    ("--model llama-3.1-8b --math-dtype int4", "no int4 rate is known for NVIDIA H100"),
    ("--model llama-3.1-8b --dtype fp32", "no fp32 rate is known"),
    ("--model llama-3.1-8b --batch 0", "batch is 0: use 1 to 1,000,000 sequences"),
    ("--model llama-3.1-8b --context -1", "context is -1: use 0 to 100,000,000 tokens"),
    ("--model llama-3.1-8b --phase prefil", "did you mean 'prefill'?"),
    ("--model llama-3.1-8b --phase prefill", "give prompt tokens, such as 4096"),
    ("--model llama-3.1-8b --tpot-slo 0", "--tpot-slo is 0: use more than 0"),
    ("--model llama-3.1-8b --tpot-slo nan", "--tpot-slo is nan: use more than 0"),
    ("--model llama-3.1-8b --overhead-ms -1", "--overhead-ms is -1: use more than 0"),
    ("--model llama-3.1-8b --tensor-parallel 3", "has 32 query heads: use a divisor"),
    ("--model llama-3.1-8b --tensor-parallel 0", "tensor_parallel is 0: use"),
    ("--model llama-3.1-8b --expert-parallel 4", "llama-3.1-8b has no experts: use 1"),
    ("--model llama-3.1-8b --device rtx-4090 --tensor-parallel 2", "no link bandwidth is known"),
    ("--model llama-3.1-8b --matmul-fraction 1.5", "matmul_fraction is 1.5: use more than 0"),
    ("--model llama-3.1-8b --bandwidth-fraction 0", "bandwidth_fraction is 0"),
    ("--model llama-3.1-8b --price-per-hour -1", "price per hour is -1"),
    ("--model llama-3.1-8b --devices l4,l40s --price-per-hour 1", "leave --devices out"),
    ("--model llama-3.1-8b --peak-tflops -4", "--peak-tflops is -4: use more than 0"),
    ("--model llama-3.1-8b --usable-memory 2", "usable memory is 2"),
    ("--model llama-3.1-8b --composition both", "use one of additive-kv, overlap"),
    ("--model llama-3.1-8b --batches 1,2", "belong to a grid: add --sweep"),
    ("--model llama-3.1-8b --sweep --batches 1,x", "--batches is '1,x': use whole numbers"),
    ("--model llama-3.1-8b --sweep --batches 0", "--batches is '0': use whole numbers from 1"),
    ("--params -5", "parameters is -5: use more than 0"),
    ("--params 7e9 --active-params 9e9", "active parameters is 9e+09: use at most all of them"),
    ("--model gone/config.json", "gone/config.json is not there"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=[line for line, _ in REFUSED])
def test_what_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    with pytest.raises(UserError) as refused:
        said(*line.split())
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert capsys.readouterr().out == ""


@pytest.mark.process
def test_a_refusal_is_one_line_and_exit_code_2(stepscope: Path, tmp_path: Path) -> None:
    line = Command(stepscope, tmp_path).refuses("whatif", "--model", "llama-9")
    assert "unknown model 'llama-9'" in line


# --- fast ---


@pytest.mark.process
def test_it_starts_without_what_it_does_not_need() -> None:
    """No torch, no database, no data frames: an answer is arithmetic."""
    code = (
        "import sys\nfrom app.cli import app\n"
        "app(['whatif', '--model', 'llama-3.1-8b', '--context', '100'], standalone_mode=False)\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {"torch", "triton", "numba", "transformers", "duckdb", "pandas", "pyarrow"}
    assert set(ended.stderr.split()) & (heavy | {"streamlit", "plotly", "safetensors"}) == set()
