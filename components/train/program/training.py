"""One training from its data to its model, as rank 0 or another rank of a strategy lives through it."""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.errors import WorkflowError
from components.manifest import Manifest
from components.records import Schema
from components.resources import usable_cpus, usable_memory
from components.train.program import checkpoint
from components.train.program.agreement import check_agreement
from components.train.program.channels import Channels, find_channels
from components.train.program.config import ProbeName, TrainConfig
from components.train.program.container import Container
from components.train.program.division import Division, check_cover, divide
from components.train.program.export import MODEL_CARD, write_model
from components.train.program.fit import Recorder, fit
from components.train.program.input import (
    Payloads,
    Source,
    batches,
    check_memory,
    explain_damage,
    find_source,
    fits_cache,
    read_files,
)
from components.train.program.model import Model, make_model
from components.train.program.pipe import PipeReader
from components.train.program.precision import choose_precision, cpu_flags
from components.train.program.read_ahead import ReadAhead
from components.train.program.sampler import Sampler
from components.train.program.warm_start import WarmStart, start_warm

log = logging.getLogger(__name__)

TRAINING = "training.json"
GLOBAL_BATCH = "global_batch"
# What probe all measures after both.
PARTS: tuple[ProbeName, ...] = ("compute", "input")
# What TensorFlow's readers raise for data that is damaged, or not what was declared.
DATA_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)


def make_strategy(config: TrainConfig, source: Source, model: Model) -> Any:
    """The strategy of this job, whose modules are imported only when they are used."""
    if config.strategy == "parameter_server":
        from components.train.program.parameter_server import ParameterServers

        return ParameterServers(config, source, model)
    if config.strategy == "horovod":
        import horovod.tensorflow as hvd

        from components.train.program.horovod_ring import HorovodRing

        hvd.init()
        return HorovodRing(config, source, model)
    if config.strategy == "tower":
        from components.train.program.tower import Tower

        return Tower(config, source, model)
    if config.strategy == "mirrored":
        from components.train.program.mirrored import Mirrored

        return Mirrored(config, source, model)
    from components.train.program.single import Single

    return Single(config, source, model)


def describe_rate(config: TrainConfig) -> str:
    """The learning rate as it was set, its factor and what they make."""
    rate = f"{config.learning_rate:g} x {config.learning_rate_factor:g} = {config.learning_rate * config.learning_rate_factor:g}"
    return f"learning rate {rate}, " + (f"warm-up over {config.warmup_steps} steps" if config.warmup_steps else "no warm-up")


def resume(
    container: Container,
    config: TrainConfig,
    schema: Schema,
    model: Model,
    strategy: Any,
    division: Division,
    negative_rate: float = 1.0,
) -> tuple[int, WarmStart | None]:
    """Take the newest complete checkpoint over on all ranks, or without one the champion where the settings ask for it.

    Returns:
        the step that the checkpoint was made at, 0 without one; on rank 0, what was taken from the champion.
    Raises:
        WorkflowError: only damaged checkpoints, or one of another model or batch; a champion of another model.
    """
    folder, warm = container.checkpoints, None
    found = checkpoint.read_newest(folder) if division.rank == 0 and checkpoint.listed(folder) else None
    if found is not None:
        checkpoint.check_shapes(found[1], {**strategy.shapes(), GLOBAL_BATCH: ()}, folder)
        made, now = int(found[1][GLOBAL_BATCH]), division.batch_size * division.size
        if made != now:
            raise WorkflowError(
                f"{folder}: made with a global batch of {made}, this job has {now}; use the same, or empty the folder"
            )
    elif config.warm_start and division.rank == 0:
        state, warm = start_warm(container.champion, config, schema, model, strategy.shapes(), negative_rate)
        found = 0, state
    begun: int = strategy.resume(found)
    if division.rank == 0 and begun:
        beaten = ", which comes before the champion" if config.warm_start else ""
        log.info("resuming at step %d of %d from %s%s", begun, division.steps, folder, beaten)
    return begun, warm


@dataclass(frozen=True, kw_only=True)
class Input:
    """What this process trains on, and how it reads it; `pipe` only in Pipe mode."""

    config: TrainConfig
    source: Source
    manifest: Manifest
    channels: Channels
    division: Division
    pipe: PipeReader | None
    cached: bool

    @property
    def payloads(self) -> Payloads:
        return self.pipe.payloads if self.pipe else read_files(self.source.files, self.source.encoding, self.config.parallel_reads)

    def explain(self, error: tf.errors.OpError) -> WorkflowError | None:
        """What is wrong with the data, named; None when it is not the data."""
        if self.pipe:
            return self.pipe.explain()
        return explain_damage(self.source, self.manifest) if isinstance(error, DATA_ERRORS) else None


def train(container: Container, config: TrainConfig, rank: int, started: float, progress: Path, pipe_deadline_s: float) -> None:
    """Train, and as rank 0 write model and figures.

    Args:
        started: monotonic time when this process began. progress: a file that is touched while steps go on.
        pipe_deadline_s: how long a FIFO may be silent.
    Raises:
        WorkflowError: settings, data or checkpoints that cannot be trained with, or a training that diverged.
    """
    local_rank, memory = rank % config.workers_per_host, usable_memory()
    channels = find_channels(container, config)
    source, layout, manifest = find_source(container, config, channels, local_rank)
    check_memory(source, config.workers_per_host, memory)
    precision = choose_precision(config, len(tf.config.list_physical_devices("GPU")), cpu_flags())
    model = make_model(config, source.field_size, source.click_rate, precision)
    strategy = make_strategy(config, source, model)
    shares = strategy.shares(layout)
    check_cover(shares, [shard.path for shard in manifest.train.shards])
    division = divide(shares, config, strategy.rank, source.examples)
    cached, why = fits_cache(source, division, config, channels, memory)
    pipe = None
    if channels.input_mode == "Pipe":
        pipe = PipeReader(container.data, channels.of(local_rank), division.share, manifest, pipe_deadline_s)
    given = Input(config=config, source=source, manifest=manifest, channels=channels, division=division, pipe=pipe, cached=cached)
    begun, warm = resume(container, config, manifest.schema, model, strategy, division, manifest.negative_sampling_rate)
    check_agreement(strategy.checksums(), begun)
    if division.rank == 0:
        for shard in manifest.train.shards:
            if shard.examples == 0:
                log.warning("%s: an empty shard, 0 rows", shard.path)
        log.info("rows are %s in memory for the next epoch: %s", "kept" if cached else "not kept", why)
        log.info(
            "%s: %d workers, %d steps of %d examples each, %d an epoch; of %d rows an epoch uses %d, %d are left out, %d repeated",
            config.strategy, division.size, division.steps, division.batch_size, division.steps_per_epoch, source.examples,
            division.used, division.left_out, division.repeated,
        )  # fmt: skip
        log.info("%s", describe_rate(config))
        if config.mixed_precision:
            log.info("products of deep layers in %s: %s", precision.name, precision.reason)
        if division.repeated:
            log.warning(
                "a batch for each of %d workers takes more than the %d rows: %d are used again in each epoch; lower batch_size",
                division.size, source.examples, division.repeated,
            )  # fmt: skip
    finished = container.checkpoints / TRAINING
    if begun < division.steps:
        measured = run_steps(container, config, given, strategy, begun, started, progress)
        check_agreement(strategy.checksums(), begun + measured["examples"] // (division.batch_size * division.size))
        measured |= {"precision": precision.name, "precision_reason": precision.reason}
        measured["warm_start"] = None if warm is None else asdict(warm)
        if config.checkpoint_steps:
            if division.rank == 0:
                # Before the last checkpoint: one that says the training is complete must have its figures beside it.
                write_json(finished, measured)
            save(strategy, division, container.checkpoints, division.steps, config.keep_checkpoints)
    elif division.rank == 0:
        log.info("all %d steps were done before; only the model is written", division.steps)
        measured = json.loads(finished.read_text(encoding="utf-8"))
    else:
        measured = {}
    if config.probe == "none":
        write_trained_model(container, config, manifest, model, strategy, division, measured)
    if config.strategy == "horovod":
        strategy.end()
    if division.rank == 0:
        write_json(container.output_data / TRAINING, measured)
        log.info("trained %d examples, %.0f examples/s", measured["examples"], measured["examples_per_s"])


def run_steps(
    container: Container,
    config: TrainConfig,
    given: Input,
    strategy: Any,
    begun: int,
    started: float,
    progress: Path,
) -> dict[str, Any]:
    """The steps after the first `begun`; what was measured, as training.json has it."""
    division = given.division

    def due(step: int) -> None:
        check_agreement(strategy.checksums(), step)
        save(strategy, division, container.checkpoints, step, config.keep_checkpoints)
        # Writing a large table takes a while in which no step ends, and is no hang.
        progress.touch()

    def part(probe: ProbeName, rows: Iterator[Any], begun: int, last: int) -> dict[str, Any]:
        """The figures of the steps from `begun` on."""
        recorder = Recorder(config, division, begun, started, progress, strategy.loss_scale)
        # What a launcher started on this host is this job.
        with Sampler(os.getppid()) as sampler:
            try:
                if config.strategy == "parameter_server":
                    strategy.fit(division, recorder, begun, due, given.cached)
                else:
                    fit(strategy, rows, config, recorder, probe=probe, begun=begun, steps=last, save=due)
            except tf.errors.OpError as error:
                if (found := given.explain(error)) is not None:
                    raise found from error
                raise
        since, summary = recorder.summary()
        own = sampler.figures(since)
        ranks = [rank for ranks in strategy.each_rank(summary["ranks"]) for rank in ranks]
        distinct = summary["distinct_rows"]
        sent = None if probe == "input" or distinct is None else strategy.sent_bytes(distinct)
        return summary | own | {"ranks": ranks, "rank_skew": skew(ranks), "sent_bytes_per_step": sent, "probe": probe}

    rows: Any = iter(())
    if config.strategy != "parameter_server":
        rows = ReadAhead(batches(given.payloads, given.source, division, config.seed, begun, cached=given.cached, how=config))
    if config.probe == "all":
        # In one process: importing TensorFlow takes longer than measuring. What is left in buffers is found to be warm-up.
        third = max(division.steps // 3, 1)
        measured = part("both", rows, 0, third)
        parts = {name: part(name, rows, 0, third) for name in PARTS}
    else:
        measured, parts = part(config.probe, rows, begun, division.steps), {}
    progress.unlink(missing_ok=True)
    cpus = usable_cpus()
    return {
        "strategy": config.strategy,
        "world_size": division.size,
        "workers_per_host": config.workers_per_host,
        "hosts": len(container.hosts),
        "batch_size": division.batch_size,
        "steps": division.steps,
        "resumed_at": begun,
        "steps_per_epoch": division.steps_per_epoch,
        "examples_left_out": division.left_out,
        "examples_repeated": division.repeated,
        "input_mode": given.channels.input_mode,
        "encoding": given.source.encoding,
        "rows_cached": given.cached,
        **measured,
        "usable_cpus": cpus.count,
        "usable_cpus_source": cpus.source,
        "parts": parts,
        **strategy.figures(),
    }


def skew(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    """How much longer than the mean worker the slowest one computes in a step; 0 = all alike, None for one."""
    seconds = [rank["compute_s"] for rank in ranks]
    mean = sum(seconds) / len(seconds)
    return max(seconds) / mean - 1 if len(seconds) > 1 and mean > 0 else None


def save(strategy: Any, division: Division, folder: Path, step: int, keep: int) -> None:
    """Write a checkpoint of this step: rank 0 does, with what the others give it."""
    state = strategy.state()
    if division.rank != 0:
        return
    checkpoint.write(folder, step, {**state, GLOBAL_BATCH: np.array(division.batch_size * division.size)}, keep)
    log.info("checkpoint of step %d written", step)


def write_trained_model(
    container: Container,
    config: TrainConfig,
    manifest: Manifest,
    model: Model,
    strategy: Any,
    division: Division,
    measured: Mapping[str, Any],
) -> None:
    """Rank 0 writes the model, model.json last; the ranks have compared what they hold."""
    table, dense = strategy.parameters()
    if division.rank != 0:
        return
    trained = {
        "strategy": config.strategy,
        "world_size": division.size,
        "step": division.steps,
        "examples": division.steps * division.batch_size * division.size,
        "ranks_agreed": True,
        "metrics": {"final_loss": measured["final_loss"]},
    }
    card = write_model(container.model, config, manifest, model, table, dense, container.transform, trained)
    write_json(container.model / MODEL_CARD, card)


def write_json(path: Path, document: Any) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)
