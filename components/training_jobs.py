"""Training jobs: the CreateTrainingJob request, and what a finished job leaves. jobs.py runs it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from components.job_kinds import TRAINING
from components.job_requests import Job, identified, refuse_twice
from components.jobs import JobStatus, check_completed, run_job

# Phases in which the service itself has stopped a job, and the limit of the request that they stand for.
LIMITS = {"MaxRuntimeExceeded": "MaxRuntimeInSeconds", "MaxWaitTimeExceeded": "MaxWaitTimeInSeconds"}


@dataclass(frozen=True, kw_only=True)
class Channel:
    """One input of the training program: every object under `uri` (s3://... or, locally, file:///...)."""

    name: str
    uri: str
    input_mode: Literal["File", "FastFile", "Pipe"] = "File"
    distribution: Literal["FullyReplicated", "ShardedByS3Key"] = "FullyReplicated"


@dataclass(frozen=True, kw_only=True)
class TrainingJob(Job):
    """What to run."""

    output_uri: str
    channels: tuple[Channel, ...] = ()
    hyperparameters: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_twice(self, "channel", [channel.name for channel in self.channels])


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


def create_request(job: TrainingJob) -> dict[str, Any]:
    """The CreateTrainingJob request."""
    request: dict[str, Any] = {
        "AlgorithmSpecification": {"TrainingImage": job.image, "TrainingInputMode": "File", **job.command()},
        "RoleArn": job.role_arn,
        "HyperParameters": dict(job.hyperparameters),
        "OutputDataConfig": {"S3OutputPath": job.output_uri},
        "ResourceConfig": job.cluster(),
        "StoppingCondition": {"MaxRuntimeInSeconds": job.max_runtime_s},
        "Environment": dict(job.environment),
    }
    if job.channels:
        request["InputDataConfig"] = [_channel_request(channel) for channel in job.channels]
    return identified(job, request, name_member=TRAINING.name)


def _channel_request(channel: Channel) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": channel.uri, "S3DataDistributionType": channel.distribution}
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

    Raises:
        InvalidConfig: the service would refuse the request for its form; nothing was sent.
        TrainingJobFailed: refused, failed, stopped, ran out of time, or the name belongs to another job.
    """
    request = create_request(job)
    description = run_job(TRAINING, request, client, poll_s=poll_s, patience_s=patience_s, on_status=on_status)
    phase, limit = description["SecondaryStatus"], ""
    if phase in LIMITS:
        limit = f"{LIMITS[phase]} = {description['StoppingCondition'].get(LIMITS[phase])} s ({phase})"
    check_completed(TRAINING, description, limit=limit)
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
    )
