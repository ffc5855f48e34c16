"""What a training goes on from: its own newest checkpoint, or the champion; and the checkpoints that it leaves."""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from components.errors import WorkflowError
from components.records import Schema
from components.train.program import checkpoint
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.division import Division
from components.train.program.model import Model
from components.train.program.warm_start import WarmStart, start_warm

log = logging.getLogger(__name__)

GLOBAL_BATCH = "global_batch"


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


def save(strategy: Any, division: Division, folder: Path, step: int, keep: int) -> None:
    """Write a checkpoint of this step: rank 0 does, with what the others give it."""
    state = strategy.state()
    if division.rank != 0:
        return
    checkpoint.write(folder, step, {**state, GLOBAL_BATCH: np.array(division.batch_size * division.size)}, keep)
    log.info("checkpoint of step %d written", step)
