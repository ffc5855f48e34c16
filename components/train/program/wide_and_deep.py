"""Wide & Deep: a linear model over the ids, and deep layers over their embeddings, trained together.

Source: Cheng et al. 2016, "Wide & Deep Learning for Recommender Systems". The wide part has a weight for every id and no crossed
columns: those are features, and made before training. The paper trains the wide part with FTRL and the deep one with Adagrad; here
one optimizer trains both.

A row of the embedding table holds 1 + D numbers: the weight of the wide part, then the embedding.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from components.errors import InvalidConfig
from components.train.program.architecture import TrainingPass, Weight
from components.train.program.config import TrainConfig
from components.train.program.deep_layers import DeepLayers
from components.train.program.lookup import Lookup, first_order, scaled_embeddings
from components.train.program.precision import Precision


class WideAndDeep:
    def __init__(self, config: TrainConfig, field_size: int, precision: Precision) -> None:
        if not config.deep_layers:
            raise InvalidConfig("deep_layers []: model wide_and_deep needs at least one")
        self.row_width = 1 + config.embedding_size
        self._deep = DeepLayers(config, field_size * config.embedding_size, precision)

    def weights(self, random: np.random.Generator) -> list[Weight]:
        return self._deep.weights(random)

    def logits(self, bias: Any, weights: Sequence[Any], lookup: Lookup, training: TrainingPass | None) -> Any:
        return first_order(lookup) + (bias + self._deep.logit(weights, scaled_embeddings(lookup, 1), training))
