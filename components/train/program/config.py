"""Settings of a training, from the hyperparameters of a SageMaker training job, which arrive as strings."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from components.errors import InvalidConfig, hint_for
from components.learning import Learning

StrategyName = Literal["single", "horovod", "parameter_server", "tower", "mirrored"]
PlacementName = Literal["auto", "shared", "replicated_sparse", "replicated_dense", "sharded"]
ProbeName = Literal["none", "input", "compute", "both", "all"]
CacheName = Literal["auto", "on", "off"]
DeviceName = Literal["auto", "cpu", "gpu"]
CrossDeviceName = Literal["reduction_to_one", "hierarchical_copy", "nccl"]

# Strategies of one process on one host, and those of them that split its batch over devices.
ONE_PROCESS: tuple[StrategyName, ...] = ("single", "tower", "mirrored")
TOWERS: tuple[StrategyName, ...] = ("tower", "mirrored")

# Source: CreateTrainingJob, HyperParameters; what is longer never arrives, so whoever wrote it meant to send it another way.
MAX_HYPERPARAMETERS, MAX_KEY_CHARACTERS, MAX_VALUE_CHARACTERS = 100, 256, 2500


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Learning):
    """One training: what is learned, and how it runs.

    `batch_size` is per worker. The learning rate is `learning_rate` times `learning_rate_factor`, which is how it is scaled to
    several workers: nothing is multiplied by their number unasked. It rises over `warmup_steps`. `steps` 0 means that `epochs`
    decide. `field_size` and `feature_size` 0 mean: as the manifest says; anything else must agree with it. Threads 0 mean as many
    as the usable CPUs, divided among the workers of a host; an empty `kmp_affinity` sets none.
    A probe ends after `max_seconds`, or before when its rate is known within `probe_precision` (a share of it; 0 = never before);
    probe all does both, compute and input one after the other in one process, each with its own clock.
    `parallel_reads` files are read side by side and `map_parallelism` records decoded, `prefetch_batches` are ready before they are
    asked for; 0 leaves a number to input.py. `cache` keeps decoded rows for the next epoch, auto where they fit.
    `checkpoint_steps` 0 writes no checkpoints; otherwise one every so many steps and at the end, of which `keep_checkpoints` are
    kept.
    `embedding_placement` is where Horovod's ranks have the embedding table (placement.py); auto takes what costs least.
    `ps_synchronous` makes parameter servers combine all workers' gradients at each step, to compare them with the other strategies.
    `towers` devices share the batch of strategies tower and mirrored, 2 where it is 0; a worker of parameter servers computes its
    batch in as many parts side by side, 1 where it is 0. `device` auto means GPUs where there are enough, one a tower or one a
    Horovod rank of a host.
    `cross_device` is how mirrored averages dense gradients. `warm_start` begins with the weights of channel `champion`.
    """

    strategy: StrategyName = "single"
    field_size: int = 0
    feature_size: int = 0
    batch_size: int = 1024
    steps: int = 0
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    omp_threads: int = 0
    kmp_affinity: str = ""
    workers_per_host: int = 1
    embedding_placement: PlacementName = "auto"
    ps_synchronous: bool = False
    probe: ProbeName = "none"
    max_seconds: float = 0.0
    probe_precision: float = 0.0
    parallel_reads: int = 0
    map_parallelism: int = 0
    prefetch_batches: int = 0
    cache: CacheName = "auto"
    checkpoint_steps: int = 0
    keep_checkpoints: int = 3
    warm_start: bool = False
    towers: int = 0
    device: DeviceName = "auto"
    cross_device: CrossDeviceName = "reduction_to_one"

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = {
            "strategy": StrategyName,
            "probe": ProbeName,
            "cache": CacheName,
            "embedding_placement": PlacementName,
            "device": DeviceName,
            "cross_device": CrossDeviceName,
        }
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                raise InvalidConfig(f"{name} {getattr(self, name)!r} is none of {', '.join(get_args(kind))}")
        for name in ("batch_size", "workers_per_host", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name} {getattr(self, name)}: at least 1 is needed")
        for name in ("field_size", "feature_size", "steps", "max_seconds", "probe_precision", "towers"):
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name} {getattr(self, name)}: must not be negative")
        threads = ("intra_op_threads", "inter_op_threads", "omp_threads")
        for name in (*threads, "parallel_reads", "map_parallelism", "prefetch_batches"):
            if not 0 <= getattr(self, name) <= 1024:
                raise InvalidConfig(f"{name} {getattr(self, name)}: must be in 0..1024, 0 for the default")
        if self.strategy in ONE_PROCESS and self.workers_per_host != 1:
            raise InvalidConfig(f"workers_per_host {self.workers_per_host}: strategy {self.strategy} has one worker")
        if self.strategy == "parameter_server" and self.workers_per_host != 1:
            raise InvalidConfig(f"workers_per_host {self.workers_per_host}: strategy parameter_server has one worker a host")
        if self.strategy == "parameter_server" and self.probe in ("input", "compute", "all"):
            raise InvalidConfig(f"probe {self.probe}: strategy parameter_server trains as it is, with none or both")
        self._check_towers()
        if self.strategy not in (*TOWERS, "horovod") and self.device == "gpu":
            raise InvalidConfig(f"device gpu: strategy {self.strategy} has no GPU variant; {', '.join(TOWERS)} and horovod have")

    @property
    def tower_count(self) -> int:
        """Parts that the batch of one process is split into."""
        return self.towers or (2 if self.strategy in TOWERS else 1)

    def _check_towers(self) -> None:
        if self.tower_count > 1 and self.strategy not in (*TOWERS, "parameter_server"):
            raise InvalidConfig(f"towers {self.towers}: strategy {self.strategy} does not split its batch; tower, mirrored do")
        if self.batch_size % self.tower_count:
            raise InvalidConfig(f"batch_size {self.batch_size}: must be divisible by the {self.tower_count} towers that share it")
        if self.strategy == "mirrored" and self.cross_device == "hierarchical_copy" and self.tower_count % 2:
            raise InvalidConfig(f"towers {self.towers}: cross_device hierarchical_copy pairs devices; use an even number")
        if self.strategy == "mirrored" and self.cross_device == "nccl" and self.device == "cpu":
            raise InvalidConfig("cross_device nccl: it is for GPUs; use reduction_to_one or hierarchical_copy on device cpu")


def _integer(text: str) -> int:
    """A whole number, also written 1000.0 or 1e3."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise ValueError("not a whole number") from None
        return int(number)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in values:
        raise ValueError("neither true nor false")
    return values[text.lower()]


def _items(text: str) -> list[str]:
    """[128, 64] or 128,64; an empty text is an empty list."""
    stripped = text.strip()
    items = json.loads(stripped) if stripped.startswith("[") else [part for part in stripped.split(",") if part.strip()]
    return [str(item) for item in items]


_PARSERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    int: (_integer, "a whole number is expected"),
    float: (_number, "a finite number is expected"),
    bool: (_boolean, "true or false is expected"),
    tuple[int, ...]: (
        lambda text: tuple(map(_integer, _items(text))),
        "a list of whole numbers is expected, like [128,64,32]",
    ),
    tuple[float, ...]: (
        lambda text: tuple(map(_number, _items(text))),
        "a number or a list of numbers is expected, like [0.5,0.25]",
    ),
}


def _check_limits(texts: Mapping[str, str]) -> None:
    """What SageMaker itself refuses; elsewhere it would come as a riddle."""
    if len(texts) > MAX_HYPERPARAMETERS:
        raise InvalidConfig(f"{len(texts)} hyperparameters: SageMaker takes at most {MAX_HYPERPARAMETERS}")
    for key, text in texts.items():
        if len(key) > MAX_KEY_CHARACTERS:
            raise InvalidConfig(f"hyperparameter {key[:40]}...: a name of {len(key)} characters, at most {MAX_KEY_CHARACTERS}")
        if len(str(text)) > MAX_VALUE_CHARACTERS:
            raise InvalidConfig(
                f"hyperparameter {key}: {len(str(text))} characters, at most {MAX_VALUE_CHARACTERS}; "
                "put lists of files in a channel"
            )


def parse_hyperparameters(texts: Mapping[str, str]) -> TrainConfig:
    """Typed settings.

    Raises:
        InvalidConfig: an unknown key (with the nearest known one), a malformed or impossible value.
    """
    _check_limits(texts)
    types = {field.name: field.type for field in fields(TrainConfig)}
    settings: dict[str, Any] = {}
    for key, text in texts.items():
        if key not in types:
            raise InvalidConfig(f"hyperparameter {key} is unknown; {hint_for(key, types)}")
        # The SageMaker SDK sends JSON: a text arrives as "adam" with the quotes in it.
        value = str(text).strip().removeprefix('"').removesuffix('"')
        if types[key] in _PARSERS:
            parse, expected = _PARSERS[types[key]]
            try:
                settings[key] = parse(value)
            except (ValueError, OverflowError):
                raise InvalidConfig(f"hyperparameter {key} {value!r}: {expected}") from None
        else:
            settings[key] = value if key in ("kmp_affinity", "own_model") else value.lower()
    return TrainConfig(**settings)
