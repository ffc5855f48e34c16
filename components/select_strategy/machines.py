"""Machines that were not measured: how fast a core of theirs is beside the profiled one's, and how sure that is.

Ratios are guesses, each with a standard deviation that ends up in a plan's bounds. The profiled machine needs none.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from components.instances import Instance

# Speed of a core beside a c5's: sustained clocks, times 1.15 for each generation of cores, which is what AWS claims for c6i over c5
# and for c7i over c6i. None of them was measured here, so LISTED is wide.
_CORE_SPEED: Mapping[str, float] = {
    "m5": 0.9,
    "c5": 1.0,
    "m6i": 1.12,
    "c6i": 1.15,
    "m7i": 1.28,
    "c7i": 1.32,
    "g4dn": 0.9,
    "g5": 1.0,
    "g6": 1.15,
    "p3": 0.75,
    "p3dn": 0.85,
    "p4d": 0.9,
}
# Standard deviations, relative: another size of the profiled family, another family that is listed, one that is not.
SAME_FAMILY, LISTED, UNLISTED = 0.08, 0.2, 0.35
# What a second hyper-thread adds to a core; 0.15 to 0.3 is usual for products of matrices and memory-bound work together.
HYPER_THREAD = 0.25
# A data sheet's float32 operations a second, the share of them that the small matrices of such a model may reach, and bytes a
# second of embedding rows: guesses on the fast side, so that a GPU is not called full too early.
_GPU_FLOPS: Mapping[str, float] = {"T4": 8.1e12, "A10G": 31e12, "L4": 30e12, "V100": 15.7e12, "A100": 19.5e12}
_UNKNOWN_GPU_FLOPS = 20e12
_GPU_REACHED, _GPU_BYTES_PER_S, GPU_SD = 0.15, 3e11, 0.5
# Starting the kernels of a step: some 200 of 10 microseconds each, a guess.
GPU_STARTS_S = 2e-3


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine of a cluster, beside the profiled one.

    Attributes:
        cores: that all its workers share, hyper-threads counted for what they add.
        speed: of a core, the profiled machine's being 1. sd: of that, relative; 0 where it was measured.
        usd_per_hour: None where it has no price.
        measured: whether it is the machine that the probes ran on.
    """

    name: str
    family: str
    vcpus: int
    cores: float
    speed: float
    sd: float
    link_bytes_per_s: float
    memory_bytes: float
    usd_per_hour: float | None
    measured: bool
    basis: str
    gpus: int = 0
    gpu: str = ""
    gpu_flops: float = 0.0


def effective_cores(vcpus: float, physical_cores: float) -> float:
    """Cores' worth of work of all hyper-threads together."""
    return physical_cores + HYPER_THREAD * max(vcpus - physical_cores, 0.0)


def unpriced_host(name: str, usable_cpus: float, physical_cores: int | None, memory_bytes: float) -> Host:
    """The machine that was profiled, where the catalogue does not have it."""
    return Host(
        name=name,
        family="",
        vcpus=int(usable_cpus),
        cores=effective_cores(usable_cpus, min(physical_cores or usable_cpus, usable_cpus)),
        speed=1.0,
        sd=0.0,
        # Several hosts are then addresses of this machine.
        link_bytes_per_s=1e9,
        memory_bytes=memory_bytes,
        usd_per_hour=None,
        measured=True,
        basis="profiled",
    )


def host_of(instance: Instance, base: Instance | None) -> Host:
    """A machine of the catalogue beside the profiled one; base None = that one is not in the catalogue."""
    here = _CORE_SPEED.get(base.family) if base else None
    there = _CORE_SPEED.get(instance.family)
    if base and instance.name == base.name:
        speed, sd, basis = 1.0, 0.0, "profiled"
    elif base and instance.family == base.family:
        speed, sd = 1.0, SAME_FAMILY
        basis = f"cores as fast as those of {base.name}, {instance.physical_cores} instead of {base.physical_cores}"
    elif here and there and base:
        speed, sd = there / here, LISTED
        basis = f"cores taken for {speed:.2f} times as fast as those of {base.name}, by generation and clock"
    else:
        speed, sd, basis = 1.0, UNLISTED, "cores taken for as fast as the profiled ones: nothing better is known"
    return Host(
        name=instance.name,
        family=instance.family,
        vcpus=instance.vcpus,
        cores=effective_cores(instance.vcpus, instance.physical_cores),
        speed=speed,
        sd=sd,
        link_bytes_per_s=instance.network_gbit_s * 1e9 / 8,
        memory_bytes=instance.memory_gib * 2**30,
        usd_per_hour=instance.usd_per_hour,
        measured=sd == 0.0,
        basis=basis,
        gpus=instance.gpus,
        gpu=instance.gpu,
        gpu_flops=_GPU_REACHED * _GPU_FLOPS.get(instance.gpu, _UNKNOWN_GPU_FLOPS),
    )


def gpu_step_s(host: Host, *, products: float, cell_bytes: float) -> float:
    """Seconds that one GPU computes in a step of so many operations and bytes of embedding rows."""
    return products / host.gpu_flops + cell_bytes / _GPU_BYTES_PER_S
