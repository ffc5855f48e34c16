"""Runs the race that the ladder asks for and writes plan.json and its report."""

import logging
from dataclasses import dataclass
from pathlib import Path

from components.errors import InvalidConfig
from components.manifest import Manifest, manifest_digest, read_manifest
from components.plan import STRATEGIES, Plan, Strategy, write_plan
from components.probes import JobSettings, Profile, read_profile, run_probe
from components.reports import Page, write_report
from components.select_strategy.cost_model import Candidate, candidates, shortlist
from components.select_strategy.ladder import Measured, forced, leader, mean, select

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SelectConfig:
    """`force`: the strategy that a person demands, None = the ladder chooses. race_s: seconds each job of the race measures."""

    force: Strategy | None = None
    race_s: float = 2.0

    def __post_init__(self) -> None:
        if self.force is not None and self.force not in STRATEGIES:
            raise InvalidConfig(f"strategy {self.force!r}: choose one of {', '.join(STRATEGIES)}")
        if not self.race_s > 0:
            raise InvalidConfig(f"race_s {self.race_s}: must be above 0 seconds")


def select_strategy(config: SelectConfig, profile: Path, dataset: Path, out: Path, report: Path, jobs: JobSettings) -> Plan:
    """Choose the plan, from the profile and a race of the best predicted candidate of each kind.

    Args:
        profile: profile.json of the same dataset. out: plan.json. report: an HTML page.
    Raises:
        InvalidConfig: profile and dataset do not belong together, or the forced strategy is impossible.
        TrainingJobFailed: a job of the race did not complete.
    """
    measured, manifest = read_profile(profile), read_manifest(dataset)
    if measured.data_digest != manifest_digest(manifest):
        raise InvalidConfig(f"{profile}: was made from another dataset than {dataset}; run ctrflow profile on it")
    every = candidates(measured)
    race: tuple[Measured, ...] = ()
    if config.force is None:
        race = _race(shortlist(every), measured, config, dataset, jobs)
        plan = select(measured, race)
    else:
        plan = forced(measured, config.force)
    logger.info("plan: %s", plan.summary())
    write_report(report, _page(plan, manifest, every, race))
    write_plan(out, plan)
    return plan


def _race(
    runners: tuple[Candidate, ...], profile: Profile, config: SelectConfig, dataset: Path, jobs: JobSettings
) -> tuple[Measured, ...]:
    """One short real job each. The single process runs again too: on a shared machine another minute is another speed.

    A challenger that wins must win again beside the single process: the means of both jobs are compared.
    """

    def run(candidate: Candidate, task: str) -> Measured:
        plan = candidate.plan(profile.settings)
        return Measured(candidate=candidate, probe=run_probe(plan, dataset, jobs, task=task, kind="both", seconds=config.race_s))

    race = [run(candidate, f"race-{candidate.strategy}") for candidate in runners]
    if leader(race) is not race[0]:
        # More workers on the same CPUs seldom win, and something else that ran on them meanwhile looks just like it.
        doubted = (0, race.index(leader(race)))
        for index in doubted:
            again = run(race[index].candidate, f"race-again-{race[index].candidate.strategy}")
            race[index] = mean(race[index], again)
    return tuple(race)


def _page(plan: Plan, manifest: Manifest, every: tuple[Candidate, ...], race: tuple[Measured, ...]) -> Page:
    rate = plan.measured_examples_per_s
    page = Page("Training strategy", f"{plan.summary()}{f': {rate:,.0f} examples/s measured' if rate else ''}")
    if rate:
        rows = manifest.train.examples
        page.paragraph(f"One epoch of {rows:,} examples takes about {rows / rate:,.1f} s at that speed, start-up not included.")
    page.section("The ladder, rung by rung")
    page.table(
        ["rung", "", "decision", "measured", "instead of"],
        [[rung.name, "yes" if rung.passed else "no", rung.decision, rung.measured, rung.beat or "–"] for rung in plan.rungs],
    )
    page.section("The race")
    if race:
        page.bars("Examples a second in a real job", "examples/s", [(str(one.candidate), one.probe.examples_per_s) for one in race])
    else:
        page.warning(f"There was no race: {plan.strategy} was demanded.")
    page.section("Candidates and predictions")
    page.paragraph("Predictions for several workers are upper bounds: combining gradients is taken to cost nothing.")
    page.table(
        ["candidate", "predicted examples/s", "basis"],
        [[str(one), f"{one.predicted_examples_per_s:,.0f}", one.basis] for one in every],
    )
    return page
