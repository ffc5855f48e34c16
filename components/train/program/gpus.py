"""What NVIDIA's GPUs of this host are doing, through NVML; nothing is imported where there is no GPU.

Source: NVML API reference, nvmlDeviceGetUtilizationRates (share of the last sample period in which a kernel ran),
nvmlDeviceGetMemoryInfo, nvmlDeviceGetPowerUsage (milliwatts). nvidia-ml-py is NVIDIA's own binding.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

# There where the driver is, in containers too.
DRIVER = Path("/dev/nvidiactl")


@dataclass(frozen=True)
class GpuSample:
    """One GPU at one moment; `power_w` is None where the device does not tell."""

    percent: float
    memory_bytes: int
    power_w: float | None


class Gpus:
    """All GPUs of this host."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]

    def sample(self) -> tuple[GpuSample, ...]:
        return tuple(self._sample(handle) for handle in self._handles)

    def _sample(self, handle: Any) -> GpuSample:
        try:
            power: float | None = self._nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        except self._nvml.NVMLError_NotSupported:
            power = None
        percent = float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        return GpuSample(percent, int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used), power)


def find_gpus(driver: Path = DRIVER) -> Gpus | None:
    """The GPUs of this host; None without any, and, with a warning, where NVML cannot be asked."""
    if not driver.exists():
        return None
    try:
        import pynvml
    except ImportError:
        log.warning("GPU use is not sampled: there is a GPU and no nvidia-ml-py; install ctrflow[gpu] in the image")
        return None
    try:
        return Gpus(pynvml)
    except pynvml.NVMLError as error:
        log.warning("GPU use is not sampled: NVML answers %s", error)
        return None
