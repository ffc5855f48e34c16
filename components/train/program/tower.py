"""One process, the batch split over its devices: a loss and a gradient a tower, one update of the weights that all share.

Weights and table exist once, on the CPU, and every tower reads them; no tower begins a step before the update of the last.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from components.train.program.config import TrainConfig
from components.train.program.devices import HOST, replica_devices
from components.train.program.input import Source
from components.train.program.kernels import group_by_id, sum_rows
from components.train.program.model import Model
from components.train.program.single import Single
from components.train.program.traced import traced


def split_batch(batch: tuple[Any, Any, Any], towers: int) -> list[tuple[Any, Any, Any]]:
    """Labels, ids and values of each tower, in the order of rows."""
    return list(zip(*(tf.split(part, towers) for part in batch), strict=True))


def combine_rows(ids: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, Any]:
    """Distinct ids of all towers, and the gradient of the mean of their losses by these rows.

    Args:
        ids: the distinct ids [U] of each tower. gradients: of its own mean loss, [U, E].
    """
    cells = group_by_id(tf.concat(ids, axis=0))
    return cells.ids_U, sum_rows(tf.concat(gradients, axis=0), cells) / float(len(ids))


class Tower(Single):
    """Synchronous data parallel training inside one process, by its own loop."""

    def __init__(self, config: TrainConfig, source: Source, model: Model) -> None:
        self._devices = replica_devices(config)
        with tf.device(HOST):
            super().__init__(config, source, model)

    @traced
    def _train(self, labels_B: Any, ids_BF: Any, values_BF: Any) -> Any:
        losses, dense, ids, rows = [], [], [], []
        parts = split_batch((labels_B, ids_BF, values_BF), len(self._devices))
        for tower, (device, part) in enumerate(zip(self._devices, parts, strict=True)):
            with tf.device(device):
                value, dense_gradients, ids_U, gradient_UE = self.gradients(*part, tower)
            losses.append(value)
            dense.append(dense_gradients)
            ids.append(ids_U)
            rows.append(gradient_UE)
        with tf.device(HOST):
            means = [tf.add_n(same) / float(len(same)) for same in zip(*dense, strict=True)]
            self.apply(means, *combine_rows(ids, rows))
            return tf.add_n(losses) / float(len(losses))
