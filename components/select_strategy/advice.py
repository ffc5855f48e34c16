"""The article's advice on what is not raced: how rows come in, the precision of products, the rate of old gradients. Pure.

Each rule changes the plan and leaves a rung that says with which numbers.
"""

import math
from dataclasses import dataclass, replace

from components.instances import Instance
from components.manifest import Manifest
from components.measurements import MachineUse
from components.plan import ModelSettings, Plan, Rung, Strategy
from components.profile import Profile, fastest
from components.select_strategy.work import Work, work_of

# Operations of matrix products an example that pay for rounding to 16 bits: DeepFM of 39 fields, embedding 32 and layers 128-64-32,
# the smallest that was measured, gained 19 %. Source: tests/benchmarks/README.md, matrix products in bfloat16.
LARGE_PRODUCTS = 1e6
# Families of CPUs with AMX or AVX512-BF16 (Sapphire Rapids). Source: Intel, 4th generation Xeon Scalable processors.
BFLOAT16_FAMILIES = frozenset({"c7i", "m7i"})
# A File channel is written to a gp2 volume, which takes 128 MiB/s up to 170 GiB. Source: EBS user guide, volume types.
VOLUME_BYTES_PER_S = 128 * 2**20
# The model and its checkpoints need the rest of the volume.
VOLUME_SHARE = 0.8
# A download that takes less than this share of the training, or than starting a job varies by, is not worth another way to read.
SHORT_DOWNLOAD, SHORT_DOWNLOAD_S = 0.1, 10.0
# A job has at most 20 channels; four of them are manifest, validation, transform and champion. Source: API reference.
MOST_PIPES = 16


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What the advice stands on, besides the plan.

    Attributes:
        train_bytes: of the train shards, which each host reads whole. in_s3: a job of this machine has no download.
        link_bytes_per_s, volume_bytes: of one host. sixteen_bits: whether the plan's machine multiplies bfloat16 or has a GPU;
            None where the probes did not see it, and then the training program decides.
        asked: whether the settings ask for mixed precision.
    """

    work: Work
    encoding: str
    train_bytes: float
    in_s3: bool
    link_bytes_per_s: float
    volume_bytes: float
    sixteen_bits: bool | None
    asked: bool

    @property
    def download_s(self) -> float:
        return self.train_bytes / min(self.link_bytes_per_s, VOLUME_BYTES_PER_S)


def has_sixteen_bits(seen: MachineUse | None, instance: Instance | None) -> bool | None:
    """Whether a machine multiplies bfloat16 or has a GPU: as probes saw it, or as its type says; None where neither does.

    Args:
        seen: None where no probe ran on it. instance: None where the catalogue lacks it.
    """
    if seen is not None and seen.bfloat16 is not None:
        return seen.bfloat16 or seen.gpu_percent_p95 is not None
    return None if instance is None else instance.gpus > 0 or instance.family in BFLOAT16_FAMILIES


def ground_of(
    profile: Profile, manifest: Manifest, instance: Instance | None, *, profiled: bool, in_s3: bool, volume_bytes: float
) -> Ground:
    """What there is to stand on, on a machine of this type.

    Args:
        instance: None where the catalogue lacks it. profiled: whether the probes ran on it.
        profile: its settings ask for mixed precision or not.
    """
    return Ground(
        work=work_of(profile.settings, manifest),
        encoding=manifest.encoding,
        train_bytes=sum(shard.bytes for shard in manifest.train.shards),
        in_s3=in_s3,
        link_bytes_per_s=math.inf if instance is None else instance.network_gbit_s * 1e9 / 8,
        volume_bytes=volume_bytes,
        sixteen_bits=has_sixteen_bits(fastest(profile.of_kind("both")).machine if profiled else None, instance),
        asked=profile.settings.mixed_precision,
    )


def advised(plan: Plan, ground: Ground) -> Plan:
    """The plan with what the rules make of it, and a rung for each."""
    mixed = mixed_precision(ground.work, asked=ground.asked, sixteen_bits=ground.sixteen_bits)
    rungs = [_precision_rung(ground, mixed)]
    streamed, rung = _input_mode(plan, ground)
    rungs.append(rung)
    if is_stale(plan.strategy, plan.workers):
        rungs.append(_stale_rung(plan))
    return replace(plan, mixed_precision=mixed, input_mode="Pipe" if streamed else "FastFile", rungs=(*plan.rungs, *rungs))


def mixed_precision(work: Work, *, asked: bool, sixteen_bits: bool | None) -> bool:
    """Only where it is asked for, for it changes what is learned, and then only where it can gain."""
    return asked and sixteen_bits is not False and work.products >= LARGE_PRODUCTS


def _precision_rung(ground: Ground, mixed: bool) -> Rung:
    large = ground.work.products >= LARGE_PRODUCTS
    if mixed:
        decision = "mixed precision: the model is large enough to gain"
    elif not large:
        decision = "float32: the model is too small to gain by mixed precision"
    elif ground.sixteen_bits is None:
        decision = "float32, as set"
    elif not ground.sixteen_bits:
        decision = "float32: this machine has neither bfloat16 instructions nor a GPU"
    else:
        decision = "float32, as set; --mixed-precision would be faster here, compare what it learns"
    return Rung(
        name="precision",
        decision=decision,
        measured=f"{ground.work.products / 1e6:.2f} million operations of products an example, {LARGE_PRODUCTS / 1e6:g} is large",
        beat="float32" if mixed else "mixed precision" if ground.asked else "",
        passed=mixed,
    )


def _input_mode(plan: Plan, ground: Ground) -> tuple[bool, Rung]:
    """Whether rows come through pipes, one for each worker of a host: two readers of one would corrupt each other."""
    rate = plan.measured_examples_per_s or plan.predicted_examples_per_s
    training_s = ground.work.epochs * ground.work.train_examples / rate if rate else 0.0
    room = VOLUME_SHARE * ground.volume_bytes
    fits, short = ground.train_bytes <= room, ground.download_s <= max(SHORT_DOWNLOAD * training_s, SHORT_DOWNLOAD_S)
    measured = (
        f"{ground.train_bytes / 1e9:.2f} GB for each host, whose disk has room for {room / 1e9:.1f}; to download them first takes "
        f"{ground.download_s:,.1f} s, to train {training_s:,.1f} s"
    )
    obstacle = _pipe_obstacle(plan, ground)
    streamed = not (fits and short) and not obstacle
    if streamed:
        channels = plan.workers_per_host
        decision = f"Pipe, {channels} channel{'s' if channels > 1 else ''}: one for each worker of a host; it was not raced"
    elif fits and short:
        decision = "FastFile: the download is short, so that streaming has nothing to win"
    else:
        decision = f"FastFile: {obstacle}"
    return streamed, Rung(name="input mode", decision=decision, measured=measured, beat="File" if streamed else "", passed=streamed)


def _pipe_obstacle(plan: Plan, ground: Ground) -> str:
    """Why rows cannot come through pipes, empty where they can; plan_jobs.py refuses the same."""
    if not ground.in_s3:
        return "the data lies on this machine, nothing is downloaded"
    if plan.strategy == "parameter_server":
        return "workers of parameter servers read files"
    if ground.encoding == "libsvm":
        return "libsvm text has no checksums, so that it is not read from a pipe"
    if ground.work.shards < plan.workers_per_host:
        return f"{ground.work.shards} shards for {plan.workers_per_host} workers a host, each needs one of its own for a pipe"
    if plan.workers_per_host > MOST_PIPES:
        return f"{plan.workers_per_host} workers a host, a job has channels for {MOST_PIPES}"
    return ""


def is_stale(strategy: Strategy, workers: int) -> bool:
    """Whether gradients were computed from weights that others have updated meanwhile."""
    return strategy == "parameter_server" and workers > 1


def learning_rate_factor(strategy: Strategy, workers: int, settings: ModelSettings) -> float:
    """What the learning rate is multiplied by: as set; where it is left at 1 and updates are old, 1 / their mean age.

    With n workers that do not wait for each other a gradient is n updates old on average, and dividing by its age keeps what is
    learned close to what synchronous workers learn.
    Source: Zhang et al. 2016, Staleness-aware Async-SGD for Distributed Deep Learning, sections 3.1 and 3.2.
    """
    factor = settings.learning_rate_factor
    return 1 / workers if factor == 1.0 and is_stale(strategy, workers) else factor


def _stale_rung(plan: Plan) -> Rung:
    return Rung(
        name="learning rate",
        decision=f"times {plan.learning_rate_factor:g}, for updates are asynchronous; learning_rate_factor sets another",
        measured=f"{plan.workers} workers that do not wait for each other: a gradient is {plan.workers} updates old on average",
        beat="the rate of one process" if plan.learning_rate_factor != 1 else "",
        passed=plan.learning_rate_factor < 1,
    )
