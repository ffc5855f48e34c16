"""plan.json: how a model is trained, and why so. select_strategy writes it, train carries it out, people read its rungs.

Batch sizes: a plan's `batch_size` is that of one worker. Synchronous strategies keep the global batch of the settings (one
worker's batch = global batch / workers), so they learn the same as a single process. Asynchronous parameter servers apply one
worker's gradient at a time, so there a worker's batch is the global one and each update is of the same size as a single process's.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from components.documents import read_json
from components.errors import InvalidConfig
from components.storage import write_json_atomic

FORMAT_VERSION = 1
Strategy = Literal["single", "horovod", "parameter_server"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
Optimizer = Literal["adam", "adagrad", "sgd"]
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)
InputMode = Literal["File", "FastFile"]
Distribution = Literal["FullyReplicated", "ShardedByS3Key"]
ProbeKind = Literal["none", "input", "compute", "both"]
LARGEST_SEED = 2**32 - 1  # what the program derives from it must fit in 64 bits
LOCAL = "local"  # the instance type of a plan for whatever machine the job settings name


def _require(condition: bool, name: str, value: object, expected: str) -> None:
    if not condition:
        raise InvalidConfig(f"{name} {value!r}: {expected}")


@dataclass(frozen=True, kw_only=True)
class Threads:
    """Thread pools of one process; 0 leaves a count to TensorFlow, "" leaves binding to the OpenMP runtime."""

    intra_op: int = 0
    inter_op: int = 0
    omp: int = 0
    kmp_affinity: str = ""

    def __str__(self) -> str:
        if self == Threads():
            return "default threads"
        binding = f", KMP_AFFINITY {self.kmp_affinity}" if self.kmp_affinity else ""
        return f"intra-op {self.intra_op}, inter-op {self.inter_op}, OMP {self.omp}{binding}"


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What is to be learned, whatever machine does it. `batch_size` is the global batch: examples in one update.

    `learning_rate_factor` multiplies the learning rate where several workers train (horovod, parameter_server): above 1 for larger
    batches, below 1 for gradients that are a few updates old. It is never guessed from the number of workers.
    """

    embedding_size: int = 32
    deep_layers: tuple[int, ...] = (128, 64, 32)
    optimizer: Optimizer = "adam"
    learning_rate: float = 5e-4
    learning_rate_factor: float = 1.0
    warmup_steps: int = 0
    batch_size: int = 1024
    epochs: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        _require(self.embedding_size >= 1, "embedding_size", self.embedding_size, "at least 1 is needed")
        _require(all(units >= 1 for units in self.deep_layers), "deep_layers", self.deep_layers, "every width must be at least 1")
        _require(self.optimizer in OPTIMIZERS, "optimizer", self.optimizer, f"choose one of {', '.join(OPTIMIZERS)}")
        _require(0 < self.learning_rate < math.inf, "learning_rate", self.learning_rate, "must be above 0")
        factor = self.learning_rate_factor
        _require(0 < factor < math.inf, "learning_rate_factor", factor, "must be above 0")
        _require(self.warmup_steps >= 0, "warmup_steps", self.warmup_steps, "must not be negative")
        _require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1 is needed")
        _require(self.epochs >= 1, "epochs", self.epochs, "at least 1 is needed")
        _require(0 <= self.seed <= LARGEST_SEED, "seed", self.seed, f"must be in 0..{LARGEST_SEED}")


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One decision of the ladder: what was decided, the sentence with the numbers that decided it, the alternative it beat."""

    name: str
    decision: str
    measured: str
    beat: str
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a training job needs besides the data. Rates are examples a second of all workers; None = not measured."""

    strategy: Strategy
    instance_type: str = LOCAL
    instance_count: int = 1
    workers_per_host: int = 1
    batch_size: int = 1024
    learning_rate: float = 5e-4
    learning_rate_factor: float = 1.0
    warmup_steps: int = 0
    optimizer: Optimizer = "adam"
    embedding_size: int = 32
    deep_layers: tuple[int, ...] = (128, 64, 32)
    epochs: int = 1
    steps: int = 0
    seed: int = 1
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    omp_threads: int = 0
    kmp_affinity: str = ""
    input_mode: InputMode = "FastFile"
    s3_distribution: Distribution = "FullyReplicated"
    predicted_examples_per_s: float | None = None
    measured_examples_per_s: float | None = None
    rungs: tuple[Rung, ...] = ()

    def __post_init__(self) -> None:
        _require(self.strategy in STRATEGIES, "strategy", self.strategy, f"choose one of {', '.join(STRATEGIES)}")
        _require(self.input_mode in get_args(InputMode), "input_mode", self.input_mode, "choose File or FastFile")
        _require(
            self.s3_distribution in get_args(Distribution),
            "s3_distribution",
            self.s3_distribution,
            f"choose one of {', '.join(get_args(Distribution))}",
        )
        for name in ("instance_count", "workers_per_host", "batch_size"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1 is needed")
        for name in ("steps", "intra_op_threads", "inter_op_threads", "omp_threads"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")
        if self.strategy == "single":
            _require(self.workers == 1, "strategy", self.strategy, f"is one process, not {self.workers} workers")
        if self.strategy == "parameter_server":
            _require(self.workers_per_host == 1, "workers_per_host", self.workers_per_host, "parameter servers take 1 a host")
        self.settings()  # the learning settings obey the same rules wherever they stand

    @property
    def workers(self) -> int:
        return self.instance_count * self.workers_per_host

    @property
    def threads(self) -> Threads:
        return Threads(
            intra_op=self.intra_op_threads,
            inter_op=self.inter_op_threads,
            omp=self.omp_threads,
            kmp_affinity=self.kmp_affinity,
        )

    def settings(self) -> ModelSettings:
        """What this plan learns, with the batch of one update."""
        return ModelSettings(
            embedding_size=self.embedding_size,
            deep_layers=self.deep_layers,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            learning_rate_factor=self.learning_rate_factor,
            warmup_steps=self.warmup_steps,
            batch_size=self.batch_size * (self.workers if self.strategy == "horovod" else 1),
            epochs=self.epochs,
            seed=self.seed,
        )

    def summary(self) -> str:
        """One line for a person, such as "horovod, 1 host x 2 workers, batch 512 a worker, default threads"."""
        hosts = f"{self.instance_count} host{'s' if self.instance_count > 1 else ''}"
        workers = f"{self.workers_per_host} worker{'s' if self.workers_per_host > 1 else ''}"
        return f"{self.strategy}, {hosts} x {workers}, batch {self.batch_size} a worker, {self.threads}"


def direct_plan(
    strategy: Strategy,
    settings: ModelSettings,
    *,
    hosts: int | None = None,
    workers_per_host: int | None = None,
    threads: Threads | None = None,
    steps: int = 0,
    rungs: Sequence[Rung] = (),
) -> Plan:
    """A plan for a strategy that is already chosen.

    Args:
        settings: `batch_size` is the global batch.
        hosts: by default 1, and 2 for parameter_server.
        workers_per_host: by default 1, and 2 for horovod on one host.
        steps: stop after so many steps; 0 = the epochs of the settings decide.
    Raises:
        InvalidConfig: the global batch cannot be divided among synchronous workers, or strategy and counts do not go together.
    """
    hosts = hosts or (2 if strategy == "parameter_server" else 1)
    workers_per_host = workers_per_host or (2 if strategy == "horovod" and hosts == 1 else 1)
    threads = threads or Threads()
    share = settings.batch_size
    if strategy == "horovod":
        share, left = divmod(settings.batch_size, hosts * workers_per_host)
        _require(left == 0, "batch_size", settings.batch_size, f"must be a multiple of the {hosts * workers_per_host} workers")
    return Plan(
        strategy=strategy,
        instance_count=hosts,
        workers_per_host=workers_per_host,
        batch_size=share,
        learning_rate=settings.learning_rate,
        learning_rate_factor=1.0 if strategy == "single" else settings.learning_rate_factor,
        warmup_steps=settings.warmup_steps,
        optimizer=settings.optimizer,
        embedding_size=settings.embedding_size,
        deep_layers=settings.deep_layers,
        epochs=settings.epochs,
        steps=steps,
        seed=settings.seed,
        intra_op_threads=threads.intra_op,
        inter_op_threads=threads.inter_op,
        omp_threads=threads.omp,
        kmp_affinity=threads.kmp_affinity,
        rungs=tuple(rungs),
    )


def hyperparameters(plan: Plan, *, probe: ProbeKind = "none", max_seconds: float = 0.0) -> dict[str, str]:
    """The training program's hyperparameters; SageMaker carries them as strings.

    Args:
        probe: which part of a step runs; "none" is real training.
        max_seconds: end the measured part after so long; 0 = steps or epochs decide.
    """
    return {
        "strategy": plan.strategy,
        "workers_per_host": str(plan.workers_per_host),
        "embedding_size": str(plan.embedding_size),
        "deep_layers": json.dumps(plan.deep_layers),
        "optimizer": plan.optimizer,
        "learning_rate": repr(plan.learning_rate),
        "learning_rate_factor": repr(plan.learning_rate_factor),
        "warmup_steps": str(plan.warmup_steps),
        "batch_size": str(plan.batch_size),
        "epochs": str(plan.epochs),
        "steps": str(plan.steps),
        "seed": str(plan.seed),
        "intra_op_threads": str(plan.intra_op_threads),
        "inter_op_threads": str(plan.inter_op_threads),
        "omp_threads": str(plan.omp_threads),
        "kmp_affinity": plan.kmp_affinity,
        "probe": probe,
        "max_seconds": repr(max_seconds),
    }


def write_plan(path: Path, plan: Plan) -> None:
    write_json_atomic(path, {"format_version": FORMAT_VERSION, **asdict(plan)})


# What a field's annotation admits in JSON; literals, tuples and rungs are checked where they are built.
_ADMITTED: dict[Any, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    float | None: (int, float, type(None)),
    str: (str,),
    bool: (bool,),
}


def checked_arguments(kind: type, document: Any, place: str) -> dict[str, Any]:
    """The object as constructor arguments; refuses missing and unknown keys, and values of another type, by name."""
    if not isinstance(document, dict):
        raise InvalidConfig(f"{place}: an object is expected, not {type(document).__name__}")
    wrong = {item.name for item in fields(kind)} ^ document.keys()
    if wrong:
        raise InvalidConfig(f"{place}: missing or unknown keys: {', '.join(sorted(wrong))}; run the step that wrote it again")
    for item in fields(kind):
        value, admitted = document[item.name], _ADMITTED.get(item.type, (object,))
        # bool is an int to Python, not to a reader of a plan.
        if not isinstance(value, admitted) or (isinstance(value, bool) and bool not in admitted and object not in admitted):
            raise InvalidConfig(f"{place}: {item.name} {value!r} is of the wrong type; run the step that wrote it again")
    return dict(document)


def read_plan(path: Path) -> Plan:
    """The plan of a file.

    Raises:
        InvalidConfig: missing, damaged, of another version, or with unknown keys or impossible values.
    """
    if not path.is_file():
        raise InvalidConfig(f"{path}: no such plan; make one with ctrflow select, or give --strategy")
    try:
        document = read_json(path)
    except ValueError as error:
        raise InvalidConfig(f"{path}: not valid JSON ({error}); run ctrflow select again") from error
    if not isinstance(document, dict) or document.pop("format_version", None) != FORMAT_VERSION:
        raise InvalidConfig(f"{path}: format_version {FORMAT_VERSION} is expected; run ctrflow select again")
    arguments = checked_arguments(Plan, document, str(path))
    for name in ("deep_layers", "rungs"):
        if not isinstance(arguments[name], list):
            raise InvalidConfig(f"{path}: {name} must be a list")
    if not all(type(units) is int for units in arguments["deep_layers"]):
        raise InvalidConfig(f"{path}: deep_layers {arguments['deep_layers']!r} must hold whole numbers")
    rungs = tuple(Rung(**checked_arguments(Rung, rung, f"{path}: rungs")) for rung in arguments["rungs"])
    try:
        return Plan(**{**arguments, "deep_layers": tuple(arguments["deep_layers"]), "rungs": rungs})
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error
