"""The folders and files of SageMaker's container contract, under /opt/ml or SAGEMAKER_BASE_DIR.

Source: docs.aws.amazon.com, "How Amazon SageMaker provides training information".
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.errors import InvalidConfig
from components.train.program.config import TrainConfig, parse_hyperparameters

# A process of ours that lost a peer ends with this code: whoever took the peer away knows the cause better.
PEER_LOST = 75
# How long a FIFO of Pipe mode may be missing or silent; less than a step may take (launch.py), so that the cause is named.
PIPE_DEADLINE_S = 200.0


@dataclass(frozen=True, kw_only=True)
class Container:
    """One host of a training job."""

    base: Path
    hosts: tuple[str, ...]
    current_host: str
    network_interface: str

    @property
    def host_index(self) -> int:
        return self.hosts.index(self.current_host)

    @property
    def data(self) -> Path:
        return self.base / "input" / "data"

    @property
    def champion(self) -> Path:
        return self.data / "champion"

    @property
    def transform(self) -> Path:
        """What made ids and values of raw rows; there is none where raw rows held ids."""
        return self.data / "transform" / "transform.json"

    @property
    def model(self) -> Path:
        return self.base / "model"

    @property
    def output_data(self) -> Path:
        return self.base / "output" / "data"

    @property
    def checkpoints(self) -> Path:
        return self.base / "checkpoints"

    @property
    def failure(self) -> Path:
        return self.base / "output" / "failure"


def read_json_file(path: Path) -> Any:
    """One of the files of input/config."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{path}: {error}; it must be the JSON file that SageMaker writes") from error


def positive_number(environment: Mapping[str, str], name: str, default: float) -> float:
    """A number above 0 from the environment.

    Raises:
        InvalidConfig: it is not.
    """
    text = environment.get(name, str(default))
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise InvalidConfig(f"{name} {text!r}: a number above 0 is expected")
    return number


def read_container(environment: Mapping[str, str] = os.environ) -> Container:
    """This host, from resourceconfig.json.

    Raises:
        InvalidConfig: the file is missing or does not list the current host.
    """
    base = Path(environment.get("SAGEMAKER_BASE_DIR", "/opt/ml")).absolute()
    path = base / "input" / "config" / "resourceconfig.json"
    resources = read_json_file(path)
    hosts, current = tuple(resources["hosts"]), resources["current_host"]
    if current not in hosts:
        raise InvalidConfig(f"{path}: current_host {current!r} is none of {', '.join(hosts)}")
    return Container(
        base=base, hosts=hosts, current_host=current, network_interface=resources.get("network_interface_name", "eth0")
    )


def read_config(container: Container) -> TrainConfig:
    """The hyperparameters of the job, typed."""
    return parse_hyperparameters(read_json_file(container.base / "input" / "config" / "hyperparameters.json"))
