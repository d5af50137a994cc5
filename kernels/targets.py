"""What a launcher asks of the device: its architecture and how many programs it runs at once."""

from __future__ import annotations

from functools import lru_cache

import torch

INTERPRETED = "sm_90"  # tensors on the CPU: Triton's interpreter runs what an H100 would
INTERPRETED_PROCESSORS = 132


@lru_cache(maxsize=64)
def arch_of(device: torch.device) -> str:
    """ "sm_90", "gfx942"…; tensors on the CPU are for the interpreter."""
    if device.type != "cuda":
        return INTERPRETED
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return str(properties.gcnArchName).split(":")[0]
    return f"sm_{properties.major}{properties.minor}"


@lru_cache(maxsize=64)
def processors(device: torch.device) -> int:
    """Streaming multiprocessors (NVIDIA) or compute units (AMD)."""
    if device.type != "cuda":
        return INTERPRETED_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
