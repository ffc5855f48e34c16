"""Where and as whom the jobs of a run go; the same for probes, race and training. Parameter `jobs` of the pipeline is its JSON."""

import json
from dataclasses import dataclass, field
from typing import Literal

from components.errors import InvalidConfig
from components.job_requests import Network
from components.learning import require

# Source: API reference, ResourceConfig, KeepAlivePeriodInSeconds.
MOST_KEEP_ALIVE_S = 6 * 3600


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Where and as whom jobs run.

    Attributes:
        data_uri: where jobs find the dataset, such as s3://clicks/day; empty: its path on this machine, for the local endpoint.
        capacity: when there is none of a plan's instance type, "fallback" asks for its alternatives one by one, each a job of its
            own, and "preferences" leaves the choice to the service (InstancePreferences; not with spot).
        checkpoint_steps: a training writes a checkpoint every so many steps; 0: none, and 500 on spot instances.
        checkpoint_uri: where checkpoints go; empty: below output_uri. A later attempt of the same task goes on from them.
        max_wait_s: on spot instances, for machines and training together; 0: twice max_runtime_s.
        keep_alive_s: machines of a probe wait so long for the next probe (a warm pool, which is billed); 0: not at all.
        subnets, security_groups, isolated, encrypt_between_hosts: see `components.job_requests.Network`.
        kms_key: encrypts outputs and volumes.
        paid: by the second, as on SageMaker itself.
    """

    image: str
    role_arn: str
    instance_type: str
    run_id: str
    output_uri: str
    poll_s: float = 15.0
    max_runtime_s: int = 24 * 3600
    attempt: int = 0
    data_uri: str = ""
    capacity: Literal["fallback", "preferences"] = "fallback"
    checkpoint_steps: int = 0
    checkpoint_uri: str = ""
    max_wait_s: int = 0
    keep_alive_s: int = 0
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    isolated: bool = False
    encrypt_between_hosts: bool = False
    kms_key: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    paid: bool = True

    def __post_init__(self) -> None:
        # JSON has lists only.
        object.__setattr__(self, "subnets", tuple(self.subnets))
        object.__setattr__(self, "security_groups", tuple(self.security_groups))
        require(self.poll_s > 0, "poll_s", self.poll_s, "seconds above 0 are needed")
        require(self.max_runtime_s >= 1, "max_runtime_s", self.max_runtime_s, "at least 1 is needed")
        require(self.capacity in ("fallback", "preferences"), "capacity", self.capacity, "choose fallback or preferences")
        for name in ("attempt", "checkpoint_steps", "max_wait_s", "keep_alive_s"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")
        most = f"at most {MOST_KEEP_ALIVE_S} (6 hours)"
        require(self.keep_alive_s <= MOST_KEEP_ALIVE_S, "keep_alive_s", self.keep_alive_s, most)
        if self.max_wait_s and self.max_wait_s < self.max_runtime_s:
            raise InvalidConfig(f"max_wait_s {self.max_wait_s}: must not be below max_runtime_s {self.max_runtime_s}; raise it")
        self.network()

    def network(self) -> Network | None:
        """The jobs' network, None where nothing is asked of it."""
        network = Network(
            subnets=self.subnets,
            security_groups=self.security_groups,
            isolated=self.isolated,
            encrypted_between_hosts=self.encrypt_between_hosts,
        )
        return None if network == Network() else network


def settings_of_step(jobs: str, *, role: str, run_id: str, dataset: str) -> JobSettings:
    """The settings of a step's jobs.

    Args:
        jobs: JSON of the fields of JobSettings, without role_arn and run_id.
        dataset: the artifact's URI. Jobs read it where Kubeflow keeps it, unless `jobs` has a data_uri, or it is a path of this
            machine.
    Raises:
        InvalidConfig: Kubeflow keeps artifacts where SageMaker does not read.
    """
    given = json.loads(jobs)
    if "://" in dataset and not given.get("data_uri"):
        if not dataset.startswith("s3://"):
            raise InvalidConfig(
                f"{dataset}: SageMaker reads s3:// alone; set a pipeline root in S3, a recipe's cluster.pipeline_root"
            )
        given["data_uri"] = dataset
    return JobSettings(**given, role_arn=role, run_id=run_id)
