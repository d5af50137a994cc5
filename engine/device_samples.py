"""About once a second while steps run: what the GPU and the engine's process say of themselves.

A thread of its own asks, since the driver takes milliseconds to answer. It is woken by a step that
ends: so an idle or paused engine records nothing, and its pages stand still.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from engine.nvml import Gpu, GpuReading, open_gpu
from telemetry.clock import now_ns, seconds
from telemetry.schema import DeviceSampleRecord

INTERVAL_S = 1.0

Record = Callable[[Sequence[DeviceSampleRecord]], None]
Uuid = Callable[[], str | None]


class DeviceSampler:
    """record: takes the samples, from the sampler's thread. gpu_uuid: asked once, at the first
    sample; None where no GPU runs the steps, and nothing is reported of one."""

    def __init__(
        self, record: Record, gpu_uuid: Uuid = lambda: None, interval_s: float = INTERVAL_S
    ) -> None:
        self._record, self._gpu_uuid, self._interval_s = record, gpu_uuid, interval_s
        self._last_ns = now_ns()
        self._closing = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device-samples", daemon=True)
        self._thread.start()

    def step_ended(self) -> None:
        """Called from the engine's thread; a sample is taken if one is due."""
        now = now_ns()
        if seconds(now - self._last_ns) >= self._interval_s:
            self._last_ns = now
            self._due.set()

    def close(self) -> None:
        """No sample is recorded after this returns."""
        self._closing = True
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        cpu = _cpu_meter()
        if not self._wait():
            return
        uuid = self._gpu_uuid()
        gpu = None if uuid is None else open_gpu(uuid)
        try:
            self._sample(cpu, gpu)
            while self._wait():
                self._sample(cpu, gpu)
        except Exception:  # the recorder has failed, which the engine's thread reports
            return
        finally:
            if gpu is not None:
                gpu.close()

    def _wait(self) -> bool:
        """Until a sample is due; False when there is to be none any more."""
        self._due.wait()
        self._due.clear()
        return not self._closing

    def _sample(self, cpu: Callable[[], float | None], gpu: Gpu | None) -> None:
        found = GpuReading() if gpu is None else gpu.read()
        self._record(
            [
                DeviceSampleRecord(
                    t_ns=now_ns(),
                    utilisation=found.utilisation,
                    memory_used_bytes=found.memory_used_bytes,
                    power_w=found.power_w,
                    temperature_c=found.temperature_c,
                    clock_hz=found.clock_hz,
                    cpu_percent=cpu(),
                )
            ]
        )


def torch_gpu_uuid() -> str | None:
    """Of torch's current GPU, as NVML names it; None for one that NVML does not know."""
    import torch

    if torch.version.hip or not torch.cuda.is_available():
        return None
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"GPU-{properties.uuid}"


def _cpu_meter() -> Callable[[], float | None]:
    """Use of this process since the last call, in percent of one core; None without psutil."""
    try:
        import psutil
    except ImportError:
        return lambda: None
    process = psutil.Process()
    process.cpu_percent(None)  # the first call only sets the start

    def percent() -> float | None:
        used: float = process.cpu_percent(None)
        return used

    return percent
