"""DeepFM: first order, all pairs of fields, and deep layers, over the same embeddings.

Source: Guo et al. 2017, "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction".

A row of the embedding table holds 1 + D numbers: the first-order weight, then the embedding, so that one lookup serves both.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from components.train.program.architecture import TrainingPass, Weight
from components.train.program.config import TrainConfig
from components.train.program.deep_layers import DeepLayers
from components.train.program.lookup import Lookup
from components.train.program.precision import Precision


class DeepFM:
    def __init__(self, config: TrainConfig, field_size: int, precision: Precision) -> None:
        self.row_width = 1 + config.embedding_size
        self._deep = DeepLayers(config, field_size * config.embedding_size, precision) if config.deep_layers else None

    def weights(self, random: np.random.Generator) -> list[Weight]:
        return self._deep.weights(random) if self._deep else []

    def logits(self, bias: Any, weights: Sequence[Any], lookup: Lookup, training: TrainingPass | None) -> Any:
        terms_B, scaled_BX = lookup.factorization()
        return terms_B + (bias + self._deep.logit(weights, scaled_BX, training) if self._deep else bias)
