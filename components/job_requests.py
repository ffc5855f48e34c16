"""A training job as it is asked for: its name, made from who asks for what, and the CreateTrainingJob request."""

import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any, Literal

from components.errors import InvalidConfig

HASH_TAG = "ctrflow:request-hash"
NAME_CHARACTERS = 63
NAME_HASH_CHARACTERS = 16


@dataclass(frozen=True, kw_only=True)
class Channel:
    """One input of the training program: every object under `uri` (s3://... or, locally, file:///...)."""

    name: str
    uri: str
    input_mode: Literal["File", "FastFile"] = "File"
    distribution: Literal["FullyReplicated", "ShardedByS3Key"] = "FullyReplicated"


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What to run. `base_name`, `run_id`, `task` and `attempt` say who asks; a new attempt is a new job."""

    base_name: str
    run_id: str
    task: str
    attempt: int = 0
    image: str
    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    role_arn: str
    instance_type: str
    instance_count: int
    volume_gb: int = 30
    max_runtime_s: int
    output_uri: str
    channels: tuple[Channel, ...] = ()
    hyperparameters: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.instance_count < 1:
            raise InvalidConfig(f"training job {self.base_name}: instance_count {self.instance_count}, at least 1 is needed")
        names = [channel.name for channel in self.channels]
        if twice := {name for name in names if names.count(name) > 1}:
            raise InvalidConfig(f"training job {self.base_name}: channel {', '.join(sorted(twice))} is there more than once")


def job_name(base: str, run_id: str, task: str, attempt: int, request_hash: str) -> str:
    """A legal name (1 to 63 letters, digits and inner hyphens) that differs when any argument differs.

    `base` is what people see: it is reduced to what a name may hold and cut; the hash after it tells names apart.
    """
    digest = hashlib.sha256(json.dumps([base, run_id, task, attempt, request_hash]).encode()).hexdigest()[:NAME_HASH_CHARACTERS]
    ascii_base = unicodedata.normalize("NFKD", base).encode("ascii", "ignore").decode()
    readable = re.sub("[^a-zA-Z0-9]+", "-", ascii_base)[: NAME_CHARACTERS - 1 - NAME_HASH_CHARACTERS].strip("-")
    return f"{readable or 'job'}-{digest}"


def create_request(job: TrainingJob) -> dict[str, Any]:
    """The CreateTrainingJob request. Its tags and the job's environment carry the run id and the hash of all the rest."""
    algorithm: dict[str, Any] = {
        "TrainingImage": job.image,
        "TrainingInputMode": "File",
        "ContainerEntrypoint": list(job.entrypoint),
    }
    if job.arguments:
        algorithm["ContainerArguments"] = list(job.arguments)
    request: dict[str, Any] = {
        "AlgorithmSpecification": algorithm,
        "RoleArn": job.role_arn,
        "HyperParameters": dict(job.hyperparameters),
        "OutputDataConfig": {"S3OutputPath": job.output_uri},
        "ResourceConfig": {
            "InstanceType": job.instance_type,
            "InstanceCount": job.instance_count,
            "VolumeSizeInGB": job.volume_gb,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": job.max_runtime_s},
        "Environment": dict(job.environment),
    }
    if job.channels:
        request["InputDataConfig"] = [_channel_request(channel) for channel in job.channels]
    request_hash = hashlib.sha256(json.dumps(request, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    request["TrainingJobName"] = job_name(job.base_name, job.run_id, job.task, job.attempt, request_hash)
    request["Environment"] |= {"CTRFLOW_RUN_ID": job.run_id, "CTRFLOW_REQUEST_HASH": request_hash}
    tags = {**job.tags, "ctrflow:run-id": job.run_id, "ctrflow:task": job.task, HASH_TAG: request_hash}
    request["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
    return request


def _channel_request(channel: Channel) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": channel.uri, "S3DataDistributionType": channel.distribution}
    return {"ChannelName": channel.name, "InputMode": channel.input_mode, "DataSource": {"S3DataSource": source}}
