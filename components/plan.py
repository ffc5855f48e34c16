"""plan.json: how a model is trained, and why so. select_strategy writes it, train carries it out, people read its rungs.

Batch sizes: a plan's `batch_size` is that of one worker. Synchronous strategies keep the global batch of the settings (one
worker's batch = global batch / workers), so they learn the same as a single process. Asynchronous parameter servers apply one
worker's gradient at a time, so there a worker's batch is the global one and each update is of the same size as a single process's.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from components.documents import read_json
from components.errors import InvalidConfig
from components.learning import Learning, as_text, require
from components.storage import write_json_atomic

FORMAT_VERSION = 1
Strategy = Literal["single", "horovod", "parameter_server"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
InputMode = Literal["File", "FastFile"]
Distribution = Literal["FullyReplicated", "ShardedByS3Key"]
ProbeKind = Literal["none", "input", "compute", "both"]
LOCAL = "local"  # the instance type of a plan for whatever machine the job settings name


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
class ModelSettings(Learning):
    """What is to be learned, whatever machine does it. `batch_size` is the global batch: examples in one update.

    `learning_rate_factor` multiplies the learning rate where several workers train (horovod, parameter_server): above 1 for larger
    batches, below 1 for gradients that are a few updates old. It is never guessed from the number of workers.
    """

    batch_size: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1 is needed")


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One decision of the ladder: what was decided, the sentence with the numbers that decided it, the alternative it beat."""

    name: str
    decision: str
    measured: str
    beat: str
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Plan(Learning):
    """Everything that a training job needs besides the data. Rates are examples a second of all workers; None = not measured."""

    strategy: Strategy
    instance_type: str = LOCAL
    instance_count: int = 1
    workers_per_host: int = 1
    batch_size: int = 1024
    steps: int = 0
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
        super().__post_init__()
        require(self.strategy in STRATEGIES, "strategy", self.strategy, f"choose one of {', '.join(STRATEGIES)}")
        require(self.input_mode in get_args(InputMode), "input_mode", self.input_mode, "choose File or FastFile")
        require(
            self.s3_distribution in get_args(Distribution),
            "s3_distribution",
            self.s3_distribution,
            f"choose one of {', '.join(get_args(Distribution))}",
        )
        for name in ("instance_count", "workers_per_host", "batch_size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1 is needed")
        for name in ("steps", "intra_op_threads", "inter_op_threads", "omp_threads"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")
        if self.strategy == "single":
            require(self.workers == 1, "strategy", self.strategy, f"is one process, not {self.workers} workers")
        if self.strategy == "parameter_server":
            require(self.workers_per_host == 1, "workers_per_host", self.workers_per_host, "parameter servers take 1 a host")

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
        return ModelSettings(**self.learning(), batch_size=self.batch_size * (self.workers if self.strategy == "horovod" else 1))

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
        require(left == 0, "batch_size", settings.batch_size, f"must be a multiple of the {hosts * workers_per_host} workers")
    return Plan(
        **{**settings.learning(), "learning_rate_factor": 1.0 if strategy == "single" else settings.learning_rate_factor},
        strategy=strategy,
        instance_count=hosts,
        workers_per_host=workers_per_host,
        batch_size=share,
        steps=steps,
        intra_op_threads=threads.intra_op,
        inter_op_threads=threads.inter_op,
        omp_threads=threads.omp,
        kmp_affinity=threads.kmp_affinity,
        rungs=tuple(rungs),
    )


def hyperparameters(plan: Plan, *, probe: ProbeKind = "none", max_seconds: float = 0.0, warm_start: bool = False) -> dict[str, str]:
    """The training program's hyperparameters; SageMaker carries them as strings.

    Args:
        probe: which part of a step runs; "none" is real training.
        max_seconds: end the measured part after so long; 0 = steps or epochs decide.
        warm_start: begin with the weights of channel champion.
    """
    placed = ("strategy", "workers_per_host", "batch_size", "steps")
    threads = ("intra_op_threads", "inter_op_threads", "omp_threads", "kmp_affinity")
    settings = plan.learning() | {name: getattr(plan, name) for name in placed + threads}
    settings |= {"probe": probe, "max_seconds": max_seconds, "warm_start": warm_start}
    return {name: as_text(value) for name, value in settings.items()}


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
        if item.type in (tuple[int, ...], tuple[float, ...]):
            document = {**document, item.name: _numbers(value, get_args(item.type)[0], f"{place}: {item.name}")}
    return dict(document)


def _numbers(value: Any, kind: type, name: str) -> tuple[Any, ...]:
    """A list of JSON as the tuple that a field holds."""
    if not isinstance(value, list):
        raise InvalidConfig(f"{name} must be a list")
    if not all(type(number) in _ADMITTED[kind] for number in value):
        raise InvalidConfig(f"{name} {value!r} must hold {'whole ' if kind is int else ''}numbers")
    return tuple(value)


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
    if not isinstance(arguments["rungs"], list):
        raise InvalidConfig(f"{path}: rungs must be a list")
    rungs = tuple(Rung(**checked_arguments(Rung, rung, f"{path}: rungs")) for rung in arguments["rungs"])
    try:
        return Plan(**{**arguments, "rungs": rungs})
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error
