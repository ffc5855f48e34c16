"""What the probes of a profile mean, and which to run. Pure: numbers in, sentences and settings out."""

from collections.abc import Sequence

from components.plan import Threads
from components.probes import FULL, INPUT_HEADROOM, NOISE, Probe, Profile, fastest


def thread_candidates(usable_cpus: float) -> tuple[Threads, ...]:
    """Thread settings worth trying besides the defaults, the most different first.

    Starting points of the article, item 1: half the vCPUs, which are the physical cores where each has two hyper-threads, bound
    to them; and all vCPUs, not bound. The latter differs from TensorFlow's defaults where a CPU quota hides CPUs that it counts.
    """
    every = max(1, int(usable_cpus))
    half = max(1, every // 2)
    bound = Threads(intra_op=half, inter_op=half, omp=half, kmp_affinity="granularity=fine,compact,1,0")
    free = Threads(intra_op=every, inter_op=every, omp=every, kmp_affinity="disabled")
    return (free,) if half == every else (bound, free)


def another_fits(job_seconds: Sequence[float], budget_s: float) -> bool:
    """Whether one more job like the longest so far still ends within the budget."""
    return not job_seconds or sum(job_seconds) + max(job_seconds) <= budget_s


def findings(profile: Profile) -> tuple[str, ...]:
    """Sentences for the report, each with the numbers that it rests on."""
    both = fastest(profile.of_kind("both"))
    source, compute = fastest(profile.of_kind("input")), fastest(profile.of_kind("compute"))
    return (
        _input_against_compute(source, compute, both),
        _filled(both),
        _threads(profile.of_kind("both")),
        f"Memory: {both.rss_bytes / 2**20:,.0f} MiB resident in the training process.",
    )


def _input_against_compute(source: Probe, compute: Probe, both: Probe) -> str:
    ratio = source.examples_per_s / compute.examples_per_s
    verdict = (
        "the input pipeline keeps up"
        if ratio >= INPUT_HEADROOM
        else "the input pipeline limits training: use the blocks encoding and more input threads before more workers"
    )
    return (
        f"Input alone delivers {source.examples_per_s:,.0f} examples/s, {ratio:.1f} times what compute alone takes "
        f"({compute.examples_per_s:,.0f}); together they reach {both.examples_per_s:,.0f}, with {both.input_wait_share or 0:.0%} "
        f"of a step waiting for input: {verdict}."
    )


def _filled(both: Probe) -> str:
    if not both.cpu_percent_per_core:
        return "CPU use was not sampled: the probe was too short."
    verdict = "one process fills the machine" if both.utilization >= FULL else "one process leaves CPUs idle"
    return (
        f"{both.busy_cores:.1f} of {both.usable_cpus:g} usable CPUs are busy ({both.utilization:.0%}; usable by "
        f"{both.usable_cpus_source}): {verdict}."
    )


def _threads(probes: Sequence[Probe]) -> str:
    default, best = probes[0], fastest(probes)
    gain = best.examples_per_s / default.examples_per_s - 1
    if len(probes) == 1:
        return f"Only {default.threads} were tried: {default.examples_per_s:,.0f} examples/s."
    if gain <= NOISE:
        return (
            f"None of {len(probes)} thread settings beats {default.threads} ({default.examples_per_s:,.0f} examples/s) by more "
            f"than {NOISE:.0%}."
        )
    return (
        f"{best.threads} is fastest: {best.examples_per_s:,.0f} examples/s, {gain:.0%} more than {default.threads} "
        f"({default.examples_per_s:,.0f})."
    )
