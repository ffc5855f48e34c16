"""A model as strategies, checkpoints and export see it, whatever its architecture.

Shapes: B rows of the batch, F fields, U distinct ids, E numbers a row of the embedding table.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.architecture import Architecture, TrainingPass, Weight, WeightKind
from components.train.program.config import TrainConfig
from components.train.program.kernels import Cells
from components.train.program.lookup import CellRows, DistinctRows
from components.train.program.precision import FULL, Precision

# Different parts of a batch must not drop the same units; a layer takes a number too.
SEEDS_A_PART = 64


def loss(labels_B: Any, logits_B: Any) -> Any:
    """Mean log loss of a batch, a scalar."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels_B, logits=logits_B))


class Model:
    """Dense weights and a row width to begin with; loss and gradients in training; logits in serving."""

    def __init__(self, config: TrainConfig, architecture: Architecture, click_rate: float, precision: Precision = FULL) -> None:
        """The first weight is a bias, the log-odds of `click_rate`: training starts at the best constant predictor instead of
        spending its first steps on the way to it. Source: Lin et al. 2017, "Focal Loss", section 4.1, for the idea of a prior.
        """
        random = np.random.default_rng((config.seed, 2**32 - 1))
        bias = Weight("bias", np.array([np.log(click_rate / (1 - click_rate))], np.float32), "bias")
        self._weights = (bias, *architecture.weights(random))
        self._config, self._architecture = config, architecture
        self.row_width, self.precision = architecture.row_width, precision

    @property
    def kinds(self) -> tuple[WeightKind, ...]:
        """How each dense weight is updated."""
        return tuple(weight.kind for weight in self._weights)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(weight.name for weight in self._weights)

    def initial_dense(self) -> list[NDArray[np.float32]]:
        return [weight.value for weight in self._weights]

    def logits(self, dense: Sequence[Any], rows_BFE: Any, ids_BF: Any, values_BF: Any) -> Any:
        """Logits float32 [B], in plain TensorFlow: what a saved model computes.

        Args:
            dense: variables or tensors in the order of `initial_dense`. rows_BFE: the row of the embedding table of every cell.
        """
        return self._architecture.logits(dense[0], dense[1:], CellRows(rows_BFE, ids_BF, values_BF), None)

    def loss_and_gradients(
        self,
        dense: Sequence[Any],
        rows_UE: Any,
        cells: Cells,
        labels_B: Any,
        values_BF: Any,
        step: Any,
        part: Any = 0,
        scale: Any = None,
    ) -> tuple[Any, list[Any], Any]:
        """Loss, gradients of the dense variables, and of the distinct rows [U, E].

        Args:
            rows_UE: the rows of the batch's distinct ids. cells: which of them each cell of the batch uses.
            step: a number that no other update of this training has. part: which part of the batch this is, of those that
                others have; both only matter to what dropout drops.
            scale: what the loss is multiplied with before gradients are taken; they are divided by it again.
        """
        training = TrainingPass(self._seed(step, part))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([variable for variable, kind in zip(dense, self.kinds, strict=True) if kind != "moving"])
            tape.watch(rows_UE)
            lookup = DistinctRows(rows_UE, cells, values_BF)
            value = loss(labels_B, self._architecture.logits(dense[0], dense[1:], lookup, training))
            scaled = value if scale is None else value * scale
        *gradients, rows_gradient = tape.gradient(scaled, [*dense, rows_UE], unconnected_gradients="zero")
        if scale is not None:
            gradients, rows_gradient = [gradient / scale for gradient in gradients], rows_gradient / scale
        statistics = iter(training.statistics)
        for index, kind in enumerate(self.kinds):
            if kind == "moving":
                gradients[index] = dense[index] - next(statistics)
        return value, gradients, rows_gradient

    def _seed(self, step: Any, part: Any) -> Any:
        if not self._config.dropout:
            return None  # and no operation in the graph
        first = tf.constant(self._config.seed * 2**20, tf.int64) + tf.cast(part, tf.int64) * SEEDS_A_PART
        return tf.stack([first, tf.cast(step, tf.int64)])


def make_model(config: TrainConfig, field_size: int, click_rate: float, precision: Precision = FULL) -> Model:
    """The model of the settings; its modules are imported only when they are used.

    Raises:
        InvalidConfig: settings that this model cannot have, or an own model that cannot be used.
    """
    return Model(config, _architecture(config, field_size, precision), click_rate, precision)


def _architecture(config: TrainConfig, field_size: int, precision: Precision) -> Architecture:
    if config.model == "own":
        from components.train.program.own_model import OwnModel

        return OwnModel(config, field_size)
    if config.model == "dcn_v2":
        from components.train.program.dcn_v2 import DCNv2

        return DCNv2(config, field_size, precision)
    if config.model == "wide_and_deep":
        from components.train.program.wide_and_deep import WideAndDeep

        return WideAndDeep(config, field_size, precision)
    from components.train.program.deepfm import DeepFM

    return DeepFM(config, field_size, precision)
