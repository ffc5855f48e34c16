"""ctrflow submit: one run of a recipe on Kubeflow Pipelines."""

from pathlib import Path
from typing import Any

import click

from pipelines.cluster_options import cluster_options, connect
from pipelines.commands import Answer, Command, wants_json
from pipelines.recipe_options import RECIPE, recipe_options
from pipelines.run_documents import run_document


@click.command(cls=Command)
@recipe_options
@click.option("--wait", is_flag=True, help="until it has ended; exit 1 unless it succeeded")
@click.option("--poll-s", type=float, default=10.0, help="--wait: seconds between two looks")
@click.option("--timeout-s", type=float, default=2 * 86400.0, help="--wait: how long at most")
@cluster_options
def submit(recipe: Path | None, overrides: tuple[str, ...], wait: bool, poll_s: float, timeout_s: float, **access: Any) -> Answer:
    """Upload the pipeline when it has changed, and run the recipe once."""
    from pipelines import submission
    from pipelines.recipe import read_recipe

    chosen = read_recipe(recipe or RECIPE, overrides)
    cluster, package = submission.send(chosen, str(recipe or RECIPE), lambda: connect(access, chosen))
    run = submission.submit(chosen, cluster, package)
    version = f"{package.version} ({'uploaded' if package.uploaded else 'was there already'})"
    click.echo(f"run {run.run_id}: {run.display_name}, pipeline version {version}", err=wants_json())
    if wait:
        run = submission.follow(
            cluster, run.run_id, say=lambda line: click.echo(line, err=wants_json()), poll_s=poll_s, timeout_s=timeout_s
        )
    return Answer(text="", document={**run_document(run), "version": package.version, "uploaded": package.uploaded})
