"""What the machine code of a compiled kernel shows: registers, spills, instructions."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Tensor-core instructions, by the mnemonic in SASS or in AMD's assembly. A warpgroup's or a block's
# come first: a kernel that has both uses the wide ones where it matters.
_TENSOR_CORE = {
    "UTCMMA": r"\bUTC\w*MMA\b",
    "HGMMA": r"\b[HQI]GMMA\b",
    "HMMA": r"\b(?:HMMA|QMMA|IMMA|OMMA)\b",
    "mfma": r"\bv_s?mfmac?_",
}
_WIDE = r"\bLDG\.E\S*\.128\b|\bLDGSTS\.E\S*\.128\b|\bUTMALDG\b"
_WIDE_AMD = r"\b(?:global|buffer|flat)_load_(?:dwordx4|b128)\b"
_LOCAL = r"\b(?:STL|LDL)\b"  # stores to and loads from local memory: registers that did not fit
_WIDE_COPY = r"cp\.async\.c[ag]\.shared\.global\s+\[[^\]]*\],\s*\[[^\]]*\],\s*(?:16|0x10)\b"
_WAIT = r"cp\.async\.wait_group\s+(\d+)"


@dataclass(frozen=True, slots=True)
class MachineCode:
    """registers: per thread. spills: instructions that move registers to memory or back (AMD:
    registers spilled). tensor_core: the widest kind found, else None. buffered: 128-bit loads are
    in flight more than one stage ahead; None where the target's code does not tell."""

    registers: int
    spills: int
    tensor_core: str | None
    wide_loads: bool
    buffered: bool | None


def nvidia(cubin: bytes, ptx: str, tools: Path) -> MachineCode:
    """tools: the folder of cuobjdump and nvdisasm. Raises RuntimeError where they fail."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _output([str(tools / "cuobjdump"), "--dump-resource-usage", file.name])
        code = _output([str(tools / "nvdisasm"), "--print-code", "--no-dataflow", file.name])
    registers = re.search(r"\bREG:(\d+)", usage)
    if registers is None:
        raise RuntimeError("cuobjdump reports no registers")
    return MachineCode(
        registers=int(registers[1]),
        spills=len(re.findall(_LOCAL, code)),
        tensor_core=_tensor_core(code),
        wide_loads=bool(re.search(_WIDE, code)),
        buffered=_buffered(ptx),
    )


def amd(assembly: str) -> MachineCode:
    """From the assembly's text and the metadata at its end (code object version 5)."""
    return MachineCode(
        registers=_metadata(assembly, "vgpr_count"),
        spills=_metadata(assembly, "vgpr_spill_count") + _metadata(assembly, "sgpr_spill_count"),
        tensor_core=_tensor_core(assembly),
        wide_loads=bool(re.search(_WIDE_AMD, assembly)),
        buffered=None,
    )


def _tensor_core(code: str) -> str | None:
    return next((name for name, what in _TENSOR_CORE.items() if re.search(what, code)), None)


def _buffered(ptx: str) -> bool:
    """Asynchronous 128-bit copies, of which a wait leaves the newest group in flight.

    A loop that is single-buffered waits for all of them: only `wait_group 0`.
    """
    waits = [int(groups) for groups in re.findall(_WAIT, ptx)]
    return bool(re.search(_WIDE_COPY, ptx)) and max(waits, default=0) > 0


def _metadata(assembly: str, name: str) -> int:
    found = re.search(rf"^\s*\.{name}:\s+(\d+)", assembly, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the assembly's metadata has no {name}")
    return int(found[1])


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{Path(command[0]).name} failed: {said[-1] if said else 'no output'}")
    return done.stdout
