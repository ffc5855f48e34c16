"""The jobs of a run, of both kinds, found by tag: to show them, and to stop what nobody follows any more."""

import logging
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from components.errors import JobFailed
from components.job_kinds import FINAL, PROCESSING, TRAINING, JobKind
from components.job_requests import RUN_TAG, TASK_TAG

LOG = logging.getLogger(__name__)
NOT_RUNNING = ("ValidationException", "ResourceNotFound")
# Every job that our steps ask for begins with it, which spares asking for the tags of an account's other jobs.
NAMES = "ctrflow-"
PAGE = 100


@dataclass(frozen=True, kw_only=True)
class RunJob:
    """One job of a run, and what the service says of it now."""

    kind: JobKind
    name: str
    arn: str
    task: str
    status: str
    created: datetime

    @property
    def under_way(self) -> bool:
        return self.status not in FINAL


def run_jobs(run_id: str, client: Any, *, under_way: bool = False) -> list[RunJob]:
    """The jobs whose tag names the run, oldest first. Every job that is listed costs a call for its tags.

    Args:
        under_way: only those that are not at their end, which spares the calls for all others.
    Raises:
        JobFailed: the service does not tell.
    """
    try:
        found = [job for kind in (TRAINING, PROCESSING) for job in _jobs_of(kind, run_id, client, under_way)]
    except (BotoCoreError, ClientError) as error:
        raise JobFailed(f"run {run_id}: its jobs could not be listed: {error}; see AWS credentials and permissions") from error
    return sorted(found, key=lambda job: (job.created, job.name))


def _jobs_of(kind: JobKind, run_id: str, client: Any, under_way: bool) -> Iterator[RunJob]:
    # A job that is Stopping needs no stop, but is under way all the same: two questions, because one takes one status.
    for which in ({"StatusEquals": "InProgress"}, {"StatusEquals": "Stopping"}) if under_way else ({},):
        pages = client.get_paginator(kind.method("List")).paginate(**which, NameContains=NAMES, PaginationConfig={"PageSize": PAGE})
        for summary in (each for page in pages for each in page[kind.summaries]):
            pages_of_tags = client.get_paginator("list_tags").paginate(ResourceArn=summary[kind.arn])
            tags = {tag["Key"]: tag["Value"] for page in pages_of_tags for tag in page["Tags"]}
            if tags.get(RUN_TAG) == run_id:
                yield RunJob(
                    kind=kind,
                    name=summary[kind.name],
                    arn=summary[kind.arn],
                    task=tags.get(TASK_TAG, ""),
                    status=summary[kind.status],
                    created=summary["CreationTime"],
                )


def stop_jobs(run_id: str, client: Any) -> list[RunJob]:
    """Ask the service to stop every job of the run that is under way; those that were asked to.

    All are asked, also after one was refused.

    Raises:
        JobFailed: a job may still be running.
    """
    asked, refused = [], []
    for job in run_jobs(run_id, client, under_way=True):
        if job.status == "Stopping":
            continue
        try:
            getattr(client, job.kind.method("Stop"))(**{job.kind.name: job.name})
        except (BotoCoreError, ClientError) as error:
            if not (isinstance(error, ClientError) and error.response["Error"].get("Code") in NOT_RUNNING):
                refused.append(f"{job.name}: {error}")
            continue  # else it came to its end meanwhile
        LOG.warning("%s: asked to stop", job.name)
        asked.append(job)
    if refused:
        raise JobFailed(f"run {run_id}: may still be running: {'; '.join(refused)}")
    return asked


def reap(run_id: str, client: Any, *, poll_s: float = 5.0, timeout_s: float = 300.0) -> list[RunJob]:
    """`stop_jobs`, and wait until no job of the run is under way; those that were asked to stop.

    Raises:
        JobFailed: a job may still be running.
    """
    deadline = time.monotonic() + timeout_s
    asked = stop_jobs(run_id, client)
    while left := run_jobs(run_id, client, under_way=True):
        names = ", ".join(job.name for job in left)
        if time.monotonic() > deadline:
            raise JobFailed(f"run {run_id}: not at their end after {timeout_s:g} s: {names}; look again later")
        LOG.info("run %s: waiting for the end of %s", run_id, names)
        time.sleep(poll_s * random.uniform(0.75, 1.25))
    return asked
