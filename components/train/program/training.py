"""One training from its data to its model, as rank 0 or another rank of a strategy lives through it."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.manifest import Manifest
from components.resources import cpu_flags, usable_memory
from components.train.program.agreement import check_agreement
from components.train.program.channels import find_channels
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.division import Division, check_cover, divide
from components.train.program.export import MODEL_CARD, write_model
from components.train.program.input import (
    check_memory,
    find_source,
    fits_cache,
)
from components.train.program.model import Model, make_model
from components.train.program.pipe import PipeReader
from components.train.program.precision import choose_precision
from components.train.program.resumption import resume, save
from components.train.program.steps import Input, run_steps
from components.train.program.strategies import make_strategy

log = logging.getLogger(__name__)

TRAINING = "training.json"


def describe_rate(config: TrainConfig) -> str:
    """The learning rate as it was set, its factor and what they make."""
    rate = f"{config.learning_rate:g} x {config.learning_rate_factor:g} = {config.learning_rate * config.learning_rate_factor:g}"
    return f"learning rate {rate}, " + (f"warm-up over {config.warmup_steps} steps" if config.warmup_steps else "no warm-up")


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
