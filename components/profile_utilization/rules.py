"""Findings by the names that people know from SageMaker's profiler, each with its number, its threshold and what to do. Pure.

Thresholds are those of SageMaker Debugger's profiler rules, which are being withdrawn (shared facts, 2026): CPUBottleneck 90,
IOBottleneck 50, LowGPUUtilization 70 at the 95th percentile, BatchSize 70 at the 95th, StepOutlier 3 standard deviations,
LoadBalancing 0.5. Where there is no GPU, BatchSize is measured by a larger batch, and CPUBottleneck has the CPUs that a container
may use. A rule that could not be looked at is not in the list.
"""

from collections.abc import Sequence

from components.measurements import Finding
from components.profile import NOISE, Probe, Profile, fastest

CPU_PERCENT, IO_PERCENT, GPU_PERCENT, GPU_IDLE_PERCENT = 90.0, 50.0, 70.0, 10.0
# A normal distribution has 0.13 % of its values beyond 3 standard deviations.
OUTLIER_PERCENT = 1.0
LARGEST_SKEW = 0.5


def findings(profile: Profile) -> tuple[Finding, ...]:
    """What the rules say, in a fixed order."""
    both = fastest(profile.of_kind("both"))
    found = (_cpu(both), _io(both), _gpu(both), _batch(profile, both), _outliers(both), _balance(profile.scaling))
    return tuple(each for each in found if each is not None)


def _cpu(both: Probe) -> Finding | None:
    if both.busy_cores == 0:
        return None
    percent, gpu = 100 * both.utilization, both.machine.gpu_percent_p95 if both.machine else None
    starved = gpu is None or gpu < GPU_IDLE_PERCENT
    found = percent >= CPU_PERCENT and starved
    return Finding(
        rule="CPUBottleneck",
        found=found,
        number=percent,
        threshold=CPU_PERCENT,
        unit="% of the usable CPUs busy",
        says=f"{both.busy_cores:.1f} of {both.usable_cpus:g} CPUs ({both.usable_cpus_source})",
        advice="one process fills this machine: a larger instance is next, then several" if found else "none",
    )


def _io(both: Probe) -> Finding | None:
    iowait = both.machine.iowait_percent if both.machine else None
    waits = {"of a step waiting for input": both.input_wait_share and 100 * both.input_wait_share, "of CPU time in iowait": iowait}
    known = {unit: percent for unit, percent in waits.items() if percent is not None}
    if not known:
        return None
    unit = max(known, key=lambda name: known[name])
    found = known[unit] >= IO_PERCENT
    return Finding(
        rule="IOBottleneck",
        found=found,
        number=known[unit],
        threshold=IO_PERCENT,
        unit=f"% {unit}",
        says="; ".join(f"{percent:.1f}% {name}" for name, percent in known.items()),
        advice="encoding blocks, several shards read side by side, FastFile mode or a faster disk" if found else "none",
    )


def _gpu(both: Probe) -> Finding | None:
    machine = both.machine
    if machine is None or machine.gpu_percent_p95 is None or machine.gpu_percent_p5 is None:
        return None
    found = machine.gpu_percent_p95 < GPU_PERCENT and machine.gpu_percent_p5 < GPU_IDLE_PERCENT
    return Finding(
        rule="LowGPUUtilization",
        found=found,
        number=machine.gpu_percent_p95,
        threshold=GPU_PERCENT,
        unit="% of the busiest GPU at the 95th percentile",
        says=f"{machine.gpu_percent_p5:.0f}% at the 5th percentile, {machine.gpu_percent_p95:.0f}% at the 95th",
        advice="a larger batch, a faster input, or a CPU instance, which costs less for the same result" if found else "none",
    )


def _batch(profile: Profile, both: Probe) -> Finding | None:
    """By a batch that was tried; the faster rate of a larger batch is speed only, what it learns is another matter."""
    larger = [probe for probe in profile.trials if probe.kind == "both" and probe.batch_size > both.batch_size]
    if not larger:
        return None
    best = fastest(larger)
    gain = 100 * (best.examples_per_s / both.examples_per_s - 1)
    found = gain > 100 * NOISE
    return Finding(
        rule="BatchSize",
        found=found,
        number=gain,
        threshold=100 * NOISE,
        unit=f"% more examples/s with batch {best.batch_size}",
        says=f"{best.rate()} with batch {best.batch_size}, {both.rate()} with {both.batch_size}",
        advice=f"--batch-size {best.batch_size}, if the model learns as well with it" if found else "none",
    )


def _outliers(both: Probe) -> Finding | None:
    if both.outlier_share is None:
        return None
    percent, found = 100 * both.outlier_share, 100 * both.outlier_share > OUTLIER_PERCENT
    return Finding(
        rule="StepOutlier",
        found=found,
        number=percent,
        threshold=OUTLIER_PERCENT,
        unit="% of steps longer than the mean by 3 standard deviations",
        says=f"half of the steps within {both.step_p50_s * 1000:.1f} ms, one in a hundred over {both.step_p99_s * 1000:.1f} ms",
        advice="look for what else runs on the machine, and for a cache or shard boundary that stalls reading" if found else "none",
    )


def _balance(scaling: Sequence[Probe]) -> Finding | None:
    skewed = [(probe.rank_skew, probe) for probe in scaling if probe.rank_skew is not None]
    if not skewed:
        return None
    skew, probe = max(skewed, key=lambda each: each[0])
    found = skew > LARGEST_SKEW
    return Finding(
        rule="LoadBalancing",
        found=found,
        number=skew,
        threshold=LARGEST_SKEW,
        unit="of the mean: how much longer the slowest worker computes",
        says=f"{probe.strategy}, {probe.hosts} x {probe.workers_per_host} workers",
        advice="fewer threads a worker, so that workers do not share cores; hosts of one type" if found else "none",
    )
