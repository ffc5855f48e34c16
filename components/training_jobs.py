"""Training jobs: the CreateTrainingJob request, and what a finished job leaves. jobs.py runs it."""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from components.errors import InvalidConfig
from components.job_bills import Bill, bill, log_link
from components.job_kinds import TRAINING
from components.job_requests import Job, has_own_disks, identified, refuse_twice
from components.jobs import JobStatus, NoCapacity, check_completed, run_job

LOG = logging.getLogger(__name__)

# Phases in which the service itself has stopped a job, and the limit of the request that they stand for.
LIMITS = {"MaxRuntimeExceeded": "MaxRuntimeInSeconds", "MaxWaitTimeExceeded": "MaxWaitTimeInSeconds"}
# How a FailureReason begins when there are no machines. Source: docs, troubleshooting of training jobs.
LACKS_CAPACITY = re.compile(r"(CapacityError|InsufficientInstanceCapacity|InsufficientCapacityError)\b")


@dataclass(frozen=True, kw_only=True)
class Channel:
    """One input of the training program: every object under `uri` (s3://... or, locally, file:///...).

    `listed`: `uri` is a manifest file, whose objects are the channel's, in its order.
    """

    name: str
    uri: str
    input_mode: Literal["File", "FastFile", "Pipe"] = "File"
    distribution: Literal["FullyReplicated", "ShardedByS3Key"] = "FullyReplicated"
    listed: bool = False


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number that the service finds in the program's log lines; the regex has one group, the number."""

    name: str
    regex: str


@dataclass(frozen=True, kw_only=True)
class TrainingJob(Job):
    """What to run.

    Attributes:
        alternatives: other instance types, in the order in which they are taken when there is no capacity.
        capacity: "fallback" asks for one type after the other, each a job of its own; "preferences" has the service choose.
        use_spot: spot instances; needs max_wait_s, for machines and training together, and checkpoint_uri.
        checkpoint_uri: what the program leaves in /opt/ml/checkpoints is kept there, and is there again after an interruption.
        keep_alive_s: the machines wait so long for another job of the same kind (a warm pool), and are billed.
    """

    output_uri: str
    channels: tuple[Channel, ...] = ()
    hyperparameters: dict[str, str] = field(default_factory=dict)
    alternatives: tuple[str, ...] = ()
    capacity: Literal["fallback", "preferences"] = "fallback"
    use_spot: bool = False
    max_wait_s: int = 0
    checkpoint_uri: str = ""
    keep_alive_s: int = 0
    metrics: tuple[Metric, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_twice(self, "channel", [channel.name for channel in self.channels])
        refuse_twice(self, "instance type", [self.instance_type, *self.alternatives])
        if problem := self._problem():
            raise InvalidConfig(f"job {self.base_name}: {problem}")

    def _problem(self) -> str | None:
        """What the service would refuse, or would let happen and nobody wants."""
        if self.use_spot and self.max_wait_s < self.max_runtime_s:
            return f"max_wait_s {self.max_wait_s} on spot instances must not be below max_runtime_s {self.max_runtime_s}"
        if self.use_spot and not self.checkpoint_uri:
            return "spot instances without checkpoint_uri: an interruption would lose everything; name a place for checkpoints"
        if self.use_spot and (self.keep_alive_s or self.capacity == "preferences"):
            return "spot instances have no warm pool and no preferences; set keep_alive_s 0 and capacity fallback"
        if self.max_wait_s and not self.use_spot:
            return f"max_wait_s {self.max_wait_s} is for spot instances; set use_spot"
        if self.capacity == "preferences" and len(self.alternatives) > 4:
            return (
                f"capacity preferences: {1 + len(self.alternatives)} instance types, the service takes 5; name fewer alternatives"
            )
        return None

    @property
    def _preferred(self) -> tuple[str, ...]:
        """The types among which the service chooses, where it does."""
        return (self.instance_type, *self.alternatives) if self.capacity == "preferences" and self.alternatives else ()

    def cluster(self) -> dict[str, Any]:
        """The machines, as the API says it."""
        machines = super().cluster()
        if self._preferred:
            del machines["InstanceType"]
            machines["InstancePreferences"] = [{"InstanceType": each} for each in self._preferred]
            if any(map(has_own_disks, self._preferred)):
                machines.pop("VolumeKmsKeyId", None)
        return machines | ({"KeepAlivePeriodInSeconds": self.keep_alive_s} if self.keep_alive_s else {})


@dataclass(frozen=True, kw_only=True)
class FinishedJob:
    """A completed job. The URIs are of tar.gz files; one of which nothing was written may not exist.

    `passed_over` says which instance types had no capacity, and `metrics` holds the last values of the request's metrics.
    """

    name: str
    arn: str
    status: str
    model_uri: str
    output_uri: str
    training_s: float
    billable_s: float
    bill: Bill | None = None
    log_link: str = ""
    passed_over: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


def create_request(job: TrainingJob) -> dict[str, Any]:
    """The CreateTrainingJob request."""
    stopping = {"MaxRuntimeInSeconds": job.max_runtime_s} | ({"MaxWaitTimeInSeconds": job.max_wait_s} if job.use_spot else {})
    algorithm: dict[str, Any] = {"TrainingImage": job.image, "TrainingInputMode": "File", **job.command()}
    if job.metrics:
        algorithm["MetricDefinitions"] = [{"Name": metric.name, "Regex": metric.regex} for metric in job.metrics]
    request: dict[str, Any] = {
        "AlgorithmSpecification": algorithm,
        "RoleArn": job.role_arn,
        "HyperParameters": dict(job.hyperparameters),
        "OutputDataConfig": {"S3OutputPath": job.output_uri} | ({"KmsKeyId": job.kms_key} if job.kms_key else {}),
        "ResourceConfig": job.cluster(),
        "StoppingCondition": stopping,
        "Environment": dict(job.environment),
    }
    if job.channels:
        request["InputDataConfig"] = [_channel_request(channel) for channel in job.channels]
    if job.use_spot:
        request["EnableManagedSpotTraining"] = True
    if job.checkpoint_uri:
        request["CheckpointConfig"] = {"S3Uri": job.checkpoint_uri}
    if job.network:
        request |= job.network.request()
    return identified(job, request, name_member=TRAINING.name)


def _channel_request(channel: Channel) -> dict[str, Any]:
    kind = "ManifestFile" if channel.listed else "S3Prefix"
    source = {"S3DataType": kind, "S3Uri": channel.uri, "S3DataDistributionType": channel.distribution}
    return {"ChannelName": channel.name, "InputMode": channel.input_mode, "DataSource": {"S3DataSource": source}}


def run_training_job(
    job: TrainingJob,
    client: Any,
    *,
    poll_s: float = 30.0,
    patience_s: float | None = None,
    on_status: Callable[[JobStatus], None] | None = None,
) -> FinishedJob:
    """Create the job, or adopt the one that an earlier try created, and follow it to its end; see `components.jobs.run_job`.

    Without capacity for the job's instance type its alternatives are tried in order. A retry finds the jobs that had none, and goes
    the same way.

    Raises:
        InvalidConfig: the service would refuse the request for its form; nothing was sent.
        TrainingJobFailed: refused, failed, stopped, out of time, no capacity of any type, or the name belongs to another job.
    """
    types = (job.instance_type, *job.alternatives) if job.capacity == "fallback" else (job.instance_type,)
    passed_over: list[str] = []
    for instance_type in types:
        each = replace(job, instance_type=instance_type, alternatives=() if job.capacity == "fallback" else job.alternatives)
        request = create_request(each)
        try:
            description = run_job(TRAINING, request, client, poll_s=poll_s, patience_s=patience_s, on_status=on_status)
        except NoCapacity as error:
            passed_over.append(f"{instance_type}: {error}")
            LOG.warning("%s: no capacity of %s: %s", request[TRAINING.name], instance_type, error)
            continue
        reason = str(description.get("FailureReason", ""))
        if description[TRAINING.status] == "Failed" and LACKS_CAPACITY.match(reason):
            passed_over.append(f"{instance_type}: {reason}")
            LOG.warning("%s: no capacity of %s: %s", description[TRAINING.name], instance_type, reason)
            continue
        return _finished(description, client, tuple(passed_over))
    said = " ".join("; ".join(passed_over).split())
    raise TRAINING.failure(f"job {job.base_name}: no capacity ({said}); try later, or plan with other instance types")


def _finished(description: Mapping[str, Any], client: Any, passed_over: tuple[str, ...]) -> FinishedJob:
    phase, limit = description["SecondaryStatus"], ""
    if phase in LIMITS:
        limit = f"{LIMITS[phase]} = {description['StoppingCondition'].get(LIMITS[phase])} s ({phase})"
    link = log_link(TRAINING, description)
    check_completed(TRAINING, description, limit=limit, link=link)
    name = description["TrainingJobName"]
    folder = f"{description['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{name}/output"
    return FinishedJob(
        name=name,
        arn=description["TrainingJobArn"],
        status=description["TrainingJobStatus"],
        model_uri=description.get("ModelArtifacts", {}).get("S3ModelArtifacts", f"{folder}/model.tar.gz"),
        output_uri=f"{folder}/output.tar.gz",
        training_s=float(description.get("TrainingTimeInSeconds", 0)),
        billable_s=float(description.get("BillableTimeInSeconds", 0)),
        bill=bill(description),
        log_link=link,
        passed_over=passed_over,
        metrics={each["MetricName"]: float(each["Value"]) for each in description.get("FinalMetricDataList", [])},
    )
