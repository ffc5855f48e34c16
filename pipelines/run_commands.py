"""`ctrflow run` and `ctrflow compile`: the pipeline as a whole."""

import logging
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from components.learning import Learning
from components.plan import STRATEGIES
from pipelines.learning_options import model_options, model_settings
from pipelines.model_options import limits_option, name_option, policy_option, slices_option
from pipelines.sagemaker_options import FolderOrUri
from pipelines.source_options import preprocess_config, source_options

FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)


def check_options(**options: Any) -> None:
    """Refuse before the first step what a later one would refuse after hours of work."""
    from components.data_check import read_limits
    from components.plan import direct_plan
    from components.profile_utilization.step import ProfileConfig
    from components.promote.policy import policy_of
    from components.promote.step import PromoteConfig
    from components.select_strategy.limits import limits_of
    from components.select_strategy.step import SelectConfig
    from components.storage import open_storage

    def of(*names: str) -> dict[str, Any]:
        return {name: options[name] for name in names}

    settings = model_settings(**of("batch_size", *(item.name for item in fields(Learning))))
    ProfileConfig(settings=settings, budget_s=options["profile_budget_s"])
    if options["strategy"]:
        direct_plan(options["strategy"], settings)
    PromoteConfig(**of("name", "margin", "require_promotion"), policy=policy_of(options["policy"]))
    open_storage(options["models"])
    read_limits(options["data_limits"])
    SelectConfig(force=options["strategy"] or None, limits=limits_of(options["limits"]))


@click.command()
@click.argument("out", type=FILE)
def compile(out: Path) -> None:
    """Compile the pipeline to OUT, KFP's YAML."""
    from pipelines.compiled import compile_retrain

    compile_retrain(out)
    click.echo(f"{out}")


@click.command()
@click.option(
    "--data", multiple=True, help="file, folder or glob, local or s3://; may be given several times; without it the built-in sample"
)
@click.option("--sample-rows", type=int, default=200_000, help="rows of the built-in sample")
@source_options
@model_options
@click.option("--seed", type=int, default=1, help="of the shuffle, the split and the training")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="force one instead of climbing the ladder")
@click.option("--warm-start/--no-warm-start", default=False, help="begin with the weights of the champion in the store")
@click.option("--profile-budget-s", type=float, default=45.0, help="seconds for all probes of profile_utilization; 0 = 180")
@name_option
@slices_option
@limits_option
@click.option("--limits", default="{}", metavar="JSON", help="what a plan may cost and take (components/select_strategy/limits.py)")
@click.option("--margin", type=float, default=0.002, help="AUC that a model may lack to the champion")
@policy_option
@click.option("--require-promotion", is_flag=True, help="fail when the gate stays shut")
@click.option("--pipeline", type=FILE, help="run this compiled YAML instead of compiling the installed code")
@click.option("--runs", type=FOLDER, default=Path("runs"), help="where run folders go")
@click.option("--models", type=FolderOrUri(), default="models", help="the model store, a folder or s3://bucket/folder")
@click.option("--verbose", is_flag=True, help="print every line of every step")
def run(
    data: tuple[str, ...], sample_rows: int, runs: Path, models: str, pipeline: Path | None, verbose: bool, **options: Any
) -> None:
    """Run the whole pipeline on this machine."""
    from components.preprocess.settings import settings_text
    from pipelines.local.command import run_pipeline
    from pipelines.retrain import retrain

    options["strategy"] = options["strategy"] or ""
    check_options(models=models, **options)
    options["preprocessing"] = settings_text(preprocess_config(options))
    parameters = {name: value for name, value in options.items() if name in retrain.component_spec.inputs}
    # The run's own lines say what matters; what the endpoint logs is in the record.
    logging.getLogger().setLevel(logging.INFO if verbose else logging.WARNING)
    code = run_pipeline(
        parameters,
        data=data,
        sample_rows=sample_rows,
        runs=runs,
        models=models,
        pipeline=pipeline,
        verbose=verbose,
        started=time.monotonic(),
    )
    sys.exit(code)
