"""plan.json: how a model is trained, and why so. select_strategy writes it, train carries it out, people read its rungs.

Batch sizes: a plan's `batch_size` is that of one worker. Synchronous strategies keep the global batch of the settings (one
worker's batch = global batch / workers), so they learn the same as a single process. Asynchronous parameter servers apply one
worker's gradient at a time, so there a worker's batch is the global one and each update is of the same size as a single process's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from components.learning import Learning, as_text, require
from components.traffic import Placement

FORMAT_VERSION = 1
Strategy = Literal["single", "tower", "mirrored", "horovod", "parameter_server"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
# One process that splits its batch over devices.
TOWERS: tuple[Strategy, ...] = ("tower", "mirrored")
ONE_PROCESS: tuple[Strategy, ...] = ("single", *TOWERS)
InputMode = Literal["File", "FastFile", "Pipe"]
Distribution = Literal["FullyReplicated", "ShardedByS3Key"]
ProbeKind = Literal["none", "input", "compute", "both"]
# What one job is asked for: `all` is both, compute and input one after the other.
ProbeWish = Literal[ProbeKind, "all"]
Cache = Literal["auto", "on", "off"]
Device = Literal["auto", "cpu", "gpu"]
CrossDevice = Literal["reduction_to_one", "hierarchical_copy", "nccl"]
PlanEncoding = Literal["", "blocks", "examples", "libsvm"]
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
class Ranked:
    """A plan that was weighed, whether chosen or not. Rates are examples a second of all workers, with 95 % bounds.

    `epoch_usd` is None where the machine has no price. `frontier`: no other is both faster and cheaper. `rests_on_a_guess`: its
    machine, or its number of hosts, was not measured. `refused` says why it cannot be chosen, empty where it can.
    """

    description: str
    strategy: Strategy
    instance_type: str
    instance_count: int
    workers_per_host: int
    examples_per_s: float
    low: float
    high: float
    epoch_s: float
    epoch_usd: float | None
    frontier: bool
    rests_on_a_guess: bool
    basis: str
    refused: str


@dataclass(frozen=True, kw_only=True)
class Plan(Learning):
    """Everything that a training job needs besides the data. Rates are examples a second of all workers; None = not known.

    Attributes:
        alternatives: other instance types of the same rung, best first, for when there is no capacity of the first.
        encoding: of the shards that the rates were measured with; empty where that is not known.
        parallel_reads to cache, towers, device, cross_device, embedding_placement: see the training program's config.py.
        predicted_low, predicted_high: 95 % bounds of predicted_examples_per_s.
        epoch_s, epoch_usd: of one epoch, start-up included; no price, no USD.
        rests_on_a_guess: its machine, or its number of hosts, was not measured.
        ranking: what was weighed, best first.
    """

    strategy: Strategy
    instance_type: str = LOCAL
    instance_count: int = 1
    alternatives: tuple[str, ...] = ()
    use_spot: bool = False
    workers_per_host: int = 1
    batch_size: int = 1024
    steps: int = 0
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    omp_threads: int = 0
    kmp_affinity: str = ""
    parallel_reads: int = 0
    map_parallelism: int = 0
    prefetch_batches: int = 0
    cache: Cache = "auto"
    towers: int = 0
    device: Device = "auto"
    cross_device: CrossDevice = "reduction_to_one"
    embedding_placement: Placement = "auto"
    input_mode: InputMode = "FastFile"
    s3_distribution: Distribution = "FullyReplicated"
    encoding: PlanEncoding = ""
    predicted_examples_per_s: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    measured_examples_per_s: float | None = None
    epoch_s: float | None = None
    epoch_usd: float | None = None
    rests_on_a_guess: bool = False
    rungs: tuple[Rung, ...] = ()
    ranking: tuple[Ranked, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in _CHOICES.items():
            require(getattr(self, name) in get_args(kind), name, getattr(self, name), f"choose one of {_listed(kind)}")
        for name in ("instance_count", "workers_per_host", "batch_size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1 is needed")
        counts = ("steps", "intra_op_threads", "inter_op_threads", "omp_threads", "towers")
        for name in (*counts, "parallel_reads", "map_parallelism", "prefetch_batches"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")
        for name in ("predicted_low", "predicted_high", "epoch_s", "epoch_usd"):
            value = getattr(self, name)
            require(value is None or 0 <= value < math.inf, name, value, "must be a number that is not negative")
        if self.strategy in ONE_PROCESS:
            require(self.workers == 1, "strategy", self.strategy, f"is one process, not {self.workers} workers")
        if self.strategy == "parameter_server":
            require(self.workers_per_host == 1, "workers_per_host", self.workers_per_host, "parameter servers take 1 a host")
        self._check_towers()

    def _check_towers(self) -> None:
        """As the training program does, but before a job is paid for."""
        count = self.towers or (2 if self.strategy in TOWERS else 1)
        if count > 1:
            expected = f"{self.strategy} does not split its batch; tower, mirrored and parameter_server do"
            require(self.strategy in (*TOWERS, "parameter_server"), "towers", self.towers, expected)
        require(self.batch_size % count == 0, "batch_size", self.batch_size, f"must be a multiple of the {count} towers")

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
        machine = "" if self.instance_type == LOCAL else f" of {self.instance_type}"
        return f"{self.strategy}, {hosts}{machine} x {workers}, batch {self.batch_size} a worker, {self.threads}"


_CHOICES: dict[str, Any] = {
    "strategy": Strategy,
    "cache": Cache,
    "device": Device,
    "cross_device": CrossDevice,
    "embedding_placement": Placement,
    "input_mode": InputMode,
    "s3_distribution": Distribution,
    "encoding": PlanEncoding,
}


def _listed(kind: Any) -> str:
    return ", ".join(choice or "nothing" for choice in get_args(kind))


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
        **{**settings.learning(), "learning_rate_factor": 1.0 if strategy in ONE_PROCESS else settings.learning_rate_factor},
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


def hyperparameters(
    plan: Plan, *, probe: ProbeWish = "none", max_seconds: float = 0.0, precision: float = 0.0, warm_start: bool = False
) -> dict[str, str]:
    """The training program's hyperparameters; SageMaker carries them as strings.

    Args:
        probe: which part of a step runs; "none" is real training.
        max_seconds: end the measured part after so long; 0 = steps or epochs decide.
        precision: end a probe before, when its rate is known within this share; 0 = never.
        warm_start: begin with the weights of channel champion.
    """
    placed = ("strategy", "workers_per_host", "batch_size", "steps")
    split = ("towers", "device", "cross_device", "embedding_placement")
    threads = ("intra_op_threads", "inter_op_threads", "omp_threads", "kmp_affinity")
    reading = ("parallel_reads", "map_parallelism", "prefetch_batches", "cache")
    settings = plan.learning() | {name: getattr(plan, name) for name in placed + split + threads + reading}
    settings |= {"probe": probe, "max_seconds": max_seconds, "probe_precision": precision, "warm_start": warm_start}
    return {name: as_text(value) for name, value in settings.items()}
