"""Processing jobs: the CreateProcessingJob request, and what a finished job leaves. jobs.py runs it.

A processing job is a container that finds its inputs as files and leaves its outputs as files, on one machine or several.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from components.errors import InvalidConfig
from components.job_kinds import PROCESSING
from components.job_requests import Job, identified, refuse_twice
from components.jobs import JobStatus, check_completed, run_job

# Inputs and outputs lie below it. Source: API reference, ProcessingS3Input, LocalPath.
ROOT = PurePosixPath("/opt/ml/processing")


@dataclass(frozen=True, kw_only=True)
class ProcessingInput:
    """Every object under `uri` (s3://... or, locally, file:///...), laid out as files below `path` before the program starts."""

    name: str
    uri: str
    path: str
    distribution: Literal["FullyReplicated", "ShardedByS3Key"] = "FullyReplicated"


@dataclass(frozen=True, kw_only=True)
class ProcessingOutput:
    """What the program leaves below `path`, put under `uri` when it has ended, or already while it runs (Continuous)."""

    name: str
    uri: str
    path: str
    upload: Literal["EndOfJob", "Continuous"] = "EndOfJob"


@dataclass(frozen=True, kw_only=True)
class ProcessingJob(Job):
    """What to run."""

    inputs: tuple[ProcessingInput, ...] = ()
    outputs: tuple[ProcessingOutput, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_twice(self, "input", [each.name for each in self.inputs])
        refuse_twice(self, "output", [each.name for each in self.outputs])
        paths = [*(each.path for each in self.inputs), *(each.path for each in self.outputs)]
        refuse_twice(self, "path", paths)
        for path in map(PurePosixPath, paths):
            if ROOT not in path.parents or ".." in path.parts:
                raise InvalidConfig(f"job {self.base_name}: path {path} is not below {ROOT}, where inputs and outputs must lie")


@dataclass(frozen=True, kw_only=True)
class FinishedProcessingJob:
    """A completed job. `exit_message` is what the container wrote to /opt/ml/output/message, up to 1 KB."""

    name: str
    arn: str
    exit_message: str
    processing_s: float


def create_request(job: ProcessingJob) -> dict[str, Any]:
    """The CreateProcessingJob request."""
    request: dict[str, Any] = {
        "AppSpecification": {"ImageUri": job.image, **job.command()},
        "RoleArn": job.role_arn,
        "ProcessingInputs": [_input_request(each) for each in job.inputs],
        "ProcessingResources": {"ClusterConfig": job.cluster()},
        "StoppingCondition": {"MaxRuntimeInSeconds": job.max_runtime_s},
        "Environment": dict(job.environment),
    }
    if job.outputs:
        outputs = {"Outputs": [_output_request(each) for each in job.outputs]}
        request["ProcessingOutputConfig"] = outputs | ({"KmsKeyId": job.kms_key} if job.kms_key else {})
    if job.network:
        request["NetworkConfig"] = job.network.request()
    return identified(job, request, name_member=PROCESSING.name)


def _input_request(each: ProcessingInput) -> dict[str, Any]:
    source = {"S3Uri": each.uri, "LocalPath": each.path, "S3DataType": "S3Prefix", "S3InputMode": "File"}
    return {"InputName": each.name, "S3Input": source | {"S3DataDistributionType": each.distribution}}


def _output_request(each: ProcessingOutput) -> dict[str, Any]:
    return {"OutputName": each.name, "S3Output": {"S3Uri": each.uri, "LocalPath": each.path, "S3UploadMode": each.upload}}


def run_processing_job(
    job: ProcessingJob,
    client: Any,
    *,
    poll_s: float = 30.0,
    patience_s: float | None = None,
    on_status: Callable[[JobStatus], None] | None = None,
) -> FinishedProcessingJob:
    """Create the job, or adopt the one that an earlier try created, and follow it to its end; see `components.jobs.run_job`.

    Raises:
        InvalidConfig: the service would refuse the request for its form; nothing was sent.
        ProcessingJobFailed: refused, failed, stopped, ran out of time, or the name belongs to another job.
    """
    request = create_request(job)
    description = run_job(PROCESSING, request, client, poll_s=poll_s, patience_s=patience_s, on_status=on_status)
    seconds = _seconds(description)
    # The API has no phase that says so, as it has for training.
    limit = f"MaxRuntimeInSeconds = {job.max_runtime_s} s" if seconds >= job.max_runtime_s else ""
    check_completed(PROCESSING, description, limit=limit)
    return FinishedProcessingJob(
        name=description["ProcessingJobName"],
        arn=description["ProcessingJobArn"],
        exit_message=description.get("ExitMessage", ""),
        processing_s=seconds,
    )


def _seconds(description: dict[str, Any]) -> float:
    """From start to end of the program; 0 when it has never started."""
    if "ProcessingStartTime" not in description or "ProcessingEndTime" not in description:
        return 0.0
    return float((description["ProcessingEndTime"] - description["ProcessingStartTime"]).total_seconds())
