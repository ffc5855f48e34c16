"""Carries out a plan as one training job and brings home the model, its figures and a report."""

import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.artifacts import fetch_artifact
from components.champion import champion_copy, read_champion, version_folder
from components.errors import InvalidConfig, InvalidRecords, NotPromotable, TrainingJobFailed
from components.job_settings import JobSettings
from components.manifest import manifest_digest, read_manifest
from components.model_files import MODEL_JSON, ModelCard, read_model, transform_problem
from components.plan import Plan
from components.plan_file import read_plan
from components.probes import run_plan
from components.reports import Page, write_report
from components.storage import publish_folder, write_json_atomic
from components.training_jobs import FinishedJob
from components.training_results import TRAINING, TrainingResult

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainStepConfig:
    """What this training does otherwise than the plan says; None leaves the plan's value. `steps` 0 lets the epochs decide."""

    steps: int | None = None
    epochs: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 0:
            raise InvalidConfig(f"steps {self.steps}: must not be negative")
        if self.epochs is not None and self.epochs < 1:
            raise InvalidConfig(f"epochs {self.epochs}: at least 1 is needed")


@dataclass(frozen=True, kw_only=True)
class Start:
    """A model folder whose weights a training begins with: its files here, and the URI at which the job finds them."""

    folder: Path
    uri: str


def start_from(folder: Path) -> Start:
    """A model folder of this machine, which a job finds where it is."""
    return Start(folder=folder, uri=folder.resolve().as_uri())


def champion_to_start_from(store: Path | str, name: str, scratch: Path) -> Start | None:
    """The champion in force; None, said in the log, when there is none yet. From S3 it is fetched to `scratch`, to be checked.

    Raises:
        NotPromotable: champion.json is damaged.
    """
    champion = read_champion(store, name)
    if champion is None:
        log.warning("no champion of %s in %s yet: training begins without a warm start", name, store)
        return None
    folder = champion_copy(store, champion, scratch)
    if str(store).startswith("s3://"):
        return Start(folder=folder, uri=f"{str(store).rstrip('/')}/{version_folder(name, champion.version)}/model")
    return start_from(folder)


def train(
    config: TrainStepConfig,
    dataset: Path,
    plan: Path | Plan,
    model: Path,
    out: Path,
    report: Path,
    jobs: JobSettings,
    champion: Start | None = None,
) -> TrainingResult:
    """Train by a plan.

    Args:
        plan: plan.json, or a plan made by `direct_plan`.
        model: the model folder of rank 0. out: training.json with the job's name and bill added. report: an HTML page.
    Raises:
        InvalidConfig, InvalidRecords: the plan or the dataset cannot be used.
        NotPromotable: the champion is missing or damaged.
        TrainingJobFailed: the job did not complete, or did not leave one sound model that all ranks agree on.
    """
    chosen = read_plan(plan) if isinstance(plan, Path) else plan
    chosen = replace(
        chosen,
        steps=chosen.steps if config.steps is None else config.steps,
        epochs=config.epochs or chosen.epochs,
    )
    if champion:
        read_model(champion.folder)
    digest = manifest_digest(read_manifest(dataset))
    with TemporaryDirectory(prefix="ctrflow-train-") as work:
        output = Path(work) / "output"
        job, result = run_plan(chosen, dataset, jobs, task="train", folder=output, champion=champion.uri if champion else "")
        document = json.loads((output / TRAINING).read_text(encoding="utf-8"))
    with publish_folder(model, marker=MODEL_JSON) as folder:
        card = _fetch_model(job, folder, digest)
        if problem := transform_problem(card, dataset):
            raise TrainingJobFailed(f"{job.name}: the model is not with its dataset's transform: {problem}; rebuild the image")
    if problem := _resumption(job, int(document["resumed_at"])):
        log.warning("%s: %s", job.name, problem)
    write_report(report, _page(chosen, job, result, card, problem))
    write_json_atomic(out, {**document, "job": _billed(job, jobs.image), "plan": asdict(chosen)})
    return result


def _billed(job: FinishedJob, image: str) -> dict[str, Any]:
    """What training.json says of the job; its image is what a promoted model's lineage names."""
    return {
        "name": job.name,
        "arn": job.arn,
        "image": image,
        "training_s": job.training_s,
        "billable_s": job.billable_s,
        "bill": asdict(job.bill) if job.bill else None,
        "passed_over": list(job.passed_over),
        "log_link": job.log_link,
    }


def figures(training: Path) -> dict[str, float | None]:
    """What KFP shows of a training.json."""
    document = json.loads(training.read_text(encoding="utf-8"))
    bill = document["job"]["bill"] or {}
    trained = {name: document[name] for name in ("examples_per_s", "train_s", "final_loss")}
    return trained | {name: bill.get(name) for name in ("billable_s", "instance_s", "usd", "interruptions")}


def _resumption(job: FinishedJob, resumed_at: int) -> str:
    """Whether a job that was interrupted went on where it had been; an empty text where it did, or was not interrupted."""
    times = job.bill.interruptions if job.bill else 0
    if not times:
        return ""
    # By the last of the program's own lines, of whichever attempt.
    before = int(job.metrics.get("resumed_at_step", 0))
    if resumed_at < before:
        return f"resumed at step {resumed_at}, although it had resumed at step {before} before: checkpoints were lost"
    if not resumed_at:
        return f"interrupted {times} time(s), and began again at step 0: no checkpoint was left; lower checkpoint_steps"
    return ""


def _fetch_model(job: FinishedJob, folder: Path, data_digest: str) -> ModelCard:
    """Unpack the model and refuse one that must not be trained on, evaluated or served."""
    try:
        card = read_model(fetch_artifact(job.model_uri, folder))
    except (InvalidRecords, NotPromotable) as error:
        raise TrainingJobFailed(f"{job.name}: completed without a sound model: {error}") from error
    if card.rank != 0:
        raise TrainingJobFailed(f"{job.name}: the model was written by rank {card.rank}, only rank 0 may write it")
    if card.ranks_agreed is not True:
        raise TrainingJobFailed(
            f"{job.name}: the {card.world_size} ranks ended with different parameters; train again with --strategy single"
        )
    if card.data_digest != data_digest:
        raise TrainingJobFailed(f"{job.name}: the model was trained on dataset {card.data_digest[:12]}, not on {data_digest[:12]}")
    return card


def _page(plan: Plan, job: FinishedJob, result: TrainingResult, card: ModelCard, problem: str) -> Page:
    page = Page(
        "Training",
        f"{result.steps:,} steps in {result.train_s:,.1f} s, {result.examples_per_s:,.0f} examples/s: {plan.summary()}",
    )
    if problem:
        page.warning(problem)
    if result.losses:
        page.section("Loss")
        page.lines(
            "Training loss of rank 0", "step", "log loss", {plan.strategy: [(float(step), loss) for step, loss in result.losses]}
        )
    page.section("Speed")
    expected = [
        (f"{name} by the plan", rate)
        for name, rate in (("predicted", plan.predicted_examples_per_s), ("measured", plan.measured_examples_per_s))
        if rate is not None
    ]
    page.bars("Examples a second, all workers", "examples/s", [*expected, ("this training", result.examples_per_s)])
    shares = (
        ("waiting for input", result.input_wait_share),
        ("computing", result.compute_share),
        ("communicating", result.communication_share),
    )
    known = [(name, share * 100) for name, share in shares if share is not None]
    if known:
        page.bars("Where a step's time goes", "%", known)
    else:
        page.paragraph(f"Where a step's time goes is not known: {plan.strategy} cannot tell its parts apart.")
    if result.cpu_percent_per_core:
        page.bars("CPU per core", "%", [(f"core {core}", percent) for core, percent in enumerate(result.cpu_percent_per_core)])
    page.section("Figures")
    page.table(
        ["figure", "value"],
        [
            ["job", job.name],
            *_bill_rows(job),
            ["workers", f"{result.world_size} on {result.hosts} host(s)"],
            ["examples", f"{result.examples:,}"],
            ["start-up", f"{result.startup_s:.1f} s"],
            [
                "step time p50, p90, p99",
                " / ".join(f"{s * 1000:.1f}" for s in (result.step_p50_s, result.step_p90_s, result.step_p99_s)) + " ms",
            ],
            ["memory of a process", f"{result.rss_bytes / 2**20:,.0f} MiB"],
            ["usable CPUs", f"{result.usable_cpus:g} ({result.usable_cpus_source})"],
            ["final loss", "–" if result.final_loss is None else f"{result.final_loss:.5f}"],
            ["parameter checksum", f"{card.parameter_checksum[:16]}…, all {card.world_size} rank(s) agree"],
        ],
    )
    return page


def _bill_rows(job: FinishedJob) -> list[list[str]]:
    """What the job took and cost; a price that the catalogue lacks is not known."""
    rows = [["no capacity", text] for text in job.passed_over]
    if (bill := job.bill) is not None:
        cost = "cost not known" if bill.usd is None else f"{bill.usd:.4f} USD"
        rows.append(["bill", f"{bill.billable_s:,.0f} s of {bill.instance_count} x {bill.instance_type}, {cost}"])
        if bill.saving is not None:
            rows.append(["saved by spot instances", f"{bill.saving:.0%}, {bill.interruptions} interruption(s)"])
    return [*rows, ["logs", job.log_link]] if job.log_link else rows
