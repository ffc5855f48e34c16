"""The training channels of a host, from SageMaker's inputdataconfig.json.

    train                    one channel, which all workers of the host read
    train-0, train-1, ...    one channel for each worker of the host, named by its local rank

FastFile is File to this program: a mounted folder, whose files are fetched as they are read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from components.errors import InvalidConfig
from components.train.program.config import TrainConfig
from components.train.program.container import Container, read_json_file

InputMode = Literal["File", "FastFile", "Pipe"]

_TRAIN = re.compile(r"train(-\d+)?")


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Names in the order of local ranks, or `train` alone; `by_host`: S3 gives each host only a part of the files."""

    names: tuple[str, ...]
    input_mode: InputMode
    by_host: bool

    @property
    def per_worker(self) -> bool:
        return self.names != ("train",)

    def of(self, local_rank: int) -> str:
        """The channel that a worker reads."""
        return self.names[local_rank] if self.per_worker else self.names[0]


def find_channels(container: Container, config: TrainConfig) -> Channels:
    """Check the layout of the channels before anything starts.

    Raises:
        InvalidConfig: no channel to train on, another number of them than workers, or settings that do not go together.
    """
    path = container.base / "input" / "config" / "inputdataconfig.json"
    listed: Mapping[str, Mapping[str, Any]] = read_json_file(path)
    workers = config.workers_per_host
    names = sorted((name for name in listed if _TRAIN.fullmatch(name)), key=lambda name: (len(name), name))
    wanted = [f"train-{local}" for local in range(workers)]
    if names not in (["train"], wanted):
        raise InvalidConfig(
            f"{path}: channels {', '.join(listed) or 'none'}; give train, or one for each worker of a host: {', '.join(wanted)}"
        )
    modes = {str(listed[name].get("TrainingInputMode")) for name in names}
    distributions = {str(listed[name].get("S3DistributionType")) for name in names}
    if len(modes) > 1 or len(distributions) > 1:
        raise InvalidConfig(f"{path}: channels {', '.join(names)} differ in input mode or S3 distribution; make them alike")
    (mode,), (distribution,) = modes, distributions
    if mode not in get_args(InputMode):
        raise InvalidConfig(f"{path}: TrainingInputMode {mode!r} of {names[0]} is none of {', '.join(get_args(InputMode))}")
    if distribution not in ("FullyReplicated", "ShardedByS3Key"):
        raise InvalidConfig(f"{path}: S3DistributionType {distribution!r} is neither FullyReplicated nor ShardedByS3Key")
    channels = Channels(names=tuple(names), input_mode=mode, by_host=distribution == "ShardedByS3Key")  # type: ignore[arg-type]
    if mode == "Pipe":
        _check_pipe(channels, listed, config)
    if "transform" in listed and not container.transform.is_file():
        raise InvalidConfig(f"{container.transform}: missing; give channel transform the dataset's transform.json, input mode File")
    return channels


def _check_pipe(channels: Channels, listed: Mapping[str, Mapping[str, Any]], config: TrainConfig) -> None:
    workers = config.workers_per_host
    if len(channels.names) < workers:
        raise InvalidConfig(
            f"Pipe mode: {workers} workers of a host and one channel, {channels.names[0]}; two readers on one FIFO corrupt "
            f"each other, give channels {', '.join(f'train-{local}' for local in range(workers))}"
        )
    if config.strategy == "parameter_server":
        raise InvalidConfig("Pipe mode: the workers of strategy parameter_server read files; use input mode File or FastFile")
    if listed.get("manifest", {}).get("TrainingInputMode") == "Pipe":
        raise InvalidConfig("Pipe mode: channel manifest must be read before training; give it input mode File")
    for name in channels.names:
        wrapper = listed[name].get("RecordWrapperType", "None")
        if wrapper != "None":
            raise InvalidConfig(f"channel {name}: RecordWrapperType {wrapper} wraps records a second time; use None")
