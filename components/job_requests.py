"""A job as it is asked for, of either kind: where and as whom it runs, and its name, made from who asks for what."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.errors import InvalidConfig

RUN_TAG, TASK_TAG, HASH_TAG = "ctrflow:run-id", "ctrflow:task", "ctrflow:request-hash"
NAME_CHARACTERS = 63
NAME_HASH_CHARACTERS = 16


# Types with disks of their own, which their hardware encrypts: a key for them is refused. Source: API reference, ResourceConfig.
_OWN_DISKS = re.compile(r"ml\.(g[4-9][a-z]*|p[4-9][a-z0-9-]*|trn\d[a-z]*|[a-z]\d+[a-z]*d[a-z]*)\..+")


@dataclass(frozen=True, kw_only=True)
class Network:
    """The machines' network. Isolation is off by default: an isolated container reaches no S3, also not with a role that may.

    Horovod's ranks and parameter servers reach each other in spite of it; input, checkpoints and logs are the service's own work.
    """

    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    isolated: bool = False
    encrypted_between_hosts: bool = False

    def __post_init__(self) -> None:
        if bool(self.subnets) != bool(self.security_groups):
            raise InvalidConfig(f"network: subnets {self.subnets}, security groups {self.security_groups}; give both or neither")

    def request(self) -> dict[str, Any]:
        """The NetworkConfig of a processing job; a training job has the same members at its top."""
        config: dict[str, Any] = {
            "EnableNetworkIsolation": self.isolated,
            "EnableInterContainerTrafficEncryption": self.encrypted_between_hosts,
        }
        if self.subnets:
            config["VpcConfig"] = {"SecurityGroupIds": list(self.security_groups), "Subnets": list(self.subnets)}
        return config


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every job needs. `base_name`, `run_id`, `task` and `attempt` say who asks; a new attempt is a new job.

    `kms_key` encrypts the outputs and the machines' volumes; empty leaves both to the account's own keys.
    """

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
    network: Network | None = None
    kms_key: str = ""

    def __post_init__(self) -> None:
        if self.instance_count < 1:
            raise InvalidConfig(f"job {self.base_name}: instance_count {self.instance_count}, at least 1 is needed")

    def cluster(self) -> dict[str, Any]:
        """The machines, as the API says it."""
        machines = {"InstanceType": self.instance_type, "InstanceCount": self.instance_count, "VolumeSizeInGB": self.volume_gb}
        return machines | ({"VolumeKmsKeyId": self.kms_key} if self.kms_key and not has_own_disks(self.instance_type) else {})

    def command(self) -> dict[str, Any]:
        """What the container runs, as the API says it; it allows no empty lists."""
        command = {"ContainerEntrypoint": list(self.entrypoint)}
        return command | ({"ContainerArguments": list(self.arguments)} if self.arguments else {})


def has_own_disks(instance_type: str) -> bool:
    return _OWN_DISKS.fullmatch(instance_type) is not None


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
    tags = {**job.tags, RUN_TAG: job.run_id, TASK_TAG: job.task, HASH_TAG: request_hash}
    return {
        **request,
        name_member: job_name(job.base_name, job.run_id, job.task, job.attempt, request_hash),
        "Environment": {**job.environment, "CTRFLOW_RUN_ID": job.run_id, "CTRFLOW_REQUEST_HASH": request_hash},
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
