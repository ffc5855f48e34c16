"""What this container really has: CPUs by quota and affinity, what they can do, memory by limit."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
TOPOLOGY = Path("/sys/devices/system/cpu")
CPU_INFO = Path("/proc/cpuinfo")
# What Linux calls instructions that multiply bfloat16 and add up in float32.
BFLOAT16_FLAGS = ("amx_bf16", "avx512_bf16")


@dataclass(frozen=True)
class UsableCpus:
    """A count and the reason for it."""

    count: int
    source: str


def _quota(cgroup: Path) -> tuple[float | None, str]:
    """CPUs that the cgroup allows, None without a limit, and where that was read. Source: kernel, cgroup-v2.rst and
    sched-bwc.rst.
    """
    v2, v1 = cgroup / "cpu.max", cgroup / "cpu" / "cpu.cfs_quota_us"
    try:
        if v2.is_file():
            quota, _, period = v2.read_text().partition(" ")
            return (None if quota.strip() == "max" else int(quota) / int(period)), "cgroup v2"
        if v1.is_file():
            microseconds = int(v1.read_text())
            period_us = int((cgroup / "cpu" / "cpu.cfs_period_us").read_text())
            return (None if microseconds < 0 else microseconds / period_us), "cgroup v1"
    except (OSError, ValueError, ZeroDivisionError) as error:
        return None, f"an unreadable cgroup quota ({type(error).__name__}), taken as none"
    return None, "no cgroup quota"


def usable_cpus(cgroup: Path = CGROUP, host: int | None = None, affinity: int | None = None) -> UsableCpus:
    """CPUs this process may keep busy: the smallest of quota (rounded down, at least 1), affinity mask and host."""
    host = host or os.cpu_count() or 1
    affinity = affinity or len(os.sched_getaffinity(0))
    quota, source = _quota(cgroup)
    limits = [(host, "host"), (affinity, "affinity mask")]
    if quota is not None:
        limits.append((max(int(quota), 1), f"{source} quota of {quota:g}"))
    count, reason = min(limits)
    note = f"; {source}" if quota is None and "unreadable" in source else ""
    return UsableCpus(count, reason + note)


def physical_cores(cpus: Iterable[int] | None = None, topology: Path = TOPOLOGY) -> int | None:
    """Cores under these CPUs, by default those of the affinity mask: hyper-threads of one core share it. None: not told.

    Source: kernel, admin-guide/cputopology.rst; CPUs with the same core_cpus_list (older: thread_siblings_list) are one core.
    """
    cores = set()
    for cpu in os.sched_getaffinity(0) if cpus is None else cpus:
        folder = topology / f"cpu{cpu}" / "topology"
        names = [folder / name for name in ("core_cpus_list", "thread_siblings_list") if (folder / name).is_file()]
        if not names:
            return None
        cores.add(names[0].read_text().strip())
    return len(cores)


@dataclass(frozen=True)
class UsableMemory:
    """Bytes and the reason for them."""

    bytes: int
    source: str


def _memory_limit(cgroup: Path) -> tuple[int | None, str]:
    """Bytes that the cgroup allows, None without a limit, and where that was read. Source: kernel, cgroup-v2.rst and
    cgroup-v1/memory.rst.
    """
    v2, v1 = cgroup / "memory.max", cgroup / "memory" / "memory.limit_in_bytes"
    try:
        if v2.is_file():
            text = v2.read_text().strip()
            return (None if text == "max" else int(text)), "cgroup v2"
        if v1.is_file():
            # Without a limit version 1 says the largest whole number of pages, far more than any host has.
            return int(v1.read_text()), "cgroup v1"
    except (OSError, ValueError) as error:
        return None, f"an unreadable cgroup memory limit ({type(error).__name__}), taken as none"
    return None, "no cgroup memory limit"


def usable_memory(cgroup: Path = CGROUP, host: int | None = None) -> UsableMemory:
    """Bytes that this container may hold: the smaller of its limit and the host's memory."""
    host = host or psutil.virtual_memory().total
    limit, source = _memory_limit(cgroup)
    if limit is not None and 0 < limit < host:
        return UsableMemory(limit, f"{source} limit")
    return UsableMemory(host, f"host; {source}" if "unreadable" in source else "host")


def cpu_flags(path: Path = CPU_INFO) -> frozenset[str]:
    """What the CPU can do, in Linux's words; empty where that cannot be read or is said otherwise."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.partition(":")[0].strip() == "flags"), "")
    return frozenset(flags.split())
