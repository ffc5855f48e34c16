"""Runs the probes and writes profile.json and its report."""

import logging
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from components.conversion import convert_dataset
from components.errors import InvalidConfig
from components.instances import read_instances
from components.job_settings import JobSettings
from components.manifest import Manifest, manifest_digest, read_manifest
from components.plan import ModelSettings, Plan, ProbeWish, Threads, direct_plan
from components.probes import PRECISION, run_probes
from components.profile import INPUT_HEADROOM, Probe, Profile, fastest, write_profile
from components.profile_utilization.budget import LOCAL_S, PAID_S, Budget, cost, usd
from components.profile_utilization.report import profile_page
from components.profile_utilization.rules import findings
from components.profile_utilization.search import input_candidates, scaling_candidates, successive_halving, thread_candidates
from components.profile_utilization.utilization import overlap
from components.reports import write_report

logger = logging.getLogger(__name__)

# Written again in another encoding only to be probed: it must not take longer than the probe.
CONVERTED_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class ProfileConfig:
    """How long to look, in seconds. The three basic parts are always measured; the rest only while the budget lasts.

    budget_s 0: LOCAL_S of this machine's time, or PAID_S paid seconds where jobs are paid. A part is measured for probe_s, or less
    when its rate is known within `precision`. instances: a user's file of instance types, laid over the catalogue.
    """

    settings: ModelSettings = field(default_factory=ModelSettings)
    budget_s: float = 0.0
    probe_s: float = 2.0
    precision: float = PRECISION
    instances: Path | None = None

    def __post_init__(self) -> None:
        if not self.probe_s > 0 or not (self.budget_s == 0 or self.budget_s >= self.probe_s):
            raise InvalidConfig(f"probe_s {self.probe_s}: must be above 0 and at most budget_s {self.budget_s}")
        if not 0 <= self.precision < 1:
            raise InvalidConfig(f"precision {self.precision}: must be in 0..1, 0 to measure for all of probe_s")


class Prober:
    """Runs jobs while the budget lasts, and remembers what there was no time for."""

    def __init__(self, config: ProfileConfig, dataset: Path, jobs: JobSettings) -> None:
        limit_s = config.budget_s or (PAID_S if jobs.paid else LOCAL_S)
        self.budget = Budget(limit_s=limit_s, probe_s=config.probe_s, paid=jobs.paid)
        self.left_out: list[str] = []
        self._config, self._dataset, self._jobs = config, dataset, jobs
        self._count = 0

    def run(self, plan: Plan, wish: ProbeWish, seconds: float, dataset: Path | None = None) -> tuple[Probe, ...]:
        task = f"profile-{self._count}-{wish}"
        self._count += 1
        where = dataset or self._dataset
        probes = run_probes(plan, where, self._jobs, task=task, wish=wish, seconds=seconds, precision=self._config.precision)
        self.budget.spend(probes)
        return probes

    def both(self, plan: Plan, seconds: float | None = None, keep_s: float = 0.0, dataset: Path | None = None) -> Probe | None:
        """Training as it is; None, and a line in the report, when there is no time for it."""
        seconds = seconds or self._config.probe_s
        if not self.budget.fits(seconds, plan.instance_count, keep_s):
            logger.info("no time left in the budget of %.0f s for %s", self.budget.limit_s, plan.summary())
            self.left_out.append(f"{plan.summary()}, {seconds:g} s")
            return None
        return self.run(plan, "both", seconds, dataset)[0]


def profile_utilization(config: ProfileConfig, dataset: Path, out: Path, report: Path, jobs: JobSettings) -> Profile:
    """Measure input alone, compute alone and both, thread settings, what input and batch can give, and several workers.

    Args:
        out: profile.json. report: an HTML page.
    Raises:
        InvalidRecords: the dataset has no valid manifest.
        TrainingJobFailed: a probe did not complete.
    """
    manifest, began = read_manifest(dataset), time.monotonic()
    prices = {one.name: one.usd_per_hour for one in read_instances(overrides=config.instances)}
    price = prices.get(jobs.instance_type) if jobs.paid else None
    prober = Prober(config, dataset, jobs)
    expected_s = prober.budget.limit_s
    logger.info("probing will take at most %s", cost(expected_s, usd(expected_s, price)))
    plan = direct_plan("single", config.settings)
    first, compute, source = prober.run(plan, "all", config.probe_s)
    trials: list[Probe] = []
    if source.examples_per_s < INPUT_HEADROOM * compute.examples_per_s:
        trials += _input_search(prober, plan, first, manifest, dataset, jobs)
    threads, slower = _thread_search(prober, plan, first, config.probe_s)
    trials += slower
    scaling = [prober.both(each) for each in scaling_candidates(config.settings, first, manifest.train.examples, jobs.paid)]
    if 2 * plan.batch_size <= manifest.train.examples:
        trials += _measured([prober.both(replace(plan, batch_size=2 * plan.batch_size))])
    profile = Profile(
        data_digest=manifest_digest(manifest),
        dataset=str(dataset.absolute()),
        train_examples=manifest.train.examples,
        settings=config.settings,
        probe_s=config.probe_s,
        probes=(threads[0], compute, source, *threads[1:]),
        scaling=tuple(_measured(scaling)),
        trials=tuple(trials),
        overlap=overlap(source, compute, first),
        expected_s=expected_s,
        expected_usd=usd(expected_s, price),
        cost_s=time.monotonic() - began,
        cost_usd=usd(prober.budget.instance_s, price),
    )
    profile = replace(profile, findings=findings(profile))
    logger.info("probing took %s", cost(profile.cost_s or 0.0, profile.cost_usd))
    for finding in profile.findings:
        if finding.found:
            logger.info("%s: %s; %s", finding.rule, finding.says, finding.advice)
    write_report(report, profile_page(profile, prober.left_out))
    write_profile(out, profile)
    return profile


def figures(profile: Profile) -> dict[str, float | None]:
    """What KFP shows of a profile: rates in examples/s of the fastest probe of each kind, and what probing took."""
    training = fastest(profile.of_kind("both"))
    return {
        "training_examples_per_s": training.examples_per_s,
        "input_alone_examples_per_s": fastest(profile.of_kind("input")).examples_per_s,
        "compute_alone_examples_per_s": fastest(profile.of_kind("compute")).examples_per_s,
        "utilization": training.utilization,
        "cost_s": profile.cost_s,
        "cost_usd": profile.cost_usd,
    }


def _measured(probes: list[Probe | None]) -> list[Probe]:
    return [probe for probe in probes if probe is not None]


def _thread_search(prober: Prober, plan: Plan, first: Probe, probe_s: float) -> tuple[list[Probe], list[Probe]]:
    """The thread settings that were compared last, TensorFlow's defaults first, and the measurements before that."""
    budget = prober.budget
    every = thread_candidates(first.usable_cpus, first.machine.physical_cores if first.machine else None)
    # Halving takes about as many jobs again as there are candidates.
    jobs_left = (budget.limit_s - budget.reserve_s - budget.spent_s) / max(budget.expected_s(probe_s), 1e-9)
    tried = every[: max(int(jobs_left / 2), 2)]
    prober.left_out += [str(threads) for threads in every[len(tried) :]]

    def measure(threads: Threads, seconds: float) -> Probe | None:
        return prober.both(_with(plan, threads), seconds, budget.reserve_s)

    last, dropped = successive_halving((Threads(), first), tried, measure, probe_s)
    return list(last.values()), dropped


def _with(plan: Plan, threads: Threads) -> Plan:
    return replace(
        plan,
        intra_op_threads=threads.intra_op,
        inter_op_threads=threads.inter_op,
        omp_threads=threads.omp,
        kmp_affinity=threads.kmp_affinity,
    )


def _input_search(prober: Prober, plan: Plan, first: Probe, manifest: Manifest, dataset: Path, jobs: JobSettings) -> list[Probe]:
    """Other ways to read, where input limits training; first of all the encoding that needs no parsing."""
    trials: list[Probe | None] = []
    keep_s = prober.budget.reserve_s
    small = sum(shard.bytes for shard in manifest.train.shards + manifest.validation.shards) <= CONVERTED_BYTES
    if manifest.encoding != "blocks" and small and not jobs.paid:
        with TemporaryDirectory(prefix="ctrflow-blocks-") as folder:
            blocks = Path(folder) / "dataset"
            began = time.monotonic()
            convert_dataset(dataset, blocks, "blocks", max(int(first.usable_cpus), 1))
            prober.budget.spent_s += time.monotonic() - began
            trials.append(prober.both(plan, None, keep_s, blocks))
    for each in input_candidates(plan, first.usable_cpus, len(manifest.train.shards)):
        trials.append(prober.both(each, None, keep_s))
    return _measured(trials)
