"""One way to train on one kind of machine: what it would take and cost, and why it cannot be chosen. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from components.plan import LOCAL, ModelSettings, Plan, Ranked, Strategy, Threads, direct_plan
from components.select_strategy.advice import learning_rate_factor
from components.select_strategy.limits import Limits
from components.select_strategy.machines import GPU_SD, GPU_STARTS_S, Host, gpu_step_s
from components.select_strategy.scaling import Estimate, Scaling, Setup, Z, predict
from components.select_strategy.work import Work
from components.traffic import Placement

# A strategy that was not measured anywhere is predicted from its relatives; this is how far off that may be.
UNMEASURED_STRATEGY_SD = 0.3
# A GPU that computes less than this share of a step is one that cannot be filled. Source: SageMaker Debugger's LowGPUUtilization.
GPU_FILLED = 0.7
# A table may take this share of a host's memory; batches, gradients and checkpoints need the rest.
_TABLE_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is known when plans are weighed.

    Attributes:
        scalings: by strategy; single is always there.
        measured: strategies of which more than one worker was measured, besides single.
        here: the profiled machine. input_per_s: what input alone delivers there, with all cores.
        startup_s: of a job, before its first step.
        gpu_percent: how busy the profiled GPU was at most; None where it has none.
    """

    work: Work
    settings: ModelSettings
    scalings: Mapping[Strategy, Scaling]
    measured: tuple[Strategy, ...]
    here: Host
    input_per_s: float
    startup_s: float
    limits: Limits
    gpu_percent: float | None = None


@dataclass(frozen=True, kw_only=True)
class Option:
    """A way to train on so many hosts of one kind, and what it is expected to take.

    slow_epoch_s and slow_training_s are one and all epochs at the low bound of the rate. `refused`: why it cannot be chosen.
    """

    strategy: Strategy
    host: Host
    hosts: int
    workers_per_host: int
    batch_size: int
    placement: Placement
    estimate: Estimate
    epoch_s: float
    slow_epoch_s: float
    slow_training_s: float
    epoch_usd: float | None
    refused: str = ""
    frontier: bool = False
    raced: bool = False

    @property
    def rests_on_a_guess(self) -> bool:
        return not self.raced and (not self.host.measured or self.hosts > 1 or self.host.gpus > 0)

    @property
    def on_gpu(self) -> bool:
        return self.host.gpus > 0

    def usd_per_hour(self) -> float:
        return self.hosts * (self.host.usd_per_hour or 0.0)

    def threads(self) -> Threads:
        """All CPUs of a host, divided among its workers and not bound: processes bound compactly would sit on the same cores."""
        share = max(1, self.host.vcpus // self.workers_per_host)
        return Threads(intra_op=share, inter_op=share, omp=share, kmp_affinity="disabled")

    def plan(self, settings: ModelSettings, *, spot: bool) -> Plan:
        """The plan that a job would carry out."""
        settings = replace(settings, learning_rate_factor=learning_rate_factor(self.strategy, self.hosts, settings))
        plan = direct_plan(
            self.strategy, settings, hosts=self.hosts, workers_per_host=self.workers_per_host, threads=self.threads()
        )
        return replace(
            plan,
            instance_type=self.host.name if self.host.usd_per_hour is not None else LOCAL,
            use_spot=spot,
            embedding_placement=self.placement,
            device="gpu" if self.on_gpu else "auto",
            towers=1 if self.strategy == "tower" and self.host.gpus == 1 else 0,
        )

    def expected(self, plan: Plan) -> Plan:
        """The plan with what it is expected to take."""
        return replace(
            plan,
            predicted_examples_per_s=self.estimate.examples_per_s,
            predicted_low=self.estimate.low,
            predicted_high=self.estimate.high,
            epoch_s=self.epoch_s,
            epoch_usd=self.epoch_usd,
            rests_on_a_guess=self.rests_on_a_guess,
        )

    def __str__(self) -> str:
        workers = f", {self.workers_per_host} workers each" if self.workers_per_host > 1 else ""
        return f"{self.strategy} on {self.hosts} {self.host.name}{workers}"

    def ranked(self) -> Ranked:
        """As plan.json has it."""
        basis = "measured in a real job" if self.raced else self.host.basis
        return Ranked(
            description=str(self),
            strategy=self.strategy,
            instance_type=self.host.name,
            instance_count=self.hosts,
            workers_per_host=self.workers_per_host,
            examples_per_s=self.estimate.examples_per_s,
            low=self.estimate.low,
            high=self.estimate.high,
            epoch_s=self.epoch_s,
            epoch_usd=self.epoch_usd,
            frontier=self.frontier,
            rests_on_a_guess=self.rests_on_a_guess,
            basis=basis,
            refused=self.refused,
        )


def option(situation: Situation, strategy: Strategy, host: Host, hosts: int, workers_per_host: int) -> Option:
    """One way to train, weighed; refused where it cannot run or is not allowed."""
    work, settings = situation.work, situation.settings
    workers = hosts * workers_per_host
    share = settings.batch_size // workers if strategy == "horovod" else settings.batch_size
    ranked = strategy == "horovod" and hosts > 1
    placement = work.placement(workers, max(share, 1), host.memory_bytes) if ranked else "auto"
    # Without a price, hosts are addresses of one machine, whose cores they share.
    sharing = workers_per_host * (hosts if host.usd_per_hour is None else 1)
    setup = Setup(
        strategy=strategy,
        hosts=hosts,
        workers_per_host=workers_per_host,
        batch_size=max(share, 1),
        cores=host.cores / sharing,
        speed=host.speed,
        link_bytes_per_s=host.link_bytes_per_s if hosts > 1 else None,
        placement=placement,
    )
    scaling = situation.scalings.get(strategy, situation.scalings["single"])
    known = strategy in ("single", "tower", "mirrored") or strategy in situation.measured
    sd = math.hypot(host.sd, 0.0 if known else UNMEASURED_STRATEGY_SD)
    machines = hosts if host.usd_per_hour is not None else 1
    most = situation.input_per_s * machines * host.cores * host.speed / situation.here.cores
    filled = 1.0
    if host.gpus:
        estimate, filled = _on_gpu(scaling, setup, host, work, most)
    else:
        estimate = predict(situation.scalings, setup, sd=sd, most=most)
    made = timed(
        Option(
            strategy=strategy,
            host=host,
            hosts=hosts,
            workers_per_host=workers_per_host,
            batch_size=setup.batch_size,
            placement=placement,
            estimate=estimate,
            epoch_s=0.0,
            slow_epoch_s=0.0,
            slow_training_s=0.0,
            epoch_usd=None,
        ),
        situation,
    )
    return replace(made, refused=_obstacle(made, situation) or _unfilled(made, situation, filled))


def timed(made: Option, situation: Situation) -> Option:
    """The option with time and cost of an epoch from its rate."""
    rows, estimate, limits = situation.work.train_examples, made.estimate, situation.limits
    epoch_s = situation.startup_s + rows / estimate.examples_per_s
    price = made.host.usd_per_hour
    usd = None if price is None else made.hosts * price * epoch_s / 3600 * (limits.spot_price if limits.spot else 1.0)
    slow_s = rows / estimate.low
    return replace(
        made,
        epoch_s=epoch_s,
        slow_epoch_s=situation.startup_s + slow_s,
        slow_training_s=situation.startup_s + situation.work.epochs * slow_s,
        epoch_usd=usd,
    )


def _on_gpu(scaling: Scaling, setup: Setup, host: Host, work: Work, most: float) -> tuple[Estimate, float]:
    """The rate on GPUs, one a worker, and the share of a step that they compute. Their host does the rest with one core each."""
    parts = scaling.parts(setup)
    computing = gpu_step_s(host, products=setup.batch_size * work.products, cell_bytes=16.0 * setup.batch_size * work.cells)
    # Fitted on CPUs, a step's own overhead may be lost among the rest; starting a GPU's kernels takes its time all the same.
    starting = max(parts["step"] + parts["examples"], GPU_STARTS_S)
    seconds = starting + parts["waits"] + parts["dense bytes"] + parts["row bytes"] + computing
    rate, spread = min(setup.workers * setup.batch_size / seconds, most), math.exp(Z * math.hypot(GPU_SD, host.sd))
    filled = computing / seconds
    return Estimate(examples_per_s=rate, low=rate / spread, high=min(rate * spread, most), busy=filled), filled


def _unfilled(made: Option, situation: Situation, filled: float) -> str:
    if not made.on_gpu:
        return ""
    if situation.gpu_percent is not None and situation.gpu_percent < 100 * GPU_FILLED:
        return f"the GPU was {situation.gpu_percent:.0f}% busy at most, under {GPU_FILLED:.0%}: it cannot be filled, CPUs do"
    if situation.gpu_percent is None and filled < GPU_FILLED:
        batch = made.batch_size
        return f"the GPU would compute for {filled:.0%} of a step of batch {batch}, under {GPU_FILLED:.0%}: it cannot be filled"
    return ""


def _obstacle(made: Option, situation: Situation) -> str:
    """Why the option cannot run or is not allowed, empty where it can."""
    work, limits, batch_size = situation.work, situation.limits, situation.settings.batch_size
    workers = made.hosts * made.workers_per_host
    if limits.most_usd_per_hour and made.usd_per_hour() > limits.most_usd_per_hour:
        return f"{made.usd_per_hour():.2f} USD/h, {limits.most_usd_per_hour:g} are allowed"
    if made.strategy == "horovod" and batch_size % workers:
        return f"batch_size {batch_size} cannot be divided by {workers} workers"
    if workers * made.batch_size > work.train_examples and workers > 1:
        rows, there = workers * made.batch_size, work.train_examples
        return f"{workers} workers with batch_size {made.batch_size} need {rows} rows a step, the train split has {there}"
    parts = made.hosts if made.strategy == "parameter_server" or made.placement == "sharded" else 1
    room = _TABLE_SHARE * made.host.memory_bytes
    if work.table_bytes / parts > room:
        return f"the embedding table takes {work.table_bytes / parts / 1e9:.1f} GB of a host that has room for {room / 1e9:.1f}"
    return ""
