"""The operator: one training job at SageMaker's API, followed to its end or stopped.

The API is real SageMaker or the local endpoint, as AWS_ENDPOINT_URL_SAGEMAKER says. A job's name is made from who asks for
what, so that asking again after a lost reply, a killed step or a retry finds the same job and adopts it instead of paying twice.
"""

import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from components.clients import is_aws, sagemaker_client
from components.errors import TrainingJobFailed
from components.job_logs import JobLogs
from components.job_requests import HASH_TAG, TrainingJob, create_request
from components.request_checks import check_request

LOG = logging.getLogger(__name__)

FINAL = ("Completed", "Failed", "Stopped")
# Errors that say "not now": the request may be fine and the job is none the worse.
NOT_NOW = {"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "ServiceUnavailable"}
NOT_NOW |= {"InternalFailure", "InternalServerError", "ServiceUnavailableException", "RequestTimeout", "SlowDown"}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
# How long an unreachable service is waited for: real SageMaker comes back, an endpoint on this machine does not.
PATIENCE_S, LOCAL_PATIENCE_S = 600.0, 10.0


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """What the service says of a job now. `secondary` is the phase: Starting, Downloading, Training, Uploading ..."""

    name: str
    status: str
    secondary: str
    elapsed_s: float


@dataclass(frozen=True, kw_only=True)
class FinishedJob:
    """A completed job. The URIs are of tar.gz files; one of which nothing was written may not exist."""

    name: str
    arn: str
    status: str
    model_uri: str
    output_uri: str
    training_s: float
    billable_s: float


def run_training_job(
    job: TrainingJob,
    client: Any,
    *,
    poll_s: float = 30.0,
    patience_s: float | None = None,
    on_status: Callable[[JobStatus], None] | None = None,
) -> FinishedJob:
    """Create the job, or adopt the one that an earlier try created, and follow it to its end.

    Any other way out than the job's end (an error, Ctrl-C, SIGTERM) asks the service to stop the job first. SIGTERM is
    turned into SystemExit(143) meanwhile, when called on the main thread.

    Args:
        client: from `sagemaker_client()`.
        poll_s: average seconds between two looks at the job.
        patience_s: how long throttling, server errors and time-outs in a row are taken for passing trouble; None leaves it
            to PATIENCE_S, or LOCAL_PATIENCE_S at the local endpoint.
        on_status: called at each change of status or phase.
    Raises:
        InvalidConfig: the service would refuse the request for its form; nothing was sent.
        TrainingJobFailed: refused, failed, stopped, ran out of time, or the name belongs to another job.
    """
    request = create_request(job)
    name: str = request["TrainingJobName"]
    local = not is_aws(client.meta.endpoint_url)
    check_request("CreateTrainingJob", request, file_uris=local)
    if patience_s is None:
        patience_s = LOCAL_PATIENCE_S if local else PATIENCE_S
    service = _Service(client, name, poll_s=poll_s, patience_s=patience_s)
    with _sigterm_as_exit():
        try:
            service.create(request)
            description = service.follow(on_status)
        except _NotOurs as refusal:
            raise TrainingJobFailed(str(refusal)) from refusal
        except (ClientError, BotoCoreError) as error:  # such as a Describe that is not allowed
            service.stop()
            raise TrainingJobFailed(f"{name}: could not be followed, so it was asked to stop: {error}") from error
        except BaseException:
            service.stop()
            raise
    return _finished(name, description)


def _finished(name: str, description: dict[str, Any]) -> FinishedJob:
    status, phase = description["TrainingJobStatus"], description["SecondaryStatus"]
    if status == "Failed":
        reason = " ".join(description.get("FailureReason", "the service gives no reason").split())
        raise TrainingJobFailed(f"{name}: {reason}")
    if status == "Stopped":
        limits = {"MaxRuntimeExceeded": "MaxRuntimeInSeconds", "MaxWaitTimeExceeded": "MaxWaitTimeInSeconds"}
        if phase in limits:
            limit_s = description["StoppingCondition"].get(limits[phase])
            raise TrainingJobFailed(f"{name}: stopped by the service after {limits[phase]} = {limit_s} s ({phase})")
        raise TrainingJobFailed(f"{name}: stopped by someone's StopTrainingJob before it was complete")
    folder = f"{description['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{name}/output"
    return FinishedJob(
        name=name,
        arn=description["TrainingJobArn"],
        status=status,
        model_uri=description.get("ModelArtifacts", {}).get("S3ModelArtifacts", f"{folder}/model.tar.gz"),
        output_uri=f"{folder}/output.tar.gz",
        training_s=float(description.get("TrainingTimeInSeconds", 0)),
        billable_s=float(description.get("BillableTimeInSeconds", 0)),
    )


class _NotOurs(Exception):
    """There is no job of ours to stop: the service refused it, or the name belongs to another request."""


class _Service:
    """The calls about one job, patient with a service that is busy or away."""

    def __init__(self, client: Any, name: str, *, poll_s: float, patience_s: float) -> None:
        self._client, self._name, self._poll_s, self._patience_s = client, name, poll_s, patience_s

    def create(self, request: dict[str, Any]) -> None:
        try:
            self._patiently("CreateTrainingJob", lambda: self._client.create_training_job(**request))
            LOG.info("%s: created", self._name)
        except ClientError as error:
            if _code(error) != "ResourceInUse":
                raise _NotOurs(f"{self._name}: CreateTrainingJob was refused: {_text(error)}") from error
            self._adopt(request)
        except BotoCoreError as error:  # such as missing credentials: nothing was sent
            raise _NotOurs(f"{self._name}: CreateTrainingJob could not be sent: {error}") from error

    def _adopt(self, request: dict[str, Any]) -> None:
        arn = self.describe()["TrainingJobArn"]
        tags = self._patiently("ListTags", lambda: self._client.list_tags(ResourceArn=arn))["Tags"]
        hashes = [
            next((tag["Value"] for tag in these if tag["Key"] == HASH_TAG), "no request hash") for these in (tags, request["Tags"])
        ]
        if hashes[0] != hashes[1]:
            raise _NotOurs(f"{self._name}: a training job of this name already exists and is not this one ({hashes[0]}): {arn}")
        LOG.info("%s: exists already with the same request; following it", self._name)

    def describe(self) -> dict[str, Any]:
        name = self._name
        description: dict[str, Any] = self._patiently(
            "DescribeTrainingJob", lambda: self._client.describe_training_job(TrainingJobName=name)
        )
        return description

    def follow(self, on_status: Callable[[JobStatus], None] | None) -> dict[str, Any]:
        """Look until the job is at its end; its log lines go to our log meanwhile."""
        logs, seen, started = JobLogs(self._client, self._name), ("", ""), time.monotonic()
        while True:
            description = self.describe()
            now = (description["TrainingJobStatus"], description["SecondaryStatus"])
            if now != seen:
                seen, elapsed_s = now, time.monotonic() - started
                LOG.info("%s: %s, %s after %.1f s", self._name, *now, elapsed_s)
                if on_status is not None:
                    on_status(JobStatus(name=self._name, status=now[0], secondary=now[1], elapsed_s=elapsed_s))
            logs.forward()
            if now[0] in FINAL:
                return description
            self._pause()

    def stop(self) -> None:
        """Ask the service to stop the job; one that is at its end, or never came to be, is a success."""
        try:
            self._client.stop_training_job(TrainingJobName=self._name)
            LOG.warning("%s: asked to stop", self._name)
        except ClientError as error:
            if _code(error) not in ("ValidationException", "ResourceNotFound"):
                LOG.error("%s: may still be running, StopTrainingJob was refused: %s", self._name, _text(error))
        except BotoCoreError as error:
            LOG.error("%s: may still be running, StopTrainingJob did not get through: %s", self._name, error)

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
                    raise TrainingJobFailed(text) from error
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


def _text(error: ClientError) -> str:
    return f"{_code(error)}: {error.response['Error'].get('Message', '')}"


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """SIGTERM ends the block with SystemExit(143); repeated ones do not disturb the way out.

    A caller who handles SIGTERM already, or may not on this thread, keeps what there is.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    asked = False

    def leave(signum: int, frame: object) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
