"""Optimizers that touch only the rows of a batch, and the table that keeps a row's optimizer state beside it.

A table row holds the parameters and then their slots ([row, m, v] for Adam), so that one gather and one scatter move everything
that
an update needs, and the memory it reads is contiguous.

Adam on rows is *lazy*: a row whose id is not in the batch keeps its moments as they are, where dense Adam would decay them and
go on
moving the row. The step count of the bias correction is global. Source: TensorFlow Addons, LazyAdam.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.config import OptimizerName, TrainConfig
from components.train.program.deepfm import initial_rows

ADAM_BETA_1, ADAM_BETA_2, ADAM_EPSILON = 0.9, 0.999, 1e-7
ADAGRAD_START, ADAGRAD_EPSILON = 0.1, 1e-7

SLOTS: dict[OptimizerName, int] = {"adam": 2, "adagrad": 1, "sgd": 0}
SLOT_START: dict[OptimizerName, float] = {"adam": 0.0, "adagrad": ADAGRAD_START, "sgd": 0.0}


def update(
    optimizer: OptimizerName, parameter: Any, slots: list[Any], gradient: Any, step: Any, rate: Any
) -> tuple[Any, list[Any]]:
    """New parameter and slots, all of the same shape.

    Args:
        step: float32 scalar, 1 at the first update.
        rate: float32 scalar, the learning rate of this step.
    Source: Kingma and Ba 2015 (Adam, with Keras's epsilon-hat); Duchi et al. 2011 (Adagrad).
    """
    if optimizer == "adam":
        m = ADAM_BETA_1 * slots[0] + (1 - ADAM_BETA_1) * gradient
        v = ADAM_BETA_2 * slots[1] + (1 - ADAM_BETA_2) * tf.square(gradient)
        scale = rate * tf.sqrt(1 - tf.pow(ADAM_BETA_2, step)) / (1 - tf.pow(ADAM_BETA_1, step))
        return parameter - scale * m / (tf.sqrt(v) + ADAM_EPSILON), [m, v]
    if optimizer == "adagrad":
        total = slots[0] + tf.square(gradient)
        return parameter - rate * gradient / tf.sqrt(total + ADAGRAD_EPSILON), [total]
    return parameter - rate * gradient, []


def learning_rate(config: TrainConfig, step: Any) -> Any:
    """The rate of a step counted from 1: linear over `warmup_steps`, then constant."""
    warmup = max(config.warmup_steps, 1)
    return config.learning_rate * tf.minimum(1.0, step / float(warmup))


def initial_table(config: TrainConfig, start: int, stop: int) -> NDArray[np.float32]:
    """Rows start..stop-1 with their slots, float32 [stop - start, (1 + slots) * (1 + D)]."""
    rows = initial_rows(config, start, stop)
    slots = np.full((len(rows), SLOTS[config.optimizer] * rows.shape[1]), SLOT_START[config.optimizer], np.float32)
    return np.concatenate([rows, slots], axis=1)


def update_rows(config: TrainConfig, table: Any, ids_U: Any, state_US: Any, gradient_UE: Any, step: Any) -> None:
    """Apply one update to the rows of distinct ids; `state_US` is what `table` holds at those ids."""
    width = gradient_UE.shape[1]
    parts = tf.split(state_US, state_US.shape[1] // width, axis=1)
    parameter, slots = update(config.optimizer, parts[0], parts[1:], gradient_UE, step, learning_rate(config, step))
    table.scatter_update(tf.IndexedSlices(tf.concat([parameter, *slots], axis=1), ids_U))


class DenseOptimizer:
    """The same update rules for the variables that every step touches whole."""

    def __init__(self, config: TrainConfig, variables: list[Any]) -> None:
        self._config = config
        self._variables = variables
        start = SLOT_START[config.optimizer]
        self.slots = [[tf.Variable(tf.fill(v.shape, start)) for _ in range(SLOTS[config.optimizer])] for v in variables]

    def apply(self, gradients: list[Any], step: Any) -> None:
        rate = learning_rate(self._config, step)
        for variable, slots, gradient in zip(self._variables, self.slots, gradients, strict=True):
            parameter, new = update(self._config.optimizer, variable, list(slots), gradient, step, rate)
            variable.assign(parameter)
            for slot, value in zip(slots, new, strict=True):
                slot.assign(value)

    def named(self, step: Any) -> dict[str, Any]:
        """Step, variables and slots by the names that a checkpoint gives them."""
        found = {"step": step, **{f"dense_{index}": variable for index, variable in enumerate(self._variables)}}
        for index, slots in enumerate(self.slots):
            found |= {f"dense_{index}_slot_{slot}": variable for slot, variable in enumerate(slots)}
        return found
