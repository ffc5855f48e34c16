"""Bytes that a worker sends in a step, by where the embedding table lives: the program places by them, the selector predicts.

With n ranks, V rows, E parameters a row and U distinct ids in a rank's batch, 4 bytes a number:

    replicated_sparse   (n - 1) * U * (1 + E)            everyone's ids and gradients to everyone
    replicated_dense    2 * (n - 1) / n * V * (E + 1)    a ring over gradients and counts of the whole table
    sharded             (n - 1) / n * U * (1 + 2 * E)    ids out, rows back, gradients out
"""

from typing import Literal

Placement = Literal["auto", "shared", "replicated_sparse", "replicated_dense", "sharded"]

# Times that a rank waits for all others in a step.
WAITS: dict[Placement, int] = {"replicated_sparse": 1, "replicated_dense": 1, "sharded": 3}


def table_bytes(*, ranks: int, rows: int, parameters: int, distinct_ids: float) -> dict[Placement, float]:
    """Bytes that a rank sends in a step for the embedding table, by placement."""
    others = ranks - 1
    return {
        "replicated_sparse": 4.0 * others * distinct_ids * (1 + parameters),
        "replicated_dense": 8.0 * others / ranks * rows * (parameters + 1),
        "sharded": 4.0 * others / ranks * distinct_ids * (1 + 2 * parameters),
    }


def ring_bytes(*, ranks: int, numbers: float) -> float:
    """Bytes that a rank sends to sum float32 numbers over a ring. Source: Patarasuk and Yuan 2009."""
    return 8.0 * (ranks - 1) / ranks * numbers
