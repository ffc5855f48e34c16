"""One run of the pipeline on this machine: KFP in a process group of its own, the SageMaker endpoint beside it, a record of
everything.

<runs>/<run id>/run.json             parameters, every task's state, times and error; written as it happens
                index.html           the same to look at (pipelines/run_page.py)
                pipeline.yaml        what ran
                <task>/<output>      the artifacts
                logs/<task>.log      everything a task printed
                jobs/                base directories and logs of the training jobs' hosts
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import psutil

from components.errors import WorkflowError
from pipelines.local.figures import figures
from pipelines.local.sagemaker import LocalSageMaker
from pipelines.local.task_log import Event, events, message, reason
from pipelines.run_page import task_folder
from pipelines.runs import RunRecord, Task, utc_now

LOCAL_ROLE = "arn:aws:iam::000000000000:role/ctrflow-local"
LOCAL_INSTANCE = "ml.m5.large"
LOCAL_POLL_S = 0.2
STOP_GRACE_S = 10.0
END_DEADLINE_S = 6.0


class RunFailed(WorkflowError):
    """A step failed; the message names step, reason and log."""


@dataclass(frozen=True)
class Listener:
    """Whom to tell: a task that began, a line of its log, a task that ended."""

    began: Callable[[Task], None]
    said: Callable[[str, str], None]
    ended: Callable[[Task], None]


def job_settings(folder: Path, image: str) -> str:
    """Where training jobs of a local run go: JSON of JobSettings without role_arn and run_id."""
    return json.dumps(
        {
            "image": image,
            "instance_type": LOCAL_INSTANCE,
            "output_uri": (folder / "jobs" / "output").resolve().as_uri(),
            "poll_s": LOCAL_POLL_S,
            "paid": False,
        }
    )


@contextmanager
def process_group(command: list[str], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A process that leads its own group; nothing of the group is left when the block ends."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end_group(process)


def group_members(group: int) -> list[psutil.Process]:
    """Running processes of a group."""
    members = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def end_group(process: "subprocess.Popen[str]") -> None:
    """Ask the leader to end its group, or the group itself when the leader is gone; SIGKILL after a deadline."""
    if process.poll() is None:
        process.terminate()
    else:
        for member in group_members(process.pid):
            with suppress(psutil.Error):
                member.terminate()
    deadline = time.monotonic() + END_DEADLINE_S
    while group_members(process.pid) and time.monotonic() < deadline:
        process.poll()
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class LocalRun:
    """Runs a compiled pipeline and keeps its record."""

    def __init__(self, record: RunRecord, pipeline: Path, parameters: Mapping[str, Any], listener: Listener) -> None:
        self._record, self._pipeline, self._parameters, self._listener = record, pipeline, parameters, listener
        self._logs = record.folder / "logs"
        self._lines: list[str] = []
        self._began = 0.0
        self._work: list[float] = []

    def run(self) -> None:
        """To the end of the pipeline.

        Raises:
            RunFailed: a step failed.
            Stopped: a signal arrived, see pipelines.signals; everything that ran has ended.
        """
        self._logs.mkdir()
        folder = self._record.folder
        (folder / "parameters.json").write_text(json.dumps(self._parameters, indent=2), encoding="utf-8")
        command = [sys.executable, "-u", "-m", "pipelines.local.execute"]
        command += [str(self._pipeline), str(folder / "parameters.json"), str(folder)]
        temporary = folder / "tmp"
        temporary.mkdir()
        try:
            with LocalSageMaker(folder / "jobs", stop_grace_s=STOP_GRACE_S) as endpoint:
                environment = {
                    **os.environ,
                    "AWS_ENDPOINT_URL_SAGEMAKER": endpoint.url,
                    "PYTHONUNBUFFERED": "1",
                    "TF_CPP_MIN_LOG_LEVEL": "2",
                    # kfp.local looks for newer releases of itself otherwise.
                    "KFP_DISABLE_VERSION_CHECK": "1",
                    # KFP leaves a folder for each step, and a killed step leaves its own.
                    "TMPDIR": str(temporary),
                }
                with process_group(command, environment) as process:
                    assert process.stdout is not None
                    self._follow(process.stdout)
                    process.wait()
                self._check_end(process.returncode)
                self.endpoint_s = _endpoint_seconds(endpoint)
        finally:
            gather_artifacts(folder)
            shutil.rmtree(temporary, ignore_errors=True)

    def _follow(self, output: IO[str]) -> None:
        """Every line into the log of its task, every event to the record and the listener."""
        log = (self._logs / "pipeline.log").open("w", encoding="utf-8")
        try:
            for event in events(output):
                if event.kind == "started":
                    log.close()
                    log = (self._logs / f"{event.task}.log").open("w", encoding="utf-8")
                    self._lines = []
                log.write(event.text + "\n")
                log.flush()
                self._lines.append(event.text)
                self._take(event)
        finally:
            log.close()

    def _take(self, event: Event) -> None:
        now = time.monotonic()
        if event.kind == "started":
            self._began, self._work = now, []
            task = Task(name=event.task, state="running", started=utc_now())
            self._record.put(task)
            self._listener.began(task)
        elif event.kind in ("work_begins", "work_ends"):
            self._work.append(now)
        elif event.kind in ("succeeded", "failed"):
            task = replace(
                self._record.run.tasks[-1],
                state="succeeded" if event.kind == "succeeded" else "failed",
                ended=utc_now(),
                elapsed_s=now - self._began,
                work_s=self._work[-1] - self._work[0] if len(self._work) > 1 else 0.0,
                figures=figures(event.task, task_folder(self._record.folder, event.task)) if event.kind == "succeeded" else "",
                error=reason(self._lines) if event.kind == "failed" else "",
            )
            name_report(task_folder(self._record.folder, event.task), last=False)
            self._record.put(task)
            self._listener.ended(task)
        else:
            self._listener.said(event.task, message(event.text))

    def _check_end(self, code: int) -> None:
        if code == 0:
            return
        why = f"KFP's process was killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else reason(self._lines)
        failed = [task for task in self._record.run.tasks if task.state != "succeeded"]
        if failed:
            # The first: the exit handler fails after it, with it.
            name, log = failed[0].name, self._logs / f"{failed[0].name}.log"
            raise RunFailed(f"step {name} failed: {failed[0].error or why}; log: {log}")
        raise RunFailed(f"the pipeline failed: {why}; log: {self._logs / 'pipeline.log'}")


def name_report(task: Path, *, last: bool) -> None:
    """Give the report among a task's outputs the suffix that browsers want; `last`: no later step reads it by the name it had."""
    report, named = task / "report", task / "report.html"
    if report.is_file():
        named.unlink(missing_ok=True)
        named.hardlink_to(report)
        if last:
            report.unlink()


def gather_artifacts(folder: Path) -> None:
    """Move KFP's <pipeline-time>/<task>/<output> to <task>/<output>, reports by the name that browsers want."""
    for made in [path.parent for path in folder.glob("*/preprocess") if path.is_dir()]:
        for task in list(made.iterdir()):
            if task.is_dir() and not (folder / task.name).exists():
                task.rename(folder / task.name)
                name_report(folder / task.name, last=True)
        if not any(made.iterdir()):
            made.rmdir()


def _endpoint_seconds(endpoint: LocalSageMaker) -> float:
    """Time that jobs spent at the endpoint outside their own processes: downloading, uploading, bookkeeping."""
    total = 0.0
    listed = endpoint.answer("SageMaker.ListTrainingJobs", b'{"MaxResults": 100}')["TrainingJobSummaries"]
    for job in listed:
        described = endpoint.answer(
            "SageMaker.DescribeTrainingJob", json.dumps({"TrainingJobName": job["TrainingJobName"]}).encode()
        )
        training = [
            phase["EndTime"] - phase["StartTime"]
            for phase in described["SecondaryStatusTransitions"]
            if phase["Status"] == "Training"
        ]
        total += described["LastModifiedTime"] - described["CreationTime"] - sum(training)
    return total
