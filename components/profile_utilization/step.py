"""Runs the probes and writes profile.json and its report."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from components.errors import InvalidConfig
from components.manifest import manifest_digest, read_manifest
from components.plan import ModelSettings, Plan, ProbeKind, Threads, direct_plan
from components.probes import JobSettings, Probe, Profile, fastest, run_probe, write_profile
from components.profile_utilization.utilization import another_fits, findings, thread_candidates
from components.reports import Page, write_report

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProfileConfig:
    """How long to look, in seconds. The three basic probes always run; thread settings only while the budget lasts."""

    settings: ModelSettings = field(default_factory=ModelSettings)
    budget_s: float = 45.0
    probe_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.probe_s <= self.budget_s:
            raise InvalidConfig(f"probe_s {self.probe_s}: must be above 0 and at most budget_s {self.budget_s}")


def profile_utilization(config: ProfileConfig, dataset: Path, out: Path, report: Path, jobs: JobSettings) -> Profile:
    """Measure input alone, compute alone, both, and a few thread settings, on one host and one process.

    Args:
        out: profile.json. report: an HTML page.
    Raises:
        InvalidRecords: the dataset has no valid manifest.
        TrainingJobFailed: a probe did not complete.
    """
    manifest = read_manifest(dataset)
    probes: list[Probe] = []

    def measure(kind: ProbeKind, threads: Threads) -> Probe:
        plan: Plan = direct_plan("single", config.settings, threads=threads)
        task = f"profile-{len(probes)}-{kind}"
        probe = run_probe(plan, dataset, jobs, task=task, kind=kind, seconds=config.probe_s)
        probes.append(probe)
        return probe

    first = measure("both", Threads())
    measure("compute", Threads())
    measure("input", Threads())
    skipped: list[Threads] = []
    for threads in thread_candidates(first.usable_cpus):
        if another_fits([probe.job_s for probe in probes], config.budget_s):
            measure("both", threads)
        else:
            skipped.append(threads)
            logger.info("no time left in the budget of %.0f s for %s", config.budget_s, threads)
    profile = Profile(
        data_digest=manifest_digest(manifest),
        dataset=str(dataset.absolute()),
        train_examples=manifest.train.examples,
        settings=config.settings,
        probe_s=config.probe_s,
        probes=tuple(probes),
    )
    write_report(report, _page(profile, skipped, config.budget_s))
    write_profile(out, profile)
    return profile


def _page(profile: Profile, skipped: list[Threads], budget_s: float) -> Page:
    both = profile.of_kind("both")
    best = fastest(both)
    page = Page(
        "Utilization of one training process",
        f"{best.examples_per_s:,.0f} examples/s with {best.threads}, {best.utilization:.0%} of {best.usable_cpus:g} CPUs busy",
    )
    page.section("What the measurements say")
    for sentence in findings(profile):
        page.paragraph(sentence)
    for threads in skipped:
        page.warning(f"Not tried, the budget of {budget_s:g} s was used up: {threads}.")
    page.section("Speed")
    page.bars(
        f"Examples a second, batch {profile.settings.batch_size}, {profile.probe_s:g} s each",
        "examples/s",
        # Input alone is often a hundred times as fast and would leave the other bars a pixel wide; the table has it.
        [(f"{probe.kind}: {probe.threads}", probe.examples_per_s) for probe in profile.probes if probe.kind != "input"],
    )
    page.section("CPU use")
    for probe in both:
        cores = [(f"core {index}", percent) for index, percent in enumerate(probe.cpu_percent_per_core)]
        page.bars(f"CPU per core, {probe.threads}", "%", cores)
    page.section("All probes")
    page.table(
        ["probe", "threads", "examples/s", "step p50 ms", "step p99 ms", "input wait", "CPU", "memory MiB", "job s"],
        [
            [
                probe.kind,
                str(probe.threads),
                f"{probe.examples_per_s:,.0f}",
                f"{probe.step_p50_s * 1000:.1f}",
                f"{probe.step_p99_s * 1000:.1f}",
                "–" if probe.input_wait_share is None else f"{probe.input_wait_share:.0%}",
                f"{probe.utilization:.0%}",
                f"{probe.rss_bytes / 2**20:,.0f}",
                f"{probe.job_s:.1f}",
            ]
            for probe in profile.probes
        ],
    )
    return page
