"""Optimizers that touch only the rows of a batch, and the table that keeps a row's optimizer state beside it.

A table row holds the parameters and then their slots ([row, m, v] for Adam), so that what an update needs is contiguous. With
gradient g, step t counted from 1 and rate r, element by element:

    adam      m = 0.9 m + 0.1 g;  v = 0.999 v + 0.001 g^2;  p -= r sqrt(1 - 0.999^t) / (1 - 0.9^t) m / (sqrt(v) + 1e-7)
    adagrad   s = s + g^2, from 0.1;  p -= r g / (sqrt(s) + 1e-7)
    sgd       p -= r g

Source: Kingma and Ba 2015 (Adam, with Keras's epsilon-hat); Duchi et al. 2011 (Adagrad).

Adam on rows is *lazy*: a row whose id is not in the batch keeps its moments as they are, where dense Adam would decay them and
go on moving the row. The step count of the bias correction is global. Source: TensorFlow Addons, LazyAdam.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.config import OptimizerName, TrainConfig
from components.train.program.deepfm import initial_rows, row_width
from components.train.program.kernels import Rule, update_dense, update_rows

ADAM_BETA_1, ADAM_BETA_2 = 0.9, 0.999

SLOTS: dict[OptimizerName, int] = {"adam": 2, "adagrad": 1, "sgd": 0}
SLOT_START: dict[OptimizerName, float] = {"adam": 0.0, "adagrad": 0.1, "sgd": 0.0}
RULES: dict[OptimizerName, Rule] = {
    "adam": Rule("adam", ADAM_BETA_1, ADAM_BETA_2, 1e-7),
    "adagrad": Rule("adagrad", 0.0, 0.0, 1e-7),
    "sgd": Rule("sgd", 0.0, 0.0, 0.0),
}


def learning_rate(config: TrainConfig, step: Any) -> Any:
    """The rate of a step counted from 1: linear over `warmup_steps`, then constant."""
    warmup = max(config.warmup_steps, 1)
    return config.learning_rate * config.learning_rate_factor * tf.minimum(1.0, step / float(warmup))


def stored_width(config: TrainConfig) -> int:
    """Numbers of a table row: the parameters and their slots."""
    return (1 + SLOTS[config.optimizer]) * row_width(config)


def initial_table(config: TrainConfig, start: int, stop: int) -> NDArray[np.float32]:
    """Rows start..stop-1 with their slots, float32 [stop - start, (1 + slots) * (1 + D)]."""
    rows = initial_rows(config, start, stop)
    slots = np.full((len(rows), SLOTS[config.optimizer] * rows.shape[1]), SLOT_START[config.optimizer], np.float32)
    return np.concatenate([rows, slots], axis=1)


def effective_rate(config: TrainConfig, step: Any) -> Any:
    """The learning rate of a step counted from 1, a float32 scalar; of Adam, with the bias correction of its moments.

    Source: Kingma and Ba 2015, the reordered form at the end of section 2.
    """
    rate = learning_rate(config, step)
    if config.optimizer != "adam":
        return rate
    # In float64: 1 - 0.999 ** step has only four digits in float32 at the first steps.
    count = tf.cast(step, tf.float64)
    correction = tf.sqrt(1 - tf.pow(tf.constant(ADAM_BETA_2, tf.float64), count)) / (
        1 - tf.pow(tf.constant(ADAM_BETA_1, tf.float64), count)
    )
    return rate * tf.cast(correction, tf.float32)


def apply_to_rows(config: TrainConfig, table: Any, ids_U: Any, gradient_UE: Any, step: Any) -> Any:
    """Apply one update to the rows of distinct ids of a table of `initial_table`, in place; the operation, in a graph.

    Args:
        step: float32 scalar, 1 at the first update.
    """
    return update_rows(RULES[config.optimizer], table, ids_U, gradient_UE, effective_rate(config, step))


class DenseOptimizer:
    """The same update rules for the variables that every step touches whole."""

    def __init__(self, config: TrainConfig, variables: list[Any]) -> None:
        self._config = config
        self._variables = variables
        start = SLOT_START[config.optimizer]
        self.slots = [[tf.Variable(tf.fill(v.shape, start)) for v in variables] for _ in range(SLOTS[config.optimizer])]

    def apply(self, gradients: list[Any], step: Any) -> None:
        rule, rate = RULES[self._config.optimizer], effective_rate(self._config, step)
        update_dense(rule, self._variables, self.slots, gradients, rate)

    def named(self, step: Any) -> dict[str, Any]:
        """Step, variables and slots by the names that a checkpoint gives them."""
        found = {"step": step, **{f"dense_{index}": variable for index, variable in enumerate(self._variables)}}
        for slot, same in enumerate(self.slots):
            found |= {f"dense_{index}_slot_{slot}": variable for index, variable in enumerate(same)}
        return found
