"""The embedding table: how its rows begin, and how those of a batch are updated.

A table row holds the parameters and then their optimizer slots ([row, m, v] for Adam), so that what an update needs is contiguous.
E numbers are the parameters of a row.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.train.program.config import TrainConfig
from components.train.program.kernels import update_rows
from components.train.program.optimizers import SLOT_STARTS, effective_rate, rule_of

# Rows are drawn in chunks that have a seed each, so that any process can make any part of the table on its own.
INIT_CHUNK_ROWS = 65_536
INIT_STDDEV = 0.01


def initial_rows(config: TrainConfig, width: int, start: int, stop: int) -> NDArray[np.float32]:
    """Rows start..stop-1 of the embedding table as every strategy begins with them, float32 [stop - start, width]."""
    rows = np.empty((stop - start, width), np.float32)
    for chunk in range(start // INIT_CHUNK_ROWS, -(-stop // INIT_CHUNK_ROWS)):
        first = chunk * INIT_CHUNK_ROWS
        drawn = np.random.default_rng((config.seed, chunk)).standard_normal((INIT_CHUNK_ROWS, width), np.float32)
        low, high = max(start, first), min(stop, first + INIT_CHUNK_ROWS)
        rows[low - start : high - start] = drawn[low - first : high - first] * INIT_STDDEV
    return rows


def stored_width(config: TrainConfig, width: int) -> int:
    """Numbers of a table row: the parameters and their slots."""
    return (1 + len(SLOT_STARTS[config.optimizer])) * width


def initial_table(config: TrainConfig, width: int, start: int, stop: int) -> NDArray[np.float32]:
    """Rows start..stop-1 with their slots, float32 [stop - start, (1 + slots) * width]."""
    rows = initial_rows(config, width, start, stop)
    slots = [np.full_like(rows, begin) for begin in SLOT_STARTS[config.optimizer]]
    return np.concatenate([rows, *slots], axis=1)


def apply_to_rows(config: TrainConfig, table: Any, ids_U: Any, gradient_UE: Any, step: Any) -> Any:
    """Apply one update to the rows of distinct ids of a table of `initial_table`, in place; the operation, in a graph.

    Args:
        step: float32 scalar, 1 at the first update.
    """
    return update_rows(rule_of(config), table, ids_U, gradient_UE, effective_rate(config, step))
