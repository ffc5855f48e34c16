"""DCN-v2: cross layers, which multiply the embeddings of a row with learned mixtures of themselves, beside deep layers.

With x0 the scaled embeddings of a row, X = F * D numbers, side by side:

    x = x0;  for each cross layer: x = x0 * (W x + b) + x;  logit = bias + c . x + deep layers of x0

W is a whole matrix [X, X], or with cross_rank r the product U V of [X, r] and [r, X], which costs X / 2r times less.

Source: Wang et al. 2021, "DCN V2: Improved Deep & Cross Network", the parallel structure; section 3.5 for the low rank.

A row of the embedding table is the embedding alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from components.train.program.architecture import TrainingPass, Weight
from components.train.program.config import TrainConfig
from components.train.program.deep_layers import DeepLayers, glorot
from components.train.program.lookup import Lookup, scaled_embeddings
from components.train.program.precision import Precision


class DCNv2:
    def __init__(self, config: TrainConfig, field_size: int, precision: Precision) -> None:
        self.row_width = config.embedding_size
        self._inputs, self._layers, self._rank = field_size * config.embedding_size, config.cross_layers, config.cross_rank
        self._precision = precision
        self._deep = DeepLayers(config, self._inputs, precision) if config.deep_layers else None

    def weights(self, random: np.random.Generator) -> list[Weight]:
        """Of each cross layer its matrix or two factors and its bias [X]; then c [X, 1]; then those of the deep layers."""
        found = []
        for layer in range(self._layers):
            if self._rank:
                found.append(Weight(f"cross_{layer}_down", glorot(random, self._inputs, self._rank), "weight"))
                found.append(Weight(f"cross_{layer}_up", glorot(random, self._rank, self._inputs), "weight"))
            else:
                found.append(Weight(f"cross_{layer}_matrix", glorot(random, self._inputs, self._inputs), "weight"))
            found.append(Weight(f"cross_{layer}_bias", np.zeros(self._inputs, np.float32), "bias"))
        found.append(Weight("cross_logit", glorot(random, self._inputs, 1), "weight"))
        return found + (self._deep.weights(random) if self._deep else [])

    def logits(self, bias: Any, weights: Sequence[Any], lookup: Lookup, training: TrainingPass | None) -> Any:
        remaining = iter(weights)
        x0_BX = scaled_embeddings(lookup, 0)
        x_BX = x0_BX
        for _ in range(self._layers):
            mixed_BX = x_BX
            for _ in range(2 if self._rank else 1):
                mixed_BX = self._precision.product(mixed_BX, next(remaining), training)
            x_BX = x0_BX * tf.nn.bias_add(mixed_BX, next(remaining)) + x_BX
        crossed_B = tf.squeeze(tf.matmul(x_BX, next(remaining)), axis=1)
        return crossed_B + (bias + self._deep.logit(list(remaining), x0_BX, training) if self._deep else bias)
