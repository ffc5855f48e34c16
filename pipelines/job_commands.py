"""ctrflow jobs: the training and processing jobs of a run, by its tag."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from components.run_jobs import RunJob

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def jobs() -> None:
    """List and stop a run's jobs at SageMaker, or at the endpoint that AWS_ENDPOINT_URL_SAGEMAKER names."""


def run_options(command: Command) -> Command:
    command = click.option("--json", "as_json", is_flag=True, help="print a document for programs")(command)
    return click.option("--run", "run_id", required=True, metavar="ID", help="the run whose jobs they are")(command)


@jobs.command(name="list")
@run_options
def list_jobs(run_id: str, as_json: bool) -> None:
    """Print the run's jobs, oldest first."""
    from components.clients import sagemaker_client
    from components.run_jobs import run_jobs

    _print(run_id, run_jobs(run_id, sagemaker_client()), as_json)


@jobs.command()
@run_options
def stop(run_id: str, as_json: bool) -> None:
    """Ask the service to stop the run's jobs; print those that were running."""
    from components.clients import sagemaker_client
    from components.run_jobs import stop_jobs

    _print(run_id, stop_jobs(run_id, sagemaker_client()), as_json)


@jobs.command()
@run_options
@click.option("--timeout-s", type=click.FloatRange(min=0), default=300.0, help="how long to wait for their end")
def reap(run_id: str, as_json: bool, timeout_s: float) -> None:
    """Stop the run's jobs and wait until none is left; print those that were running."""
    from components import run_jobs
    from components.clients import sagemaker_client

    _print(run_id, run_jobs.reap(run_id, sagemaker_client(), timeout_s=timeout_s), as_json)


def _print(run_id: str, found: "Sequence[RunJob]", as_json: bool) -> None:
    rows = [
        {
            "name": job.name,
            "kind": job.kind.word.lower(),
            "task": job.task,
            "status": job.status,
            "created_at": job.created.isoformat(),
            "arn": job.arn,
        }
        for job in found
    ]
    if as_json:
        click.echo(json.dumps({"run_id": run_id, "jobs": rows}, indent=2))
        return
    for row in rows:
        click.echo(f"{row['name']}  {row['kind']}  {row['task']}  {row['status']}  {row['created_at']}")
