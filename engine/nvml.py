"""What NVIDIA's driver says of one GPU (NVML API Reference Guide). No driver: nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuReading:
    """None: not reported by this device. utilisation: share of NVML's last sample period (1/6 s to
    1 s) in which at least one kernel ran, however small it was."""

    utilisation: float | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    clock_hz: float | None = None


class Gpu:
    """An open handle; `close` gives it back."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def read(self) -> GpuReading:
        """Takes a few milliseconds, in which other threads of this process run on."""
        nvml, handle = self._nvml, self._handle
        rates = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        power_mw = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        celsius = self._ask(
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        )
        clock_mhz = self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        return GpuReading(
            utilisation=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            power_w=None if power_mw is None else power_mw / 1e3,
            temperature_c=None if celsius is None else float(celsius),
            clock_hz=None if clock_mhz is None else clock_mhz * 1e6,
        )

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _ask(self, question: Callable[[], Any]) -> Any:
        """None where this device does not support it."""
        try:
            return question()
        except self._nvml.NVMLError:
            return None


def open_gpu(uuid: str) -> Gpu | None:
    """The GPU of that UUID ("GPU-…", as torch and the driver both know it, whatever
    CUDA_VISIBLE_DEVICES says). None without pynvml, without a driver, or for a stranger."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return Gpu(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError:
        pynvml.nvmlShutdown()
        return None
