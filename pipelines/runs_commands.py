"""ctrflow runs: list, show, logs, terminate, retry; of this machine's runs and of a cluster's, which their ids tell apart."""

import os
import signal
import webbrowser
from pathlib import Path
from typing import Any

import click

from components.errors import InvalidConfig
from pipelines.cluster_options import cluster_options, connect
from pipelines.commands import Answer, Group
from pipelines.run_documents import details, is_alive, is_cluster_run, local_run, local_runs, local_summary, run_document, table
from pipelines.run_page import write_run_page

FOLDER = click.Path(file_okay=False, path_type=Path)
runs_option = click.option("--runs", type=FOLDER, default=Path("runs"), help="folder of this machine's runs")


@click.group(cls=Group)
def runs() -> None:
    """Look at runs, here and on Kubeflow Pipelines, whose ids have the form of a UUID."""


@runs.command("list")
@click.option("--cluster", is_flag=True, help="of Kubeflow Pipelines instead of this machine")
@click.option("--schedule", default="", help="only those that a schedule began")
@click.option("--most", type=click.IntRange(min=1), default=20, help="the newest so many")
@runs_option
@cluster_options
def list_runs(cluster: bool, schedule: str, most: int, runs: Path, **access: Any) -> Answer:
    """The newest runs."""
    if cluster:
        kubeflow = connect(access)
        from pipelines.schedules import find

        of = find(kubeflow, schedule).recurring_run_id if schedule else ""
        found = [run_document(run) for run in kubeflow.runs(most, of)]
    else:
        found = [local_summary(record) for record in local_runs(runs, most, schedule)]
    return Answer(text=table(found), document=found)


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--open", "opens", is_flag=True, help="its page in the browser: index.html of a run of this machine")
@runs_option
@cluster_options
def show(run_id: str, opens: bool, runs: Path, **access: Any) -> Answer:
    """State, times and steps of RUN."""
    if is_cluster_run(run_id):
        if opens:
            raise InvalidConfig(f"run {run_id}: --open is for runs of this machine; a cluster has its own pages")
        document = run_document(connect(access).run(run_id))
        return Answer(text=details(document), document=document)
    folder, record = local_run(runs, run_id)
    if opens:
        # Written anew: nobody has done so since the process of a run was killed.
        page = write_run_page(folder).absolute().as_uri()
        if not webbrowser.open(page):
            raise InvalidConfig(f"no browser is known here; set BROWSER, or open {page}")
    return Answer(text=details(local_summary(record)), document=record)


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.argument("step", default="")
@click.option("--pod-namespace", default="", help="where the steps' pods are; default: that of --kfp-namespace, or kubeflow")
@runs_option
@cluster_options
def logs(run_id: str, step: str, pod_namespace: str, runs: Path, **access: Any) -> Answer:
    """What the steps of RUN printed, or one STEP of it."""
    if is_cluster_run(run_id):
        from pipelines.pod_logs import read_logs

        kubeflow = connect(access)
        found = read_logs(kubeflow.run(run_id), step, pod_namespace or access["kfp_namespace"] or "kubeflow")
    else:
        folder, _ = local_run(runs, run_id)
        paths = sorted((folder / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
        found = {path.stem: path.read_text(encoding="utf-8", errors="replace") for path in paths if step in ("", path.stem)}
    if not found:
        raise InvalidConfig(f"run {run_id}: no log{f' of {step}' if step else ''}; ctrflow runs show {run_id} names its steps")
    return Answer(text="\n".join(f"== {name}\n{text}" for name, text in found.items()), document=found)


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--reap", is_flag=True, help="of a cluster: also stop its jobs at SageMaker from here, without waiting for its steps")
@runs_option
@cluster_options
def terminate(run_id: str, reap: bool, runs: Path, **access: Any) -> Answer:
    """End RUN: its steps stop their jobs, and its exit handler those that are left."""
    jobs: list[str] = []
    if is_cluster_run(run_id):
        from components.clients import sagemaker_client
        from components.run_jobs import stop_jobs

        connect(access).terminate(run_id)
        jobs = [job.name for job in stop_jobs(run_id, sagemaker_client())] if reap else []
    else:
        _, record = local_run(runs, run_id)
        if not is_alive(record):
            raise InvalidConfig(f"run {run_id}: is not running ({record['state']})")
        os.kill(record["pid"], signal.SIGTERM)
    stopped = f", and {len(jobs)} of its jobs" if reap else ""
    return Answer(
        text=f"run {run_id}: asked to end{stopped}; ctrflow runs show {run_id}",
        document={"run_id": run_id, "asked": True, "jobs": jobs},
    )


@runs.command()
@click.argument("run_id", metavar="RUN")
@cluster_options
def retry(run_id: str, **access: Any) -> Answer:
    """Let RUN of a cluster go on where it failed; steps that succeeded stay as they are."""
    if not is_cluster_run(run_id):
        raise InvalidConfig(f"run {run_id}: only runs of a cluster go on; here, ctrflow run --recipe begins another")
    kubeflow = connect(access)
    state = kubeflow.run(run_id).state
    if state not in ("FAILED", "CANCELED"):
        raise InvalidConfig(f"run {run_id}: is {state}; only one that failed or was cancelled can go on")
    kubeflow.retry(run_id)
    return Answer(text=f"run {run_id}: goes on; ctrflow runs show {run_id}", document={"run_id": run_id, "asked": True})
