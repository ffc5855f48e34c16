"""What a kind of model is: the dense weights it needs, and a logit from the embedding rows of a batch and those weights.

deepfm.py, wide_and_deep.py, dcn_v2.py and own_model.py are one each. None knows of clusters, optimizers or files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from components.train.program.lookup import Lookup

# How a dense variable is updated: by the optimizer, by it but for `l2`, or towards a statistic of the batch.
WeightKind = Literal["weight", "bias", "moving"]


@dataclass(frozen=True)
class Weight:
    """A dense variable as training begins with it."""

    name: str
    value: NDArray[np.float32]
    kind: WeightKind


@dataclass
class TrainingPass:
    """What a pass through a model has in training, and not in serving.

    Attributes:
        seed: int64 [2], different for each step and each part of a batch; what is dropped depends on nothing else.
        statistics: of this batch, one for each moving weight, in their order; the pass fills it.
    """

    seed: Any
    statistics: list[Any] = field(default_factory=list)


class Architecture(Protocol):
    """One kind of model. `row_width` numbers a row of the embedding table has, the last of them the embedding."""

    row_width: int

    def weights(self, random: np.random.Generator) -> list[Weight]:
        """All dense variables but the bias that every model has."""
        ...

    def logits(self, bias: Any, weights: Sequence[Any], lookup: Lookup, training: TrainingPass | None) -> Any:
        """Logits float32 [B].

        Args:
            bias: float32 [1], to be added. weights: variables or tensors in the order of `weights`.
            training: None when the model is served.
        """
        ...
