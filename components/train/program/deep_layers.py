"""The deep part that models share: layers of ReLU units over the embeddings of a row, and one that ends in a logit.

After a layer's ReLU come, if they are on, batch normalisation and dropout, in this order, as in the DeepFM code that most CTR
samples descend from. Batch normalisation uses the batch's own mean and variance in training, of the part of the batch that a
worker or tower has, and the moving ones in serving. With it or with dropout, trainings of different numbers of workers are equal
only in expectation.

Source: Ioffe and Szegedy 2015 (batch normalisation); Srivastava et al. 2014 (dropout).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.architecture import TrainingPass, Weight
from components.train.program.config import TrainConfig
from components.train.program.precision import Precision

# Added to a variance before its root is taken, as in Keras.
VARIANCE_EPSILON = 1e-3


def glorot(random: np.random.Generator, fan_in: int, fan_out: int) -> NDArray[np.float32]:
    """A matrix drawn uniformly so that variances stay alike from layer to layer. Source: Glorot and Bengio 2010."""
    limit = (6.0 / (fan_in + fan_out)) ** 0.5
    return random.uniform(-limit, limit, (fan_in, fan_out)).astype(np.float32)


class DeepLayers:
    """The layers of the settings over `inputs` numbers a row."""

    def __init__(self, config: TrainConfig, inputs: int, precision: Precision) -> None:
        self._widths = (inputs, *config.deep_layers, 1)
        self._batch_norm, self._precision = config.batch_norm, precision
        layers = len(config.deep_layers)
        self._rates = config.dropout * layers if len(config.dropout) == 1 else config.dropout or (0.0,) * layers

    def weights(self, random: np.random.Generator) -> list[Weight]:
        """Of each layer its matrix [in, out], its bias [out], and with batch normalisation scale, shift and moving statistics."""
        found = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(self._widths)):
            found.append(Weight(f"deep_{layer}_matrix", glorot(random, fan_in, fan_out), "weight"))
            found.append(Weight(f"deep_{layer}_bias", np.zeros(fan_out, np.float32), "bias"))
            if self._batch_norm and layer < len(self._rates):
                found.append(Weight(f"deep_{layer}_scale", np.ones(fan_out, np.float32), "bias"))
                found.append(Weight(f"deep_{layer}_shift", np.zeros(fan_out, np.float32), "bias"))
                found.append(Weight(f"deep_{layer}_moving_mean", np.zeros(fan_out, np.float32), "moving"))
                found.append(Weight(f"deep_{layer}_moving_variance", np.ones(fan_out, np.float32), "moving"))
        return found

    def logit(self, weights: Sequence[Any], inputs_BX: Any, training: TrainingPass | None) -> Any:
        """float32 [B].

        Args:
            weights: variables or tensors in the order of `weights`.
        """
        remaining = iter(weights)
        hidden = inputs_BX
        for layer, rate in enumerate(self._rates):
            product = self._precision.product(hidden, next(remaining), training)
            # bias_add, not +: TensorFlow fuses matmul, bias and relu into one operation only when it sees these three.
            hidden = tf.nn.relu(tf.nn.bias_add(product, next(remaining)))
            if self._batch_norm:
                hidden = _normalised(hidden, [next(remaining) for _ in range(4)], training)
            if rate and training is not None:
                seed = training.seed + tf.constant([layer, 0], tf.int64)
                hidden = tf.nn.experimental.stateless_dropout(hidden, rate, seed, rng_alg="philox")
        # The last product is a sliver of the work, and its result is the logit: never in low precision.
        return tf.squeeze(tf.matmul(hidden, next(remaining)) + next(remaining), axis=1)


def _normalised(hidden_BH: Any, weights: Sequence[Any], training: TrainingPass | None) -> Any:
    scale, shift, mean, variance = weights
    if training is not None:
        mean, variance = tf.nn.moments(hidden_BH, axes=[0])
        training.statistics += [tf.stop_gradient(mean), tf.stop_gradient(variance)]
    return tf.nn.batch_normalization(hidden_BH, mean, variance, shift, scale, VARIANCE_EPSILON)
