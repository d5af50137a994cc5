"""What the GPU and the process say of themselves, with a driver that is here, dumb or absent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from engine import device_samples
from engine.device_samples import DeviceSampler
from engine.nvml import GpuReading, open_gpu
from telemetry.schema import DeviceSampleRecord


class FakeNVML(SimpleNamespace):
    """As nvidia-ml-py's module, with one GPU. `dumb`: functions that this GPU does not support."""

    class NVMLError(Exception):
        pass

    def __init__(self, dumb: Sequence[str] = (), driver: bool = True) -> None:
        super().__init__(NVML_TEMPERATURE_GPU=0, NVML_CLOCK_SM=1, open=0)
        self._driver = driver
        answers: dict[str, Any] = {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=41),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3 << 30, total=141 << 30),
            "nvmlDeviceGetPowerUsage": 512_345,
            "nvmlDeviceGetTemperature": 64,
            "nvmlDeviceGetClockInfo": 1980,
        }
        for name, answer in answers.items():
            setattr(self, name, self._refuse if name in dumb else lambda *_, a=answer: a)

    def _refuse(self, *_: Any) -> None:
        raise self.NVMLError("Not Supported")

    def nvmlInit(self) -> None:  # noqa: N802
        if not self._driver:
            raise self.NVMLError("NVML Shared Library Not Found")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "GPU-1":
            raise self.NVMLError("Not Found")
        return uuid


def _installed(monkeypatch: pytest.MonkeyPatch, nvml: FakeNVML) -> FakeNVML:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def test_readings_are_in_si_units(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = _installed(monkeypatch, FakeNVML())
    gpu = open_gpu("GPU-1")
    assert gpu is not None
    assert gpu.read() == GpuReading(0.97, 3 << 30, 512.345, 64.0, 1.98e9)
    gpu.close()
    assert nvml.open == 0


def test_what_a_gpu_does_not_support_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    dumb = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates")
    _installed(monkeypatch, FakeNVML(dumb))
    gpu = open_gpu("GPU-1")
    assert gpu is not None
    assert gpu.read() == GpuReading(None, 3 << 30, None, 64.0, 1.98e9)


def test_no_driver_no_library_and_a_strange_gpu_report_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _installed(monkeypatch, FakeNVML(driver=False))
    assert open_gpu("GPU-1") is None
    nvml = _installed(monkeypatch, FakeNVML())
    assert open_gpu("GPU-2") is None
    assert nvml.open == 0
    monkeypatch.setitem(sys.modules, "pynvml", None)  # what a missing package looks like
    assert open_gpu("GPU-1") is None


def test_a_machine_without_a_driver_hears_nothing() -> None:
    """The real library, in a fresh process with all warnings on."""
    code = "from engine.nvml import open_gpu; print(open_gpu('GPU-none'))"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("None\n", "", 0)


def test_a_sample_has_the_gpu_and_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = _installed(monkeypatch, FakeNVML())
    found: SimpleQueue[DeviceSampleRecord] = SimpleQueue()
    sampler = DeviceSampler(lambda rows: found.put(rows[0]), lambda: "GPU-1", interval_s=0.0)
    sampler.step_ended()
    sample = found.get(timeout=10)
    sampler.close()
    assert (sample.utilisation, sample.power_w, sample.clock_hz) == (0.97, 512.345, 1.98e9)
    assert sample.cpu_percent is not None
    assert sample.cpu_percent >= 0
    assert nvml.open == 0


def test_without_a_gpu_only_the_process_is_reported() -> None:
    found: SimpleQueue[DeviceSampleRecord] = SimpleQueue()
    sampler = DeviceSampler(lambda rows: found.put(rows[0]), interval_s=0.0)
    sampler.step_ended()
    sample = found.get(timeout=10)
    sampler.close()
    gpu = (
        sample.utilisation,
        sample.memory_used_bytes,
        sample.power_w,
        sample.temperature_c,
        sample.clock_hz,
    )
    assert gpu == (None,) * 5
    assert sample.cpu_percent is not None


def test_samples_are_an_interval_apart_however_many_steps_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0]
    monkeypatch.setattr(device_samples, "now_ns", lambda: now[0])
    found: SimpleQueue[DeviceSampleRecord] = SimpleQueue()
    sampler = DeviceSampler(lambda rows: found.put(rows[0]), interval_s=1.0)
    times = []
    for at_ns in (400_000_000, 999_999_999, 1_000_000_000, 1_500_000_000, 2_100_000_000):
        now[0] = at_ns
        sampler.step_ended()
        if at_ns in (1_000_000_000, 2_100_000_000):
            times.append(found.get(timeout=10).t_ns)
    sampler.close()
    assert times == [1_000_000_000, 2_100_000_000]
    assert found.empty()


def test_a_failed_recorder_ends_the_sampler_and_no_more() -> None:
    asked: SimpleQueue[bool] = SimpleQueue()

    def record(rows: Sequence[DeviceSampleRecord]) -> None:
        asked.put(True)
        raise RuntimeError("telemetry cannot be recorded any more")

    sampler = DeviceSampler(record, interval_s=0.0)
    sampler.step_ended()
    assert asked.get(timeout=10)
    sampler.step_ended()
    sampler.close()
    assert asked.empty()
