"""`ctrflow run`: the pipeline as a whole."""

import logging
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from components.plan import STRATEGIES
from pipelines.commands import Answer, Command, wants_json
from pipelines.learning_options import model_options
from pipelines.model_options import limits_option, name_option, policy_option, slices_option
from pipelines.recipe_options import FILE, recipe_options
from pipelines.sagemaker_options import FolderOrUri
from pipelines.source_options import source_options


@click.command(cls=Command)
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
@click.option("--instances", type=FILE, help="CSV of own prices and types")
@click.option("--margin", type=float, default=0.002, help="AUC that a model may lack to the champion")
@policy_option
@click.option("--require-promotion", is_flag=True, help="fail when the gate stays shut")
@click.option("--runs", default="runs", help="folder of runs")
@click.option("--models", type=FolderOrUri(), default="models", help="the model store, a folder or s3://bucket/folder")
@recipe_options
@click.option("--pipeline", type=FILE, help="run this compiled YAML instead of compiling the installed code")
@click.option("--schedule", default="", hidden=True, help="the schedule that began it")
@click.option("--run-id", default="", help="the run's name, which no other run has had; default: the time")
@click.option("--verbose", is_flag=True, help="print every line of every step")
def run(
    recipe: Path | None,
    overrides: tuple[str, ...],
    pipeline: Path | None,
    run_id: str,
    schedule: str,
    verbose: bool,
    **options: Any,
) -> Answer:
    """Run the whole pipeline on this machine: as the options say, or as a recipe says."""
    from pipelines.local.command import run_pipeline
    from pipelines.recipe_options import recipe_of_command

    chosen = recipe_of_command(recipe, overrides, options)
    # The run's own lines say what matters; what the endpoint logs is in the record.
    logging.getLogger().setLevel(logging.INFO if verbose else logging.WARNING)
    code, record = run_pipeline(
        chosen, pipeline=pipeline, run_id=run_id, schedule=schedule, verbose=verbose, as_json=wants_json(), started=time.monotonic()
    )
    if code:
        sys.exit(code)
    return Answer(text="", document=asdict(record))
