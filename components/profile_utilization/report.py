"""The report of a profile."""

from collections.abc import Sequence

from components.profile import Probe, Profile, fastest
from components.profile_utilization.budget import cost
from components.profile_utilization.utilization import sentences, warnings
from components.reports import Page


def profile_page(profile: Profile, left_out: Sequence[str]) -> Page:
    """Findings first, then speed, CPU use, and every probe.

    Args:
        left_out: what there was no time for.
    """
    both = profile.of_kind("both")
    best = fastest(both)
    page = Page(
        "Utilization of one training process",
        f"{best.examples_per_s:,.0f} examples/s with {best.threads}, {best.utilization:.0%} of {best.usable_cpus:g} CPUs busy",
    )
    page.section("What the measurements say")
    for sentence in sentences(profile):
        page.paragraph(sentence)
    for warning in warnings(profile):
        page.warning(warning)
    page.section("Rules")
    page.table(
        ["rule", "", "number", "threshold", "measured", "what to do"],
        [
            [
                each.rule,
                "found" if each.found else "no",
                f"{each.number:.3g}",
                f"{each.threshold:g} {each.unit}",
                each.says,
                each.advice,
            ]
            for each in profile.findings
        ],
    )
    page.section("Speed")
    every = (*profile.probes, *profile.trials, *profile.scaling)
    page.bars(
        f"Examples a second, at least {profile.probe_s:g} s each or until known within a few percent",
        "examples/s",
        # Input alone is often a hundred times as fast and would leave the other bars a pixel wide; the table has it.
        [(_label(probe), probe.examples_per_s) for probe in every if probe.kind != "input"],
    )
    page.section("CPU use")
    for probe in both:
        cores = [(f"core {index}", percent) for index, percent in enumerate(probe.cpu_percent_per_core)]
        page.bars(f"CPU per core, {probe.threads}", "%", cores)
    page.section("All probes")
    page.table(
        ["probe", "examples/s", "95 % interval", "warm-up", "step p50 ms", "p99", "input wait", "CPU", "MiB", "job s"],
        [_row(probe) for probe in every],
    )
    _machine(page, every)
    page.section("What probing cost")
    page.paragraph(f"Expected at most {cost(profile.expected_s or 0, profile.expected_usd)}.")
    page.paragraph(f"It took {cost(profile.cost_s or 0, profile.cost_usd)}.")
    for what in left_out:
        page.warning(f"Not tried, the budget was used up: {what}.")
    return page


def _label(probe: Probe) -> str:
    workers = "" if probe.strategy == "single" else f"{probe.strategy} {probe.hosts} x {probe.workers_per_host}, "
    return f"{probe.kind}: {workers}batch {probe.batch_size}, {probe.threads}"


def _row(probe: Probe) -> list[str]:
    known = probe.rate_low is not None and probe.rate_high is not None
    return [
        f"{_label(probe)}, {probe.input}",
        f"{probe.examples_per_s:,.0f}",
        f"{probe.rate_low:,.0f} to {probe.rate_high:,.0f}" if known else "–",
        f"{probe.warmup_steps}",
        f"{probe.step_p50_s * 1000:.1f}",
        f"{probe.step_p99_s * 1000:.1f}",
        "–" if probe.input_wait_share is None else f"{probe.input_wait_share:.0%}",
        f"{probe.utilization:.0%}",
        f"{probe.rss_bytes / 2**20:,.0f}",
        f"{probe.job_s:.1f}",
    ]


def _machine(page: Page, probes: Sequence[Probe]) -> None:
    """What the machine did during each probe; a dash where the system does not tell."""
    used = [(probe, probe.machine) for probe in probes if probe.machine]
    if not used:
        return

    def shown(value: float | None, scale: float = 1.0) -> str:
        return "–" if value is None else f"{value / scale:,.2f}"

    page.section("The machine meanwhile")
    page.table(
        ["probe", "own CPUs", "others'", "run queue a CPU", "iowait %", "faults/s", "read MB/s", "write MB/s", "network MB/s"],
        [
            [
                _label(probe),
                shown(machine.own_cpus),
                shown(machine.other_cpus),
                shown(machine.run_queue),
                shown(machine.iowait_percent),
                shown(machine.major_faults_per_s),
                shown(machine.disk_read_bytes_per_s, 1e6),
                shown(machine.disk_write_bytes_per_s, 1e6),
                shown(machine.network_bytes_per_s, 1e6),
            ]
            for probe, machine in used
        ],
    )
    gpus = [(_label(probe), machine.gpu_percent_p95) for probe, machine in used if machine.gpu_percent_p95 is not None]
    if gpus:
        page.bars("Busiest GPU, 95th percentile", "%", gpus)
