"""A job as it is asked for, of either kind: where and as whom it runs, and its name, made from who asks for what."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.errors import InvalidConfig

HASH_TAG = "ctrflow:request-hash"
NAME_CHARACTERS = 63
NAME_HASH_CHARACTERS = 16


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every job needs. `base_name`, `run_id`, `task` and `attempt` say who asks; a new attempt is a new job."""

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
    environment: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.instance_count < 1:
            raise InvalidConfig(f"job {self.base_name}: instance_count {self.instance_count}, at least 1 is needed")

    def cluster(self) -> dict[str, Any]:
        """The machines, as the API says it."""
        return {"InstanceType": self.instance_type, "InstanceCount": self.instance_count, "VolumeSizeInGB": self.volume_gb}

    def command(self) -> dict[str, Any]:
        """What the container runs, as the API says it; it allows no empty lists."""
        command = {"ContainerEntrypoint": list(self.entrypoint)}
        return command | ({"ContainerArguments": list(self.arguments)} if self.arguments else {})


def refuse_twice(job: Job, what: str, names: Sequence[str]) -> None:
    """Names of inputs and outputs tell them apart."""
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidConfig(f"job {job.base_name}: {what} {', '.join(sorted(twice))} is there more than once")


def job_name(base: str, run_id: str, task: str, attempt: int, request_hash: str) -> str:
    """A legal name (1 to 63 letters, digits and inner hyphens) that differs when any argument differs.

    `base` is what people see: it is reduced to what a name may hold and cut; the hash after it tells names apart.
    """
    digest = hashlib.sha256(json.dumps([base, run_id, task, attempt, request_hash]).encode()).hexdigest()[:NAME_HASH_CHARACTERS]
    ascii_base = unicodedata.normalize("NFKD", base).encode("ascii", "ignore").decode()
    readable = re.sub("[^a-zA-Z0-9]+", "-", ascii_base)[: NAME_CHARACTERS - 1 - NAME_HASH_CHARACTERS].strip("-")
    return f"{readable or 'job'}-{digest}"


def identified(job: Job, request: Mapping[str, Any], *, name_member: str) -> dict[str, Any]:
    """The request with a name; its tags and the job's environment carry the run id and the hash of all the rest."""
    request_hash = hashlib.sha256(json.dumps(request, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    tags = {**job.tags, "ctrflow:run-id": job.run_id, "ctrflow:task": job.task, HASH_TAG: request_hash}
    return {
        **request,
        name_member: job_name(job.base_name, job.run_id, job.task, job.attempt, request_hash),
        "Environment": {**job.environment, "CTRFLOW_RUN_ID": job.run_id, "CTRFLOW_REQUEST_HASH": request_hash},
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
