"""Why a loss stopped being a number, as far as settings and data tell."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from components.train.program.config import TrainConfig

Rows = tuple[Any, Any, Any]

# Embeddings and layers begin with values around 1 in mind; clicks and counts taken as they are go up to millions.
LARGE_VALUE = 100.0


def likely_cause(config: TrainConfig, batches: Sequence[Rows], *, float16: bool = False) -> str:
    """The end of the sentence "training diverged: ...", the most telling cause first.

    Args:
        batches: labels, ids and values of the last steps, as far as this process saw them: a loss shows what the step before broke.
        float16: whether products ran in it.
    """
    causes = []
    values = [np.asarray(values) for _, _, values in batches]
    broken = sum(int((~np.isfinite(each)).sum()) for each in values)
    largest = max((float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in values), default=0.0)
    if broken:
        causes.append(f"{broken} values of the last batches are not finite, repair the data")
    elif largest > LARGE_VALUE:
        causes.append(f"values of the last batches go up to {largest:g}, bring them near 1 by logarithm or division")
    if float16:
        causes.append("float16 overflow (a product above 65,504), turn mixed_precision off")
    causes.append(f"lower learning_rate {config.learning_rate:g}")
    if not config.warmup_steps:
        causes.append("let it rise over some warmup_steps")
    if config.deep_layers and not config.batch_norm and config.model != "own":
        causes.append("set batch_norm, which keeps the outputs of deep layers near 1")
    return "; or ".join(causes)
