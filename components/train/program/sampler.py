"""What CPUs, memory, disk, network and GPUs do while something runs, and which part of it is our own doing.

Counters of the machine and of this job's processes are read a few times a second, and subtracted. Where a container sees the
counters of its host, those of the host are what is told: other processes there slow ours down as well.
"""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from components.resources import BFLOAT16_FLAGS, cpu_flags, physical_cores, usable_memory
from components.train.program.gpus import GpuSample, find_gpus

INTERVAL_S = 0.25
# More samples than this are thinned: a training may last for days.
MOST_SAMPLES = 2000
# Clocks of CPUs tick a hundred times a second: a shorter time shows no shares.
SHORTEST_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Counters at one moment: seconds, bytes and faults since some start; `running` and memory as they are. None: not told."""

    at: float
    busy_s: tuple[float, ...]
    total_s: tuple[float, ...]
    iowait_s: float
    own_s: float
    running: int | None
    major_faults: int | None
    disk_read: int | None
    disk_written: int | None
    network: int | None
    used_bytes: int
    gpus: tuple[GpuSample, ...]


def running_processes(stat: Path = Path("/proc/stat")) -> int | None:
    """Processes that run or wait for a CPU. Source: proc(5), procs_running."""
    for line in stat.read_text().splitlines() if stat.is_file() else ():
        if line.startswith("procs_running "):
            return int(line.split()[1])
    return None


def major_faults(pid: int) -> int:
    """Page faults of a process that a disk had to serve. Source: proc(5), field 12 of /proc/<pid>/stat."""
    # The name of the program stands in brackets, and may hold blanks and brackets itself.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[9])


class Sampler:
    """Samples in a thread while its block runs.

    Args:
        root: its processes, and all below it, are ours.
    """

    def __init__(self, root: int | None = None, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        first = psutil.Process(root)
        # All of a job's processes are there before its first step.
        self._own = [first, *first.children(recursive=True)]
        self._affinity = sorted(os.sched_getaffinity(0))
        self._gpus = find_gpus()
        self._samples: list[Sample] = []
        self.rss_bytes = 0

    def _run(self) -> None:
        while not self._end.wait(self._interval_s):
            self._take()

    def _take(self) -> None:
        cores = psutil.cpu_times(percpu=True)
        # A guest's time is in user already. Source: psutil.cpu_percent, which counts so.
        totals = [sum(core) - core.guest - core.guest_nice for core in cores]
        disk, network, memory = psutil.disk_io_counters(), psutil.net_io_counters(), psutil.virtual_memory()
        self.rss_bytes = max(self.rss_bytes, psutil.Process().memory_info().rss)
        own_s, faults = 0.0, 0
        for process in self._own:
            try:
                times = process.cpu_times()
                own_s, faults = own_s + times.user + times.system, faults + major_faults(process.pid)
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                continue  # it ended, and the job is about to
        self._samples.append(
            Sample(
                at=time.monotonic(),
                busy_s=tuple(total - core.idle - core.iowait for total, core in zip(totals, cores, strict=True)),
                total_s=tuple(totals),
                iowait_s=sum(core.iowait for core in cores),
                own_s=own_s,
                running=running_processes(),
                major_faults=faults,
                disk_read=disk and disk.read_bytes,
                disk_written=disk and disk.write_bytes,
                network=network and network.bytes_sent + network.bytes_recv,
                used_bytes=memory.total - memory.available,
                gpus=self._gpus.sample() if self._gpus else (),
            )
        )
        if len(self._samples) > MOST_SAMPLES:
            self._samples, self._interval_s = self._samples[::2], self._interval_s * 2

    def __enter__(self) -> "Sampler":
        self._take()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._take()

    def figures(self, since: float) -> dict[str, Any]:
        """What training.json says of the machine.

        Args:
            since: monotonic time at which the measured part began.
        """
        samples = [sample for sample in self._samples if sample.at >= since]
        if len(samples) < 2 or samples[-1].at - samples[0].at < SHORTEST_S:
            return {"cpu_percent_per_core": [], "rss_bytes": self.rss_bytes, "machine": None}
        return {
            "cpu_percent_per_core": [float(each) for each in _busy(samples) * 100],
            "rss_bytes": self.rss_bytes,
            "machine": _machine(samples, self._affinity),
        }


def _busy(samples: Sequence[Sample]) -> Any:
    """Share of each core's time in which it was busy, 0..1."""
    busy = np.subtract(samples[-1].busy_s, samples[0].busy_s)
    total = np.subtract(samples[-1].total_s, samples[0].total_s)
    return np.clip(busy / np.maximum(total, 1e-9), 0.0, 1.0)


def _machine(samples: Sequence[Sample], affinity: Sequence[int]) -> dict[str, Any]:
    """Means between the first and the last sample, by the names of components.measurements.MachineUse."""
    first, last = samples[0], samples[-1]
    seconds = last.at - first.at

    def a_second(name: str) -> float | None:
        before, after = getattr(first, name), getattr(last, name)
        return None if before is None or after is None else max(after - before, 0) / seconds

    busy, own = _busy(samples), (last.own_s - first.own_s) / seconds
    # Of a machine that we have a part of, the others on that part are in our way.
    ours = [busy[core] for core in affinity if core < len(busy)]
    running = [sample.running for sample in samples if sample.running is not None]
    total = sum(last.total_s) - sum(first.total_s)
    return {
        "own_cpus": own,
        "other_cpus": max(float(sum(ours)) - own, 0.0),
        "iowait_percent": 100 * max(last.iowait_s - first.iowait_s, 0.0) / max(total, 1e-9),
        "run_queue": sum(running) / len(running) / len(busy) if running else None,
        "major_faults_per_s": a_second("major_faults"),
        "disk_read_bytes_per_s": a_second("disk_read"),
        "disk_write_bytes_per_s": a_second("disk_written"),
        "network_bytes_per_s": a_second("network"),
        "memory_used_bytes": max(sample.used_bytes for sample in samples),
        "memory_bytes": usable_memory().bytes,
        "physical_cores": physical_cores(affinity),
        "bfloat16": not cpu_flags().isdisjoint(BFLOAT16_FLAGS),
        **_gpu_figures([sample.gpus for sample in samples]),
    }


def _gpu_figures(samples: Sequence[tuple[GpuSample, ...]]) -> dict[str, Any]:
    """Of the busiest GPU; nothing where there is none."""
    devices = list(zip(*samples, strict=True))
    if not devices:
        return {}
    busiest = max(devices, key=lambda device: sum(sample.percent for sample in device))
    p5, p95 = np.percentile([sample.percent for sample in busiest], [5, 95])
    power = [sample.power_w for sample in busiest if sample.power_w is not None]
    return {
        "gpu_percent_p5": float(p5),
        "gpu_percent_p95": float(p95),
        "gpu_memory_bytes": max(sample.memory_bytes for sample in busiest),
        "gpu_power_w": sum(power) / len(power) if power else None,
    }
