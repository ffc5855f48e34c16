"""Runs the race that the ladder asks for and writes plan.json and its report."""

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from components.errors import InvalidConfig
from components.instances import Instance, read_instances
from components.job_requests import Job
from components.job_settings import JobSettings
from components.manifest import Manifest, manifest_digest, read_manifest
from components.plan import LOCAL, STRATEGIES, Plan, Strategy
from components.plan_file import write_plan
from components.probes import measure_plan
from components.profile import Profile, read_profile
from components.reports import write_report
from components.select_strategy.advice import Ground, advised, ground_of, mixed_precision
from components.select_strategy.cost_model import Candidate, candidates, shortlist
from components.select_strategy.elsewhere import choose, placed
from components.select_strategy.ladder import Measured, forced, leader, measured, select
from components.select_strategy.limits import Limits
from components.select_strategy.race import Heat, heat_of, race
from components.select_strategy.report import page

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SelectConfig:
    """`force`: the strategy that a person demands, None = the ladder chooses. race_s: seconds each job of the race measures.

    instances: a user's file of instance types, laid over the catalogue.
    """

    force: Strategy | None = None
    race_s: float = 2.0
    limits: Limits = field(default_factory=Limits)
    instances: Path | None = None

    def __post_init__(self) -> None:
        if self.force is not None and self.force not in STRATEGIES:
            raise InvalidConfig(f"strategy {self.force!r}: choose one of {', '.join(STRATEGIES)}")
        if self.force is not None and (self.limits != Limits() or self.instances is not None):
            raise InvalidConfig(f"strategy {self.force!r} is demanded, so that limits and instances choose nothing; leave them out")
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
    asked, manifest = read_profile(profile), read_manifest(dataset)
    if asked.data_digest != manifest_digest(manifest):
        raise InvalidConfig(f"{profile}: was made from another dataset than {dataset}; run ctrflow profile on it")
    catalogue = read_instances(overrides=config.instances)
    here = _ground(asked, manifest, catalogue, jobs, jobs.instance_type)
    mixed = mixed_precision(here.work, asked=here.asked, sixteen_bits=here.sixteen_bits)
    profiled = replace(asked, settings=replace(asked.settings, mixed_precision=mixed))
    every = candidates(profiled)
    raced: tuple[Measured, ...] = ()
    weighed = None
    if config.force is None:
        raced = _race(shortlist(every), profiled, config, dataset, jobs)
        plan = replace(select(profiled, raced), encoding=manifest.encoding)
        weighed = choose(profiled, raced, leader(raced), manifest, catalogue, config.limits, jobs.instance_type)
        if weighed:
            plan = placed(plan, *weighed)
    else:
        plan = forced(profiled, config.force)
    there = jobs.instance_type if plan.instance_type == LOCAL else plan.instance_type
    plan = advised(plan, _ground(asked, manifest, catalogue, jobs, there))
    logger.info("plan: %s", plan.summary())
    command = shlex.join(("ctrflow", "select", str(profile), str(out.parent), "--dataset", str(dataset)))
    write_report(report, page(plan, manifest, every, raced, weighed, command))
    write_plan(out, plan)
    return plan


def figures(plan: Plan) -> dict[str, float | None]:
    """What KFP shows of a plan: its size, its rate as the race measured it and as it is expected, and an epoch's cost."""
    size = {name: float(getattr(plan, name)) for name in ("instance_count", "workers_per_host", "batch_size")}
    expected = ("measured_examples_per_s", "predicted_examples_per_s", "epoch_s", "epoch_usd")
    return {**size, **{name: getattr(plan, name) for name in expected}}


def _ground(profile: Profile, manifest: Manifest, catalogue: Sequence[Instance], jobs: JobSettings, name: str) -> Ground:
    """What the advice stands on, on an instance type of that name."""
    return ground_of(
        profile,
        manifest,
        next((one for one in catalogue if one.name == name), None),
        profiled=name == jobs.instance_type,
        in_s3=jobs.data_uri.startswith("s3://"),
        volume_bytes=Job.volume_gb * 1e9,
    )


def _race(
    runners: tuple[Candidate, ...], profile: Profile, config: SelectConfig, dataset: Path, jobs: JobSettings
) -> tuple[Measured, ...]:
    """Short real jobs. The single process runs again too: on a shared machine another minute is another speed."""

    def run(candidate: Candidate, number: int) -> Heat:
        task = f"race-{candidate.strategy}" if number == 0 else f"race-again-{candidate.strategy}"
        probe, result = measure_plan(candidate.plan(profile.settings), dataset, jobs, task=task, seconds=config.race_s)
        return heat_of(probe, result.losses)

    return tuple(measured(runner) for runner in race(runners, run))
