"""`stepscope kernels aot`: what the machine code of every kernel shows on every target."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernels.checking.aot import TARGETS, Compiled, Job, compiled, faults_of, jobs
from kernels.checking.aot_spec import AotSpec
from kernels.checking.machine_code import MachineCode, amd
from kernels.registry import contracts

ARCHS = ("sm_80", "sm_90", "sm_100", "gfx942")
NVIDIA = ARCHS[:3]
MEMORY_BOUND = ("rms_norm", "add_rms_norm", "silu_and_mul", "rope_and_cache", "paged_decode")


@pytest.fixture(scope="module")
def found(stepscope: Path) -> dict[str, Any]:
    command = [stepscope, "kernels", "aot", "--arch", ",".join(ARCHS), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or done.stdout[-2000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    kernels: list[dict[str, Any]] = found["kernels"]
    return kernels


def test_every_kernel_compiles_for_every_target(
    found: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    assert found["passed"] is True
    assert {row["op"] for row in rows} == set(contracts())
    for op in contracts():
        assert {row["arch"] for row in rows if row["op"] == op} == set(ARCHS), op
    for row in rows:
        assert row["passed"] is True, row
        assert row["spills"] == 0
        assert 0 < row["registers"] <= (512 if row["arch"] == "gfx942" else 255)
        assert 0 <= row["shared_bytes"] <= row["shared_limit_bytes"]
        assert row["shared_limit_bytes"] == TARGETS[row["arch"]].shared_limit_bytes


def test_matmuls_use_the_tensor_cores_of_their_target(rows: list[dict[str, Any]]) -> None:
    """Tall tiles in 16 bits: whole warpgroups on sm_90, whole blocks on sm_100."""
    wide = {"sm_80": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCMMA", "gfx942": "mfma"}
    for op in ("paged_prefill", "grouped_matmul"):
        for arch, instruction in wide.items():
            mine = [r for r in rows if r["op"] == op and r["arch"] == arch]
            used = {r["tensor_core_instruction"] for r in mine}
            assert instruction in used, (op, arch, used)


def test_memory_bound_kernels_load_128_bits_at_once(rows: list[dict[str, Any]]) -> None:
    for op in MEMORY_BOUND:
        for arch in ARCHS:
            mine = [r for r in rows if r["op"] == op and r["arch"] == arch]
            assert any(r["wide_loads"] for r in mine), (op, arch)


def test_keys_and_values_of_decode_are_multi_buffered(rows: list[dict[str, Any]]) -> None:
    """Not where block ids are loaded in the iteration that uses them; see docs/kernels.md."""
    for arch in NVIDIA:
        mine = [r for r in rows if r["op"] == "paged_decode" and r["arch"] == arch]
        assert any(r["buffered"] for r in mine), arch
    assert {r["buffered"] for r in rows if r["arch"] == "gfx942"} == {None}


# --- what it would say of worse ones ---


def _spec(**asked: Any) -> AotSpec:
    return AotSpec("bad", "op", lambda: None, {}, {}, {}, (), **asked)


GOOD = MachineCode(64, 0, "HGMMA", True, True)


@pytest.mark.parametrize(
    ("arch", "asked", "code", "shared", "faults"),
    [
        ("sm_90", {"matmul": True, "wide_loads": True, "buffered": True}, GOOD, 1000, []),
        ("sm_90", {}, MachineCode(255, 12, None, False, False), 0, ["12 spills"]),
        (
            "sm_80",
            {},
            GOOD,
            200_000,
            ["200,000 bytes of shared memory, 166,912 is the limit"],
        ),
        (
            "gfx942",
            {"tensor_core": True, "buffered": True},
            MachineCode(64, 0, None, True, None),
            0,
            ["no tensor-core instruction"],
        ),
        (
            "sm_90",
            {"matmul": True},
            MachineCode(64, 0, "HMMA", True, True),
            0,
            ["no HGMMA (found HMMA)"],
        ),
        (
            "sm_100",
            {"wide_loads": True, "buffered": True},
            MachineCode(64, 0, None, False, False),
            0,
            ["no 128-bit load from global memory", "loads of the loop are single-buffered"],
        ),
    ],
)
def test_what_fails(
    arch: str, asked: dict[str, Any], code: MachineCode, shared: int, faults: list[str]
) -> None:
    assert list(faults_of(Job(_spec(**asked), arch), code, shared)) == faults


def test_what_does_not_compile_is_a_row_that_failed() -> None:
    def broken() -> Any:
        raise TypeError("no such\nkernel")

    spec = AotSpec("bad", "op", broken, {}, {}, {}, ())
    row = compiled(Job(spec, "sm_90"))
    assert row == Compiled("op", "bad", "sm_90", False, 232_448, "TypeError: no such kernel")


def test_a_specification_can_be_for_some_targets_only() -> None:
    specs = [_spec(), _spec(archs=("gfx942", "sm_80"))]
    assert [job.arch for job in jobs(specs)] == [*ARCHS, "sm_80", "gfx942"]


def test_amd_metadata() -> None:
    text = (
        "\tglobal_load_dwordx4 v[0:3], v4, s[0:1]\n\tv_mfma_f32_32x32x8_bf16 a[0:15], v[0:1]\n"
        "    .sgpr_spill_count: 2\n    .vgpr_count:     96\n    .vgpr_spill_count: 3\n"
    )
    assert amd(text) == MachineCode(96, 5, "mfma", True, None)
    with pytest.raises(RuntimeError, match="no vgpr_count"):
        amd("\ts_endpgm\n")
