"""What the hosts of the local endpoint are made of."""

import os
from collections.abc import Set
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What hosts are made of here.

    Attributes:
        stop_grace_s: between SIGTERM and SIGKILL.
        cpus_per_host: host n of a job has the CPUs n * cpus_per_host ..., round and round this machine's; 0: each has all of them.
        lacking: instance types of which there are none.
    """

    stop_grace_s: float
    cpus_per_host: int
    lacking: Set[str]

    def cpus(self, host: int) -> list[int]:
        all_cpus = sorted(os.sched_getaffinity(0))
        first = host * self.cpus_per_host
        return sorted({all_cpus[cpu % len(all_cpus)] for cpu in range(first, first + self.cpus_per_host)})
