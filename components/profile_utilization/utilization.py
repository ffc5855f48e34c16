"""What the probes of a profile mean. Pure: numbers in, sentences out."""

from collections.abc import Sequence

from components.profile import FULL, INPUT_HEADROOM, NOISE, Probe, Profile, fastest

# Other processes that take more than this share of the usable CPUs make every rate look lower than it is.
DISTURBED = 0.1


def overlap(source: Probe, compute: Probe, both: Probe) -> float | None:
    """How much of the shorter of reading and computing is hidden behind the longer, 0..1: how good prefetching is.

    With perfect prefetching an example takes as long as the slower of the two, without any as long as both. None where the shorter
    one is lost in the noise of the measurement.
    """
    read_s, compute_s, both_s = (1 / probe.examples_per_s for probe in (source, compute, both))
    shorter = min(read_s, compute_s)
    if shorter < NOISE * both_s:
        return None
    return min(max((read_s + compute_s - both_s) / shorter, 0.0), 1.0)


def sentences(profile: Profile) -> tuple[str, ...]:
    """For the report, each with the numbers that it rests on."""
    probes = profile.of_kind("both")
    both = fastest(probes)
    source, compute = fastest(profile.of_kind("input")), fastest(profile.of_kind("compute"))
    return (
        _input_against_compute(source, compute, both),
        _overlapped(profile.overlap),
        _split(both),
        _filled(both),
        _threads(probes),
        _memory(both),
        *(_scaled(probe, both) for probe in profile.scaling),
    )


def warnings(profile: Profile) -> tuple[str, ...]:
    """What makes the measurements worth less."""
    found = []
    for probe in (*profile.probes, *profile.trials):
        # Locally, the hosts of a job are other processes to each other.
        if probe.machine and probe.machine.other_cpus > DISTURBED * probe.usable_cpus:
            found.append(f"{probe.kind}, {probe.threads}: {probe.machine.other_cpus:.1f}")
    said = []
    if found:
        said.append(f"Other processes took CPUs meanwhile, rates are lower than on an idle machine: {'; '.join(found)}.")
    wide = [probe for probe in profile.probes if probe.rate_low is None]
    if wide:
        said.append(f"Too few steps for a confidence interval: {', '.join(f'{probe.kind} {probe.threads}' for probe in wide)}.")
    return tuple(said)


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


def _overlapped(hidden: float | None) -> str:
    if hidden is None:
        return f"Reading takes less than {NOISE:.0%} of a step: there is nothing for prefetching to hide."
    return f"Prefetching hides {hidden:.0%} of the shorter of reading and computing behind the longer."


def _split(both: Probe) -> str:
    parts = {
        "waiting for input": both.input_wait_share,
        "computing": both.compute_share,
        "communicating": both.communication_share,
        "of it asking parameter servers": both.parameter_server_share,
    }
    said = ", ".join(f"{share:.0%} {name}" for name, share in parts.items() if share is not None)
    return f"A step of {both.step_p50_s * 1000:.1f} ms is {said}." if said else "How a step divides is not known."


def _filled(both: Probe) -> str:
    if both.busy_cores == 0:
        return "CPU use was not sampled: the probe was too short."
    verdict = "one process fills the machine" if both.utilization >= FULL else "one process leaves CPUs idle"
    cores = both.machine.physical_cores if both.machine else None
    threads = f", on {cores} physical cores" if cores else ""
    return (
        f"{both.busy_cores:.1f} of {both.usable_cpus:g} usable CPUs are busy ({both.utilization:.0%}; usable by "
        f"{both.usable_cpus_source}{threads}): {verdict}."
    )


def _memory(both: Probe) -> str:
    said = f"Memory: {both.rss_bytes / 2**20:,.0f} MiB resident in the training process"
    if both.machine is None:
        return f"{said}."
    return (
        f"{said}; the machine uses {both.machine.memory_used_bytes / 2**30:.1f} GiB, "
        f"this container may have {both.machine.memory_bytes / 2**30:.1f}."
    )


def _scaled(probe: Probe, single: Probe) -> str:
    ratio = probe.examples_per_s / single.examples_per_s
    sent = "" if not probe.bytes_per_step else f", {probe.bytes_per_step / 1e6:.2f} MB sent by a worker in a step"
    return (
        f"{probe.strategy}, {probe.hosts} host(s) x {probe.workers_per_host} worker(s): {probe.rate()}, {ratio:.2f} times one "
        f"process, {probe.communication_share or 0:.0%} of a step communicating{sent}."
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
