"""Compiles kernels for GPUs that are not here, and looks at their machine code. Needs no driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.checking.aot_spec import AotSpec
from kernels.checking.machine_code import MachineCode, amd, nvidia

_DIVISIBLE = [["tt.divisibility", 16]]
_MATMUL = {"sm_90": "HGMMA", "sm_100": "UTCMMA"}  # what whole warpgroups, or a whole block, issue


@dataclass(frozen=True, slots=True)
class Target:
    """backend, arch, warp: as triton.backends.compiler.GPUTarget takes them.

    shared_limit_bytes: of one block. NVIDIA: CUDA C++ Programming Guide, technical specifications
    per compute capability, 163 KB for 8.0, 227 KB for 9.0 and 10.0; AMD: CDNA 3 ISA, 64 KB of LDS.
    """

    backend: str
    arch: int | str
    warp: int
    shared_limit_bytes: int


TARGETS = {
    "sm_80": Target("cuda", 80, 32, 163 << 10),
    "sm_90": Target("cuda", 90, 32, 227 << 10),
    "sm_100": Target("cuda", 100, 32, 227 << 10),
    "gfx942": Target("hip", "gfx942", 64, 64 << 10),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to compile for one target."""

    spec: AotSpec
    arch: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one kernel is on one target. None: not known, since it did not compile, or since the
    target's code does not tell. failure: what is wrong, one line, else None."""

    op: str
    kernel: str
    arch: str
    passed: bool = False
    shared_limit_bytes: int | None = None
    failure: str | None = None
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    tensor_core: bool | None = None
    tensor_core_instruction: str | None = None
    wide_loads: bool | None = None
    buffered: bool | None = None


def blank() -> Compiled:
    """Of a kernel on which the compiler's process ended."""
    return Compiled("", "", "")


def jobs(specs: list[AotSpec]) -> list[Job]:
    """Every specification on every target that it is for."""
    return [
        Job(spec, arch)
        for spec in specs
        for arch in TARGETS
        if not spec.archs or arch in spec.archs
    ]


def compiled(job: Job) -> Compiled:
    """Compile one kernel for one target and judge it."""
    spec, target = job.spec, TARGETS[job.arch]
    try:
        built = build(spec, target)
        code, shared = _machine_code(built, target), int(built.metadata.shared)
    except Exception as fault:  # what the compiler refuses is this kernel's result
        text = f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}"
        return Compiled(spec.op, spec.name, job.arch, False, target.shared_limit_bytes, text)
    faults = list(faults_of(job, code, shared))
    return Compiled(
        op=spec.op,
        kernel=spec.name,
        arch=job.arch,
        passed=not faults,
        shared_limit_bytes=target.shared_limit_bytes,
        failure="; ".join(faults) or None,
        registers=code.registers,
        spills=code.spills,
        shared_bytes=shared,
        tensor_core=code.tensor_core is not None,
        tensor_core_instruction=code.tensor_core,
        wide_loads=code.wide_loads,
        buffered=code.buffered,
    )


def build(spec: AotSpec, target: Target) -> Any:
    """The compiled kernel, with its code in every form on the way (`asm`) and its metadata."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = spec.fn()
    source = ASTSource(
        fn=function,
        signature={**spec.signature, **dict.fromkeys(spec.constexprs, "constexpr")},
        constexprs=dict(spec.constexprs),
        attrs={(function.arg_names.index(name),): _DIVISIBLE for name in spec.divisible},
    )
    gpu = GPUTarget(target.backend, target.arch, target.warp)
    return triton.compile(source, target=gpu, options=dict(spec.options))


def faults_of(job: Job, code: MachineCode, shared_bytes: int) -> Iterator[str]:
    """What the code lacks that the specification asks for."""
    spec, limit = job.spec, TARGETS[job.arch].shared_limit_bytes
    if code.spills:
        yield f"{code.spills} spills"
    if shared_bytes > limit:
        yield f"{shared_bytes:,} bytes of shared memory, {limit:,} is the limit"
    if spec.tensor_core and code.tensor_core is None:
        yield "no tensor-core instruction"
    wanted = _MATMUL.get(job.arch) if spec.matmul else None
    if wanted is not None and code.tensor_core != wanted:
        yield f"no {wanted} (found {code.tensor_core or 'no tensor-core instruction'})"
    if spec.wide_loads and not code.wide_loads:
        yield "no 128-bit load from global memory"
    if spec.buffered and code.buffered is False:
        yield "loads of the loop are single-buffered"


def _machine_code(built: Any, target: Target) -> MachineCode:
    if target.backend == "hip":
        return amd(built.asm["amdgcn"])
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    return nvidia(built.asm["cubin"], built.asm["ptx"], tools)
