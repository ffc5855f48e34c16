"""A SageMaker endpoint on this machine: the real API over HTTP, whose hosts are process groups.

    with LocalSageMaker(Path("jobs")) as endpoint:
        os.environ["AWS_ENDPOINT_URL_SAGEMAKER"] = endpoint.url

Requests are checked against botocore's service model, and answered and refused in AWS's shapes, so that an operator that
works here has not learned anything wrong. What the endpoint cannot do, such as encryption with a key, it refuses.
The image is not pulled: ContainerEntrypoint and ContainerArguments run in this environment, or what our own image runs without
them. It holds one account and region, listens on loopback only, and everything it started ends with it, also when it is killed.
"""

import itertools
import json
import math
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from components.errors import InvalidConfig
from components.job_kinds import TRAINING, JobKind
from components.request_checks import Service, check_request, service_model
from pipelines.local.faults import Faults
from pipelines.local.job_logs import describe_log_streams, get_log_events
from pipelines.local.jobs import Job
from pipelines.local.machines import Machines
from pipelines.local.processing_jobs import ProcessingJob
from pipelines.local.server import Handler, Server, ServiceError
from pipelines.local.training_jobs import TrainingJob

ARN = "arn:aws:sagemaker:us-east-1:000000000000:{}/{}"
PREFIXES: dict[str, Service] = {"SageMaker": "sagemaker", "Logs_20140328": "logs"}
KINDS: tuple[type[Job], ...] = (TrainingJob, ProcessingJob)
NOT_LISTED_BY = {"WarmPoolStatusEquals", "TrainingPlanArnEquals"}
MOST_TAGS = 50


class LocalSageMaker:
    """The endpoint while the with block lasts.

    Args:
        root: folder for the jobs; each makes <root>/<job>/algo-<n>/ (its /opt/ml) and <root>/<job>/algo-<n>.log.
        stop_grace_s: seconds between SIGTERM and SIGKILL; 120 is SageMaker's own.
        cpus_per_host: how many of this machine's CPUs a host may use; 0: all.
    `faults` are the service's bad days, on demand.
    """

    def __init__(self, root: Path, *, stop_grace_s: float = 120.0, cpus_per_host: int = 0) -> None:
        self.faults = Faults()
        self._root = root.absolute()
        self._machines = Machines(stop_grace_s=stop_grace_s, cpus_per_host=cpus_per_host, lacking=self.faults.lacking)
        self._jobs: dict[tuple[JobKind, str], Job] = {}
        self._tags: dict[str, dict[str, str]] = {}
        self._lock, self._closed = threading.Lock(), False
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.answer, self._server.faults = self.answer, self.faults
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "AddTags": self._add_tags,
            "ListTags": self._list_tags,
            "DescribeLogStreams": self._describe_log_streams,
            "GetLogEvents": self._get_log_events,
        }
        for job_class in KINDS:
            kind = job_class.kind
            self._operations |= {
                kind.operation("Create"): partial(self._create, job_class),
                kind.operation("Describe"): partial(self._describe, kind),
                kind.operation("Stop"): partial(self._stop, kind),
                kind.operation("List"): partial(self._list, kind),
            }

    @property
    def url(self) -> str:
        """What AWS_ENDPOINT_URL_SAGEMAKER should be."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "LocalSageMaker":
        self._root.mkdir(parents=True, exist_ok=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        with self._lock:  # connections that are open still get answers, but no new job
            self._closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.close()

    def interrupt(self, training_job: str) -> None:
        """Take the spot instances of a job away; it starts again on others, with its checkpoints.

        Raises:
            ServiceError: there is no such job. ValueError: it is not on spot instances.
        """
        self._job(TRAINING, {TRAINING.name: training_job}).interrupt()

    def answer(self, target: str, body: bytes) -> dict[str, Any]:
        """Carry out one call.

        Args:
            target: the X-Amz-Target header.
        Raises:
            ServiceError: refused, as the API words it.
        """
        prefix, _, operation = target.partition(".")
        if prefix not in PREFIXES or operation not in self._operations:
            raise ServiceError("UnknownOperationException", f"the local endpoint has no {target}")
        service = PREFIXES[prefix]
        if operation not in service_model(service).operation_names:
            raise ServiceError("UnknownOperationException", f"{prefix} has no {operation}")
        try:
            request = json.loads(body or b"{}")
            if not isinstance(request, dict):
                raise ValueError("not an object")
        except ValueError as error:
            raise ServiceError("SerializationException", f"the body is not a JSON object: {error}") from error
        try:
            check_request(operation, request, file_uris=True, service=service)
        except InvalidConfig as error:
            code = "ValidationException" if service == "sagemaker" else "InvalidParameterException"
            raise ServiceError(code, str(error)) from error
        return self._operations[operation](request)

    def _create(self, job_class: type[Job], request: dict[str, Any]) -> dict[str, Any]:
        _refuse_what_is_not_carried_out(job_class, request)
        kind = job_class.kind
        name = request[kind.name]
        with self._lock:
            arn = ARN.format(kind.noun.replace(" ", "-"), name)
            if self._closed:
                raise ServiceError("ServiceUnavailable", "the local endpoint is closing")
            if (kind, name) in self._jobs:
                noun = kind.noun.capitalize()
                text = f"{noun} names must be unique within an AWS account and region, and this one exists already ({arn})"
                raise ServiceError("ResourceInUse", text)
            job = job_class(request, arn, self._folder(name), self._machines)
            self._jobs[kind, name] = job
            self._tags[arn] = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
            job.start()
        return {kind.arn: arn}

    def _folder(self, name: str) -> Path:
        """A folder for the job that no endpoint before this one has used."""
        candidates = itertools.chain([self._root / name], (self._root / f"{name}.{again}" for again in itertools.count(2)))
        return next(folder for folder in candidates if not folder.exists())

    def _job(self, kind: JobKind, request: dict[str, Any]) -> Job:
        with self._lock:
            job = self._jobs.get((kind, request[kind.name]))
        if job is None:
            raise ServiceError("ResourceNotFound", f"{kind.noun.capitalize()} {request[kind.name]} not found")
        return job

    def _describe(self, kind: JobKind, request: dict[str, Any]) -> dict[str, Any]:
        return self._job(kind, request).describe()

    def _stop(self, kind: JobKind, request: dict[str, Any]) -> dict[str, Any]:
        job = self._job(kind, request)
        if not job.stop():
            text = f"{kind.noun.capitalize()} {job.name} is in status {job.status} and cannot be stopped"
            raise ServiceError("ValidationException", text)
        return {}

    def _list(self, kind: JobKind, request: dict[str, Any]) -> dict[str, Any]:
        if unknown := request.keys() & NOT_LISTED_BY:
            raise ServiceError("ValidationException", f"the local endpoint does not list by {', '.join(sorted(unknown))}")
        keys = {"Name": lambda job: job.name, "Status": lambda job: job.status, "CreationTime": lambda job: job.created}
        with self._lock:
            key, falling = keys[request.get("SortBy", "CreationTime")], request.get("SortOrder", "Descending") == "Descending"
            jobs = sorted(self._of_kind(kind), key=key, reverse=falling)
        chosen = [
            {
                kind.name: job.name,
                kind.arn: job.arn,
                "CreationTime": job.created,
                "LastModifiedTime": job.modified,
                kind.status: job.status,
            }
            for job in jobs
            if request.get("NameContains", "") in job.name
            and request.get("StatusEquals", job.status) == job.status
            and request.get("CreationTimeAfter", 0) < job.created < request.get("CreationTimeBefore", math.inf)
            and request.get("LastModifiedTimeAfter", 0) < job.modified < request.get("LastModifiedTimeBefore", math.inf)
        ]
        first = int(request.get("NextToken", "0"))
        last = first + request.get("MaxResults", 10)
        return {kind.summaries: chosen[first:last], **({"NextToken": str(last)} if last < len(chosen) else {})}

    def _tags_of(self, request: dict[str, Any]) -> dict[str, str]:
        tags = self._tags.get(request["ResourceArn"])
        if tags is None:
            raise ServiceError("ResourceNotFound", f"{request['ResourceArn']} not found")
        return tags

    def _add_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            tags = self._tags_of(request)
            added = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
            if len(tags | added) > MOST_TAGS:
                raise ServiceError("ResourceLimitExceeded", f"a resource has at most {MOST_TAGS} tags")
            tags.update(added)
            return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}

    def _list_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            tags = [{"Key": key, "Value": value} for key, value in self._tags_of(request).items()]
        first = int(request.get("NextToken", "0"))
        last = first + request.get("MaxResults", MOST_TAGS)
        return {"Tags": tags[first:last], **({"NextToken": str(last)} if last < len(tags) else {})}

    def _of_kind(self, kind: JobKind) -> list[Job]:
        """The lock must be held."""
        return [job for job in self._jobs.values() if job.kind == kind]

    def _logged_jobs(self, request: dict[str, Any]) -> list[Job]:
        kind = next((each.kind for each in KINDS if each.kind.log_group == request.get("logGroupName")), None)
        if kind is None:
            raise ServiceError("ResourceNotFoundException", "The specified log group does not exist.")
        with self._lock:
            return self._of_kind(kind)

    def _describe_log_streams(self, request: dict[str, Any]) -> dict[str, Any]:
        return describe_log_streams(self._logged_jobs(request), request)

    def _get_log_events(self, request: dict[str, Any]) -> dict[str, Any]:
        events = get_log_events(self._logged_jobs(request), request)
        if events is None:
            raise ServiceError("ResourceNotFoundException", "The specified log stream does not exist.")
        return events


def _refuse_what_is_not_carried_out(job_class: type[Job], request: dict[str, Any]) -> None:
    """Also sets the one default of the service that this endpoint goes by."""
    cluster = job_class.cluster(request)
    if unknown := request.keys() - job_class.carried_out:
        what: str | None = ", ".join(sorted(unknown))
    elif "InstanceType" not in cluster or cluster.get("InstanceCount", 0) < 1:
        what = "a cluster without InstanceType and an InstanceCount of 1 or more"
    else:
        what = job_class.refusal(request)
    if what is not None:
        raise ServiceError("ValidationException", f"the local endpoint does not carry out {what}")
    request["StoppingCondition"] = {"MaxRuntimeInSeconds": 86_400, **request.get("StoppingCondition", {})}
