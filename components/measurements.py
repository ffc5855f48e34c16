"""What one measurement says besides a rate: how the input was read, what the machine did meanwhile, and what that is called.

Parts of a probe (probes.py): the training program measures, profile_utilization names, select_strategy decides with them.
"""

from dataclasses import dataclass
from typing import Literal

Rule = Literal["CPUBottleneck", "IOBottleneck", "LowGPUUtilization", "BatchSize", "StepOutlier", "LoadBalancing"]


@dataclass(frozen=True, kw_only=True)
class InputSettings:
    """How training rows were read. 0 leaves a number to the training program; cached: decoded rows were kept in memory."""

    encoding: str = ""
    parallel_reads: int = 0
    map_parallelism: int = 0
    prefetch_batches: int = 0
    cached: bool | None = None

    def __str__(self) -> str:
        numbers = {"reads": self.parallel_reads, "decoders": self.map_parallelism, "batches ready": self.prefetch_batches}
        said = [f"{number} {name}" for name, number in numbers.items() if number]
        return ", ".join([self.encoding, *said] + (["not cached"] if self.cached is False else []))


@dataclass(frozen=True, kw_only=True)
class MachineUse:
    """What the machine did during the measured part. Means, unless said otherwise; None where the system does not tell.

    own_cpus, other_cpus: CPUs' worth of time that this job's processes and everything else took. iowait_percent: of all CPUs.
    run_queue: processes that ran or waited for a CPU, a CPU. Page faults that a disk had to serve, bytes of disk and
    network of this machine, all a second. Memory is the most that was seen. physical_cores counts cores under the usable
    CPUs; bfloat16: these multiply in it; gpu figures are of the busiest GPU, gpu_percent_p5 and p95 percentiles over time.
    """

    own_cpus: float
    other_cpus: float
    iowait_percent: float | None = None
    run_queue: float | None = None
    major_faults_per_s: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    memory_used_bytes: int = 0
    memory_bytes: int = 0
    physical_cores: int | None = None
    bfloat16: bool | None = None
    gpu_percent_p5: float | None = None
    gpu_percent_p95: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_power_w: float | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One rule that was looked at: the number, the threshold it is held against, and what to do where it is passed."""

    rule: Rule
    found: bool
    number: float
    threshold: float
    unit: str
    says: str
    advice: str
