"""The command line: every verb a thin layer over a function."""

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from components.errors import InvalidConfig
from components.plan import STRATEGIES
from pipelines.commands import Answer, Commands
from pipelines.dataset_commands import dataset
from pipelines.instance_commands import instances
from pipelines.job_commands import jobs
from pipelines.learning_options import model_options, model_settings
from pipelines.limit_options import limit_options, limits_from
from pipelines.local_jobs import local_jobs
from pipelines.model_commands import models
from pipelines.model_options import limits_option, name_option, policy_option, slices_option
from pipelines.recipe_commands import compile, init
from pipelines.run_commands import run
from pipelines.runs_commands import runs
from pipelines.sagemaker_options import FolderOrUri, preprocess_there, refuse_options_of_elsewhere, sagemaker_options
from pipelines.schedule_commands import schedule
from pipelines.score_command import score
from pipelines.source_options import preprocess_config, source_options
from pipelines.submit_commands import submit
from pipelines.ui import ui

Command = TypeVar("Command", bound=Callable[..., Any])
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
PATH = click.Path(path_type=Path)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="ctrflow")
def main() -> None:
    """Retrain click-through-rate models, as fast as the machines allow."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)


for command in (init, run, compile, submit, runs, schedule, dataset, instances, jobs, models, score, ui):
    main.add_command(command)


def answer_of(text: str, written: Path) -> Answer:
    """An answer whose document is one that the step has written."""
    return Answer(text=text, document=json.loads(written.read_text(encoding="utf-8")))


@main.command()
@click.argument("out", type=FILE)
@click.option("--rows", type=int, default=200_000)
@click.option("--seed", type=int, default=1)
def sample(out: Path, rows: int, seed: int) -> Answer:
    """Write Criteo-shaped raw TSV of a planted model to OUT, and print the best AUC that any model can reach on it."""
    from pipelines.sample import write_sample

    made = write_sample(out, rows, seed)
    said = f"{out}: {made.rows:,} rows, {made.clicks / made.rows:.1%} clicks; no model can beat AUC {made.best_auc:.4f} on it"
    return Answer(text=said, document=asdict(made))


@main.command()
@click.argument("inputs", nargs=-1, required=True)
@click.argument("out", type=FolderOrUri())
@sagemaker_options
@source_options
@click.option("--seed", type=int, default=0, help="of the shuffle and the split")
@click.option("--engine", type=click.Choice(["processes", "spark"]), default="processes", help="what does the work")
@click.option("--spark-master", default="local[*]", help="spark: its URL; hosts of a cluster must see inputs and OUT")
def preprocess(inputs: tuple[str, ...], out: str, place: str, engine: str, spark_master: str, **options: Any) -> Answer:
    """Turn raw click logs INPUTS (files, folders or globs, local or s3://) into the dataset OUT."""
    from components.preprocess import step

    config = preprocess_config(options)
    if place == "sagemaker":
        said = preprocess_there(config, inputs, out, engine, options)
        return Answer(text=f"{out}: {said}", document={"dataset": out, "job": said})
    refuse_options_of_elsewhere(click.get_current_context())
    if "://" in out:
        raise InvalidConfig(f"{out}: datasets are written to folders of this machine; or say --on sagemaker")
    folder = Path(out)
    report = folder.with_name(f"{folder.name}.html")
    if engine == "spark":
        from components.preprocess.spark.session import preprocess_on_spark

        manifest = preprocess_on_spark(config, inputs, folder, report, spark_master)
    else:
        manifest = step.preprocess(config, inputs, folder, report)
    train, validation = manifest.train.examples, manifest.validation.examples
    return Answer(
        text=f"{out}: {train:,} rows to train, {validation:,} to validate",
        document={"dataset": out, "train": train, "validation": validation, "warnings": list(manifest.warnings)},
    )


@main.command()
@click.argument("dataset", type=FOLDER)
@click.argument("out", type=FOLDER)
@model_options
@click.option("--seed", type=int, default=1)
@click.option("--budget-s", type=float, default=180.0, help="seconds for all probes")
def profile(dataset: Path, out: Path, seed: int, budget_s: float, **settings: Any) -> Answer:
    """Measure what bounds training on DATASET; writes OUT/profile.json and OUT/report.html."""
    from components.profile_utilization import step

    config = step.ProfileConfig(settings=model_settings(seed=seed, **settings), budget_s=budget_s)
    with local_jobs() as jobs:
        step.profile_utilization(config, dataset, out / "profile.json", out / "report.html", jobs)
    return answer_of(f"{out / 'profile.json'}, {out / 'report.html'}", out / "profile.json")


@main.command()
@click.argument("profile", type=PATH)
@click.argument("out", type=FOLDER)
@click.option("--dataset", type=FOLDER, help="the dataset that was profiled, if it was moved since")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="force one instead of climbing the ladder")
@limit_options
def select(profile: Path, out: Path, dataset: Path | None, strategy: Any, instances: Path | None, **limits: Any) -> Answer:
    """Choose the plan from PROFILE (profile.json or its folder); writes OUT/plan.json and OUT/report.html."""
    from components.profile import read_profile
    from components.select_strategy import step

    config = step.SelectConfig(force=strategy, limits=limits_from(**limits), instances=instances)
    measured = profile / "profile.json" if profile.is_dir() else profile
    profiled = dataset or Path(read_profile(measured).dataset)
    with local_jobs() as jobs:
        plan = step.select_strategy(config, measured, profiled, out / "plan.json", out / "report.html", jobs)
    return answer_of(plan.summary(), out / "plan.json")


@main.command()
@click.argument("dataset", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option("--plan", type=FILE, help="plan.json of ctrflow select")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="without a plan: how to train")
@click.option("--hosts", type=click.IntRange(min=1), help="without a plan; default 1, for parameter_server 2")
@click.option("--workers-per-host", type=click.IntRange(min=1), help="without a plan; default 1, for horovod on one host 2")
@click.option("--steps", type=int, help="so many steps instead of epochs")
@click.option("--warm-start", type=FOLDER, help="begin with the weights of this model folder")
@click.option("--seed", type=int, default=1)
@model_options
def train(
    dataset: Path,
    out: Path,
    plan: Path | None,
    strategy: Any,
    hosts: int | None,
    workers_per_host: int | None,
    steps: int | None,
    warm_start: Path | None,
    **settings: Any,
) -> Answer:
    """Train on DATASET; writes OUT/model, OUT/training.json and OUT/report.html."""
    from components.plan import direct_plan
    from components.train import step

    ctx = click.get_current_context()
    placed = {"strategy": strategy, "hosts": hosts, "workers_per_host": workers_per_host}
    given = [name for name in settings if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT]
    given += [name for name, value in placed.items() if value is not None]
    if plan and given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidConfig(f"{options} with --plan: the plan decides that; leave out one of them")
    if not plan and strategy in (None, "single") and settings["learning_rate_factor"] != 1:
        raise InvalidConfig("--learning-rate-factor: single has one worker; set --learning-rate, or another --strategy")
    chosen = plan or direct_plan(strategy or "single", model_settings(**settings), hosts=hosts, workers_per_host=workers_per_host)
    with local_jobs() as jobs:
        result = step.train(
            step.TrainStepConfig(steps=steps),
            dataset,
            chosen,
            out / "model",
            out / "training.json",
            out / "report.html",
            jobs,
            champion=step.start_from(warm_start) if warm_start else None,
        )
    return answer_of(f"{out / 'model'}: {result.examples:,} examples at {result.examples_per_s:,.0f}/s", out / "training.json")


@main.command()
@click.argument("dataset", type=FOLDER)
@click.argument("store")
@name_option
@limits_option
def check(dataset: Path, store: str, name: str, data_limits: str) -> Answer:
    """Refuse DATASET if no model should be trained on it, by what the champion in STORE was trained on."""
    from components.data_check import check_data, read_limits

    drift = check_data(read_limits(data_limits), dataset, store, name)
    if drift is None:
        text = f"{dataset}: fit to train on; there is no champion whose data to compare with"
        return Answer(text=text, document={"dataset": str(dataset), "drift": None})
    new = drift.reason if drift.new_id_rate is None else f"{drift.new_id_rate:.2%} of the ids are new"
    text = (
        f"{dataset}: fit to train on; {drift.rows:,} training rows, champion version {drift.champion_version} had "
        f"{drift.champion_rows:,}; {new}; {len(drift.shifted)} of {len(drift.fields)} fields have changed much"
    )
    return Answer(text=text, document={"dataset": str(dataset), "drift": asdict(drift)})


@main.command()
@click.argument("model", type=FOLDER)
@click.argument("dataset", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option("--store", help="model store, local or s3://, with the champion to compare with")
@click.option("--champion-dataset", type=FOLDER, help="the same rows by the champion's transform, where it encodes otherwise")
@slices_option
@click.option("--confidence", type=float, default=0.95, help="of the intervals of the difference to the champion")
@click.option("--processes", type=int, default=1, help="processes that score, each with all CPUs")
@name_option
def evaluate(
    model: Path,
    dataset: Path,
    out: Path,
    store: str | None,
    champion_dataset: Path | None,
    slices: str,
    confidence: float,
    processes: int,
    name: str,
) -> Answer:
    """Score MODEL on the validation split of DATASET; writes OUT/evaluation.json and OUT/report.html."""
    from components.evaluate import step

    config = step.EvaluateConfig(name=name, slices=step.names_of(slices), confidence=confidence, processes=processes)
    found = step.evaluate(config, model, dataset, out / "evaluation.json", out / "report.html", store, champion_dataset)
    auc = f"AUC {found.auc:.6f}" if found.auc is not None else f"AUC undefined: {found.auc_reason}"
    return answer_of(f"{out / 'evaluation.json'}: {auc}, {found.rows:,} rows", out / "evaluation.json")


@main.command()
@click.argument("model", type=FOLDER)
@click.argument("evaluation", type=PATH)
@click.argument("store")
@name_option
@click.option("--margin", type=float, default=0.002, help="AUC that a model may lack to the champion")
@policy_option
@click.option("--training", type=FILE, help="training.json of its training, for the lineage")
@click.option("--dataset", type=FOLDER, help="the dataset that it was trained on, to compare the transform once more")
@click.option("--require-promotion", is_flag=True, help="exit 1 when the gate stays shut")
@click.option("--out", type=FOLDER, help="folder for promotion.json and report.html; default: the evaluation's")
def promote(
    model: Path,
    evaluation: Path,
    store: str,
    name: str,
    margin: float,
    policy: str,
    training: Path | None,
    dataset: Path | None,
    require_promotion: bool,
    out: Path | None,
) -> Answer:
    """Let MODEL past the gate of EVALUATION (evaluation.json or its folder) into STORE, a folder or s3://bucket/folder."""
    from components.promote import step
    from components.promote.policy import policy_of

    measured = evaluation / "evaluation.json" if evaluation.is_dir() else evaluation
    folder = out or measured.parent / "promotion"
    config = step.PromoteConfig(name=name, margin=margin, policy=policy_of(policy), require_promotion=require_promotion)
    result = step.promote(
        config, model, measured, store, folder / "promotion.json", folder / "report.html", training=training, dataset=dataset
    )
    return answer_of(f"{'promoted' if result.promoted else 'not promoted'}: {result.reason}", folder / "promotion.json")


if __name__ == "__main__":
    main()
