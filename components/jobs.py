"""The operator: one job at SageMaker's API, of either kind, followed to its end or stopped.

The API is real SageMaker or the local endpoint, as AWS_ENDPOINT_URL_SAGEMAKER says. A job's name is made from who asks for
what, so that asking again after a lost reply, a killed step or a retry finds the same job and adopts it instead of paying twice.
"""

import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from components.clients import is_aws, sagemaker_client
from components.job_bills import Bill, bill
from components.job_kinds import FINAL, TRAINING, JobKind
from components.job_logs import JobLogs
from components.job_requests import HASH_TAG
from components.request_checks import check_request
from components.termination import sigterm_as_exit

LOG = logging.getLogger(__name__)

# Errors that say "not now": the request may be fine and the job is none the worse.
NOT_NOW = {"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "ServiceUnavailable"}
NOT_NOW |= {"InternalFailure", "InternalServerError", "ServiceUnavailableException", "RequestTimeout", "SlowDown"}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
# How long an unreachable service is waited for: real SageMaker comes back, an endpoint on this machine does not.
PATIENCE_S, LOCAL_PATIENCE_S = 600.0, 10.0
# The service's own limit counts what the program does. Waiting for machines, input and output come on top, but not for ever.
OVERTIME_S = 6 * 3600.0


# There are no machines of the type now, said at once; the service mostly says so later, as the reason of a job that failed.
NO_CAPACITY = {"CapacityError", "InsufficientInstanceCapacity", "InsufficientCapacityException"}
QUOTA = "ResourceLimitExceeded"
# How often something is said of a job of which there is nothing new.
PROGRESS_S = 60.0


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """What the service says of a job now. `secondary` is the phase of a training job: Starting, Downloading, Training ...

    `bill` is what it has cost so far, None for a processing job.
    """

    name: str
    status: str
    secondary: str
    elapsed_s: float
    bill: Bill | None = None

    def __str__(self) -> str:
        """The progress line."""
        line = f"{self.name}: {', '.join(filter(None, (self.status, self.secondary)))} after {self.elapsed_s:.1f} s"
        if self.bill is not None and self.bill.billable_s:
            line += f", {self.bill.billable_s:.0f} s billable on {self.bill.instance_count} x {self.bill.instance_type}"
            line += "" if self.bill.usd is None else f", {self.bill.usd:.4f} USD"
        return line


class NoCapacity(Exception):
    """The service has no machines for the job now; there is no job."""


def run_job(
    kind: JobKind,
    request: Mapping[str, Any],
    client: Any,
    *,
    poll_s: float,
    patience_s: float | None,
    on_status: Callable[[JobStatus], None] | None,
    overtime_s: float = OVERTIME_S,
) -> dict[str, Any]:
    """Create the job, or adopt the one that an earlier try created, and follow it to its end.

    Any other way out than the job's end (an error, Ctrl-C, SIGTERM) asks the service to stop the job first. SIGTERM is
    turned into SystemExit(143) meanwhile, when called on the main thread.

    Args:
        request: of the kind's Create operation, with a name and tags as `identified` makes them.
        client: from `sagemaker_client()`.
        poll_s: average seconds between two looks at the job.
        patience_s: how long throttling, server errors and time-outs in a row are taken for passing trouble; None leaves it
            to PATIENCE_S, or LOCAL_PATIENCE_S at the local endpoint.
        on_status: called at each change of status or phase.
        overtime_s: a job that is not at its end so long after its MaxRuntimeInSeconds is given up and stopped.
    Returns:
        The description of a job that is at its end: Completed, Failed or Stopped.
    Raises:
        InvalidConfig: the service would refuse the request for its form; nothing was sent.
        NoCapacity: refused because there are no machines of that type.
        JobFailed: refused, could not be followed, or the name belongs to another job.
    """
    name: str = request[kind.name]
    local = not is_aws(client.meta.endpoint_url)
    check_request(kind.operation("Create"), request, file_uris=local)
    if patience_s is None:
        patience_s = LOCAL_PATIENCE_S if local else PATIENCE_S
    service = _Service(kind, client, name, poll_s=poll_s, patience_s=patience_s)
    limits: Mapping[str, int] = request["StoppingCondition"]
    limit_s = limits.get("MaxWaitTimeInSeconds", limits["MaxRuntimeInSeconds"]) + overtime_s
    with sigterm_as_exit():
        try:
            service.create(request)
            return service.follow(on_status, limit_s)
        except NoCapacity:
            raise
        except _NotOurs as refusal:
            raise kind.failure(str(refusal)) from refusal
        except (ClientError, BotoCoreError) as error:  # such as a Describe that is not allowed
            service.stop()
            raise kind.failure(f"{name}: could not be followed, so it was asked to stop: {error}") from error
        except BaseException:
            service.stop()
            raise


def check_completed(kind: JobKind, description: Mapping[str, Any], *, limit: str = "", link: str = "") -> None:
    """Refuse a job whose end is not what was wanted.

    Args:
        limit: which limit of time the service stopped it at, when that can be told.
        link: where its logs are; said in the log, so that the error stays one short line.
    Raises:
        JobFailed: with the reason that the service and the container give.
    """
    name = description[kind.name]
    if link and description[kind.status] != "Completed":
        LOG.error("%s: %s; its logs: %s", name, description[kind.status], link)
    said = " ".join(description.get("ExitMessage", "").split())
    if description[kind.status] == "Failed":
        reason = " ".join(description.get("FailureReason", "the service gives no reason").split())
        raise kind.failure(f"{name}: {reason}{f'; its exit message: {said}' if said else ''}")
    if description[kind.status] == "Stopped":
        if limit:
            raise kind.failure(f"{name}: stopped by the service after {limit}")
        raise kind.failure(f"{name}: stopped by someone's {kind.operation('Stop')} before it was complete")


class _NotOurs(Exception):
    """There is no job of ours to stop: the service refused it, or the name belongs to another request."""


class _Service:
    """The calls about one job, patient with a service that is busy or away."""

    def __init__(self, kind: JobKind, client: Any, name: str, *, poll_s: float, patience_s: float) -> None:
        self._kind, self._client, self._name = kind, client, name
        self._poll_s, self._patience_s = poll_s, patience_s

    def create(self, request: Mapping[str, Any]) -> None:
        operation = self._kind.operation("Create")
        try:
            # The client is asked for anew each time: it changes when its credentials expire.
            self._patiently(operation, lambda: getattr(self._client, self._kind.method("Create"))(**request))
            LOG.info("%s: created", self._name)
        except ClientError as error:
            if _code(error) in NO_CAPACITY:
                raise NoCapacity(_text(error)) from error
            if _code(error) == QUOTA:
                raise _NotOurs(f"{self._name}: {operation} was refused: {_quota_text(error)}") from error
            if _code(error) != "ResourceInUse":
                raise _NotOurs(f"{self._name}: {operation} was refused: {_text(error)}") from error
            self._adopt(request)
        except BotoCoreError as error:  # such as missing credentials: nothing was sent
            raise _NotOurs(f"{self._name}: {operation} could not be sent: {error}") from error

    def _adopt(self, request: Mapping[str, Any]) -> None:
        arn = self.describe()[self._kind.arn]
        tags = self._patiently("ListTags", lambda: self._client.list_tags(ResourceArn=arn))["Tags"]
        hashes = [
            next((tag["Value"] for tag in these if tag["Key"] == HASH_TAG), "no request hash") for these in (tags, request["Tags"])
        ]
        if hashes[0] != hashes[1]:
            noun = self._kind.noun
            raise _NotOurs(f"{self._name}: a {noun} of this name already exists and is not this one ({hashes[0]}): {arn}")
        LOG.info("%s: exists already with the same request; following it", self._name)

    def describe(self) -> dict[str, Any]:
        kind, which = self._kind, {self._kind.name: self._name}
        description: dict[str, Any] = self._patiently(
            kind.operation("Describe"), lambda: getattr(self._client, kind.method("Describe"))(**which)
        )
        return description

    def follow(self, on_status: Callable[[JobStatus], None] | None, limit_s: float) -> dict[str, Any]:
        """Look until the job is at its end; its log lines go to our log meanwhile."""
        logs, started = JobLogs(self._client, self._name, self._kind.log_group), time.monotonic()
        seen, said = ("", "", 0), started
        while True:
            description = self.describe()
            waited_s, now = time.monotonic() - started, self._status(description)
            interruptions = 0 if now.bill is None else now.bill.interruptions
            news = (now.status, now.secondary, interruptions)
            if interruptions > seen[2]:
                LOG.warning("%s: interrupted %d times so far; it goes on when there are spot instances", self._name, interruptions)
            if news != seen or time.monotonic() - said >= PROGRESS_S:
                said = time.monotonic()
                LOG.info("%s", now)
            if news != seen and on_status is not None:
                on_status(now)
            seen = news
            logs.forward(to_the_end=now.status in FINAL)
            if now.status in FINAL:
                return description
            if waited_s > limit_s:
                raise self._kind.failure(f"{self._name}: still {now.status} after {waited_s:.0f} s; it was asked to stop")
            self._pause()

    def _status(self, description: Mapping[str, Any]) -> JobStatus:
        """Elapsed time is the job's own, whoever created it."""
        now = datetime.now(UTC)
        return JobStatus(
            name=self._name,
            status=description[self._kind.status],
            secondary=description.get("SecondaryStatus", ""),
            elapsed_s=max(0.0, (now - description["CreationTime"]).total_seconds()),
            bill=bill(description, now) if self._kind is TRAINING else None,
        )

    def stop(self) -> None:
        """Ask the service to stop the job; one that is at its end, or never came to be, is a success."""
        operation = self._kind.operation("Stop")
        try:
            getattr(self._client, self._kind.method("Stop"))(**{self._kind.name: self._name})
            LOG.warning("%s: asked to stop", self._name)
        except ClientError as error:
            if _code(error) not in ("ValidationException", "ResourceNotFound"):
                LOG.error("%s: may still be running, %s was refused: %s", self._name, operation, _text(error))
        except BotoCoreError as error:
            LOG.error("%s: may still be running, %s did not get through: %s", self._name, operation, error)

    def _patiently(self, operation: str, call: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return call()
            except (ClientError, HTTPClientError, NoConnection) as error:
                if isinstance(error, ClientError) and _code(error) in EXPIRED:
                    self._client = sagemaker_client()  # a new session reads the credentials anew
                elif isinstance(error, ClientError) and not _is_not_now(error):
                    raise
                if time.monotonic() > deadline:
                    text = f"{self._name}: {operation} has not got through for {self._patience_s:g} s: {error}"
                    raise self._kind.failure(text) from error
                LOG.warning("%s: %s did not get through, trying again: %s", self._name, operation, error)
            self._pause()

    def _pause(self) -> None:
        # Jitter keeps the steps of many runs from asking in step.
        time.sleep(self._poll_s * random.uniform(0.75, 1.25))


def _is_not_now(error: ClientError) -> bool:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return _code(error) in NOT_NOW or status == 429 or status >= 500


def _code(error: ClientError) -> str:
    return str(error.response["Error"].get("Code", ""))


def _quota_text(error: ClientError) -> str:
    """Which quota, and what to do; asking again would change nothing, so nobody does."""
    message = str(error.response["Error"].get("Message", ""))
    named = re.search(r"'([^']+)'", message)
    quota = f"quota {named[1]!r}" if named else "a quota"
    return f"{QUOTA}: {quota} of this account is used up ({message}); have it raised in Service Quotas, or plan with another type"


def _text(error: ClientError) -> str:
    return f"{_code(error)}: {error.response['Error'].get('Message', '')}"
