"""Probes: short real training jobs, and what they measured. One way to run a plan as a job serves probes, race and training.

profile.json, written by profile_utilization and read by select_strategy, is the settings and a list of probes.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.artifacts import fetch_artifact
from components.clients import sagemaker_client
from components.documents import read_json, settings_of
from components.errors import InvalidConfig, TrainingJobFailed
from components.job_settings import JobSettings as JobSettings
from components.measurements import Finding, InputSettings, MachineUse
from components.plan import LOCAL, ModelSettings, Plan, ProbeKind, ProbeWish, Threads, checked_arguments
from components.plan_jobs import plan_job, write_files
from components.storage import write_json_atomic
from components.training_jobs import FinishedJob, run_training_job
from components.training_results import TRAINING, TrainingResult, read_training_result

logger = logging.getLogger(__name__)

FORMAT_VERSION = 2
# A small dataset is read again and again until a probe's time is over; so many steps are never reached.
PROBE_STEPS = 100_000
# A probe ends when its rate is known within this share, 95 % confidence, or when its time is over.
PRECISION = 0.03

# Two short measurements closer than this are the same measurement.
NOISE = 0.05
# A machine is full at about this share of its CPUs (article, item 14).
FULL = 0.9
# Input must outrun compute by this much, else its ordinary variation already stalls steps.
INPUT_HEADROOM = 1.2


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a short job measured. `kind` says which part of a step ran; job_s is the whole job, start-up included.

    Of several probes that one job measured, the first has the job's time but for what the others measured. billable_s is the
    same of the seconds that are paid, of one host.

    rate_low to rate_high: 95 % confidence interval of examples_per_s; None where the measured part was too short for one.
    warmup_steps: of each worker, left out. bytes_per_step: what one worker sends in a step. parameter_server_share: of a step's
    time, waiting for parameter servers. Both None where unknown. rank_skew: how much longer than the mean worker the slowest
    one computed, 0 = all alike.
    """

    kind: ProbeKind
    strategy: str
    hosts: int
    workers_per_host: int
    batch_size: int
    threads: Threads
    examples_per_s: float
    step_p50_s: float
    step_p90_s: float
    step_p99_s: float
    input_wait_share: float | None
    compute_share: float | None
    communication_share: float | None
    cpu_percent_per_core: tuple[float, ...]
    rss_bytes: int
    usable_cpus: float
    usable_cpus_source: str
    job_name: str
    job_s: float
    rate_low: float | None = None
    rate_high: float | None = None
    warmup_steps: int = 0
    instance_type: str = LOCAL
    bytes_per_step: float | None = None
    parameter_server_share: float | None = None
    rank_skew: float | None = None
    outlier_share: float | None = None
    billable_s: float = 0.0
    input: InputSettings = field(default_factory=InputSettings)
    machine: MachineUse | None = None

    @property
    def busy_cores(self) -> float:
        """Cores' worth of CPU time in use, at most the usable ones; 0 when the probe was too short to sample.

        By this job where that is known: of several hosts only the first is sampled, and locally all are on one machine.
        """
        if self.machine is not None and self.hosts == 1:
            return min(self.machine.own_cpus, self.usable_cpus)
        return min(sum(self.cpu_percent_per_core) / 100, self.usable_cpus)

    def rate(self) -> str:
        """For a person: 97,501 examples/s (95 % interval 95,300 to 99,800)."""
        said = f"{self.examples_per_s:,.0f} examples/s"
        if self.rate_low is None or self.rate_high is None:
            return said
        return f"{said} (95 % interval {self.rate_low:,.0f} to {self.rate_high:,.0f})"

    @property
    def utilization(self) -> float:
        """Share of the usable cores that was busy, 0..1."""
        return self.busy_cores / self.usable_cpus


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The document profile.json.

    data_digest is the dataset's identity, `dataset` where it lay when it was profiled, probe_s the seconds each probe measured.
    `probes` are of one process, the batch of the settings and input as it is, those with different threads measured side by side;
    `scaling` of several workers; `trials` of one process with another batch or input, or with threads that lost before.
    overlap: the share of the shorter of reading and computing that prefetching hides behind the longer, 0..1; None where the
    shorter is lost in noise.
    expected_s and expected_usd were said before probing, cost_s and cost_usd are what it took: the step's time, all jobs' price.
    USD is None where the instance has no price.
    """

    data_digest: str
    dataset: str
    train_examples: int
    settings: ModelSettings
    probe_s: float
    probes: tuple[Probe, ...]
    scaling: tuple[Probe, ...] = ()
    trials: tuple[Probe, ...] = ()
    overlap: float | None = None
    findings: tuple[Finding, ...] = ()
    expected_s: float | None = None
    expected_usd: float | None = None
    cost_s: float | None = None
    cost_usd: float | None = None

    def of_kind(self, kind: ProbeKind) -> tuple[Probe, ...]:
        return tuple(probe for probe in self.probes if probe.kind == kind)


def fastest(probes: Sequence[Probe]) -> Probe:
    """The probe with the most examples a second; of equals the first.

    Raises:
        InvalidConfig: there is none.
    """
    if not probes:
        raise InvalidConfig("no probe of that kind in the profile; run ctrflow profile again")
    return max(probes, key=lambda probe: probe.examples_per_s)


def run_plan(
    plan: Plan,
    dataset: Path,
    jobs: JobSettings,
    *,
    task: str,
    folder: Path,
    probe: ProbeWish = "none",
    max_seconds: float = 0.0,
    precision: float = 0.0,
    champion: Path | None = None,
) -> tuple[FinishedJob, TrainingResult]:
    """Run a plan as one training job, to its end.

    Args:
        task: names the job within the run; two jobs of one run need different ones.
        folder: gets the job's output files, training.json among them.
        probe, max_seconds, precision: see `components.plan.hyperparameters`.
        champion: a model folder whose weights the training begins with.
    Raises:
        TrainingJobFailed: the job did not complete, or completed without its figures.
    """
    planned = plan_job(plan, dataset, jobs, task=task, probe=probe, max_seconds=max_seconds, precision=precision, champion=champion)
    write_files(planned)
    finished = run_training_job(planned.job, sagemaker_client(), poll_s=jobs.poll_s)
    fetch_artifact(finished.output_uri, folder)
    return finished, read_training_result(folder / TRAINING, job=finished.name)


def run_probes(
    plan: Plan, dataset: Path, jobs: JobSettings, *, task: str, wish: ProbeWish, seconds: float, precision: float = PRECISION
) -> tuple[Probe, ...]:
    """Run a plan as one job, at most `seconds` of measured steps for each part, and keep the figures, not the model.

    Args:
        wish: `all` gives three probes, both, compute and input; others one.
        precision: a part ends before when its rate is known within this share.
    Raises:
        TrainingJobFailed: as `run_plan`, or the time was too short to measure a rate.
    """
    return _measure(plan, dataset, jobs, task, wish, seconds, precision)[0]


def run_probe(plan: Plan, dataset: Path, jobs: JobSettings, *, task: str, kind: ProbeKind, seconds: float) -> Probe:
    """One probe, as `run_probes`."""
    return run_probes(plan, dataset, jobs, task=task, wish=kind, seconds=seconds)[0]


def measure_plan(plan: Plan, dataset: Path, jobs: JobSettings, *, task: str, seconds: float) -> tuple[Probe, TrainingResult]:
    """One probe of whole steps, as `run_probes`, and what its job left: its losses among them."""
    (probe,), result = _measure(plan, dataset, jobs, task, "both", seconds, PRECISION)
    return probe, result


def _measure(
    plan: Plan, dataset: Path, jobs: JobSettings, task: str, wish: ProbeWish, seconds: float, precision: float
) -> tuple[tuple[Probe, ...], TrainingResult]:
    start = time.monotonic()
    with TemporaryDirectory(prefix="ctrflow-probe-") as folder:
        repeated = replace(plan, steps=PROBE_STEPS)
        job, result = run_plan(
            repeated, dataset, jobs, task=task, folder=Path(folder), probe=wish, max_seconds=seconds, precision=precision
        )
    job_s = time.monotonic() - start
    results = {"both" if wish == "all" else wish: result, **result.parts}
    others_s = sum(part.train_s for part in result.parts.values())
    probes = []
    for kind, part in results.items():
        if not part.examples_per_s > 0:
            raise TrainingJobFailed(
                f"{job.name}: only {part.steps} steps ended within {seconds:g} s, too few for a rate; probe longer"
            )
        first = part is result
        times = (job_s - others_s, max(job.billable_s - others_s, 0.0)) if first else (part.train_s, part.train_s)
        probe = _probe_of(kind, plan, jobs, part, job.name, *times)
        logger.info("probe %s of %s: %s in %.1f s", kind, plan.summary(), probe.rate(), probe.job_s)
        probes.append(probe)
    return tuple(probes), result


def _probe_of(
    kind: Any, plan: Plan, jobs: JobSettings, result: TrainingResult, job_name: str, job_s: float, billable_s: float
) -> Probe:
    return Probe(
        kind=kind,
        strategy=plan.strategy,
        hosts=plan.instance_count,
        workers_per_host=plan.workers_per_host,
        batch_size=plan.batch_size,
        threads=plan.threads,
        examples_per_s=result.examples_per_s,
        step_p50_s=result.step_p50_s,
        step_p90_s=result.step_p90_s,
        step_p99_s=result.step_p99_s,
        input_wait_share=result.input_wait_share,
        compute_share=result.compute_share,
        communication_share=result.communication_share,
        cpu_percent_per_core=result.cpu_percent_per_core,
        rss_bytes=result.rss_bytes,
        usable_cpus=result.usable_cpus,
        usable_cpus_source=result.usable_cpus_source,
        job_name=job_name,
        job_s=job_s,
        rate_low=result.rate_low,
        rate_high=result.rate_high,
        warmup_steps=result.warmup_steps,
        instance_type=jobs.instance_type if plan.instance_type == LOCAL and jobs.paid else plan.instance_type,
        bytes_per_step=result.sent_bytes_per_step,
        parameter_server_share=result.parameter_server_share,
        rank_skew=result.rank_skew,
        outlier_share=result.outlier_share,
        billable_s=billable_s,
        input=InputSettings(
            encoding=result.encoding,
            parallel_reads=plan.parallel_reads,
            map_parallelism=plan.map_parallelism,
            prefetch_batches=plan.prefetch_batches,
            cached=result.rows_cached,
        ),
        machine=result.machine,
    )


_PROBES = ("probes", "scaling", "trials")


def write_profile(path: Path, profile: Profile) -> None:
    write_json_atomic(path, {"format_version": FORMAT_VERSION, **asdict(profile)})


def _probe(document: Mapping[str, Any], place: str) -> Probe:
    arguments = checked_arguments(Probe, document, place)
    threads = Threads(**checked_arguments(Threads, arguments["threads"], f"{place}.threads"))
    machine = arguments["machine"]
    probe = Probe(
        **{
            **arguments,
            "threads": threads,
            "input": settings_of(InputSettings, arguments["input"], f"{place}.input"),
            "machine": None if machine is None else settings_of(MachineUse, machine, f"{place}.machine"),
        }
    )
    if not (probe.examples_per_s > 0 and probe.usable_cpus > 0):
        raise InvalidConfig(f"{place}: {probe.examples_per_s} examples/s on {probe.usable_cpus} CPUs cannot have been measured")
    return probe


def read_profile(path: Path) -> Profile:
    """The profile of a file.

    Raises:
        InvalidConfig: missing, damaged, or of another version.
    """
    if not path.is_file():
        raise InvalidConfig(f"{path}: no such profile; make one with ctrflow profile")
    try:
        document = read_json(path)
    except ValueError as error:
        raise InvalidConfig(f"{path}: not valid JSON ({error}); run ctrflow profile again") from error
    if not isinstance(document, dict) or document.pop("format_version", None) != FORMAT_VERSION:
        raise InvalidConfig(f"{path}: format_version {FORMAT_VERSION} is expected; run ctrflow profile again")
    arguments = checked_arguments(Profile, document, str(path))
    for name in (*_PROBES, "findings"):
        if not isinstance(arguments[name], list):
            raise InvalidConfig(f"{path}: {name} must be a list; run ctrflow profile again")
    settings = checked_arguments(ModelSettings, arguments["settings"], f"{path}: settings")
    return Profile(
        **{
            **arguments,
            "settings": ModelSettings(**settings),
            **{name: tuple(_probe(one, f"{path}: {name}[{n}]") for n, one in enumerate(arguments[name])) for name in _PROBES},
            "findings": tuple(settings_of(Finding, each, f"{path}: findings") for each in arguments["findings"]),
        }
    )
