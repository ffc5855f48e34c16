"""Probes: short real training jobs, and what they measured. One way to run a plan as a job serves probes, race and training."""

import logging
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.artifacts import fetch_artifact
from components.clients import sagemaker_client
from components.errors import TrainingJobFailed
from components.job_settings import JobSettings
from components.measurements import InputSettings
from components.plan import LOCAL, Plan, ProbeWish
from components.plan_jobs import plan_job, write_files
from components.profile import Probe
from components.training_jobs import FinishedJob, run_training_job
from components.training_results import TRAINING, TrainingResult, read_training_result

logger = logging.getLogger(__name__)

# A small dataset is read again and again until a probe's time is over; so many steps are never reached.
PROBE_STEPS = 100_000
# A probe ends when its rate is known within this share, 95 % confidence, or when its time is over.
PRECISION = 0.03


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
    champion: str = "",
) -> tuple[FinishedJob, TrainingResult]:
    """Run a plan as one training job, to its end.

    Args:
        task: names the job within the run; two jobs of one run need different ones.
        folder: gets the job's output files, training.json among them.
        probe, max_seconds, precision: see `components.plan.hyperparameters`.
        champion: URI of a model folder whose weights the training begins with; empty: none.
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
