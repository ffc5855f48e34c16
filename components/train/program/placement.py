"""Which placement of the embedding table a Horovod training uses, from the bytes that a rank sends in a step (traffic.py).

A step that waits for others pays more than its bytes: each wait counts as WAIT_BYTES.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from components.records import Schema, read_shard
from components.resources import usable_memory
from components.traffic import WAITS, table_bytes
from components.train.program.config import PlacementName, TrainConfig
from components.train.program.exchange import Exchange
from components.train.program.input import Source
from components.train.program.table import Placement, Table

log = logging.getLogger(__name__)

# What could have been sent while a step waits once more: half a millisecond on loopback, where this was measured.
WAIT_BYTES = 500_000
# A replicated table may take this share of a host's memory: batches, gradients and copies for checkpoints need the rest.
TABLE_SHARE = 0.4


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the choice depends on: ranks, ranks on a host, distinct ids in a rank's batch, bytes of memory of a host."""

    ranks: int
    local_ranks: int
    distinct_ids: int
    memory_bytes: int


def bytes_a_step(table: Table, load: Load) -> dict[PlacementName, float]:
    """Bytes that a rank sends in a step, by placement."""
    return table_bytes(ranks=load.ranks, rows=table.rows, parameters=table.parameters, distinct_ids=load.distinct_ids)


def choose(table: Table, load: Load) -> tuple[PlacementName, str]:
    """On one host one table for all, else the placement whose bytes and waits cost least among those that fit; and why."""
    if load.ranks == load.local_ranks:
        return "shared", f"{load.ranks} ranks on one host share one table of {table.rows * table.row_bytes / 1e9:.3g} GB"
    sent = bytes_a_step(table, load)
    numbers = ", ".join(f"{name} {count / 1e6:.3g} MB" for name, count in sent.items())
    held = table.rows * table.row_bytes * load.local_ranks
    numbers = f"a rank sends {numbers} a step with {load.distinct_ids} distinct ids in its batch"
    if held > TABLE_SHARE * load.memory_bytes:
        return "sharded", f"replicas would take {held / 1e9:.3g} of {load.memory_bytes / 1e9:.3g} GB of a host; {numbers}"
    return min(sent, key=lambda name: sent[name] + WAIT_BYTES * WAITS[name]), numbers


def distinct_ids(source: Source, batch_size: int) -> int:
    """Distinct ids in the first rows of this rank's files, as many as its batch has; the most that there can be in Pipe mode, where
    nothing can be read ahead.
    """
    if not source.files:
        return min(batch_size * source.field_size, source.feature_size)
    schema = Schema(field_size=source.field_size, feature_size=source.feature_size)
    seen: list[Any] = []
    rows = 0
    for file in source.files:
        for batch in read_shard(Path(file), schema, source.encoding):
            seen.append(batch.ids[: batch_size - rows])
            rows += len(seen[-1])
            if rows == batch_size:
                return len(np.unique(np.concatenate(seen)))
    return len(np.unique(np.concatenate(seen))) if seen else 0


def place(name: PlacementName, table: Table, exchange: Exchange) -> Placement:
    """A placement by its name, `auto` excepted."""
    if name == "shared":
        from components.train.program.shared import Shared

        return Shared(table, exchange)
    if name == "sharded":
        from components.train.program.sharded import Sharded

        return Sharded(table, exchange)
    if name == "replicated_dense":
        from components.train.program.replicated_dense import ReplicatedDense

        return ReplicatedDense(table, exchange)
    from components.train.program.replicated_sparse import ReplicatedSparse

    return ReplicatedSparse(table, exchange)


def place_for(config: TrainConfig, source: Source, table: Table, ranks: int, local_ranks: int) -> tuple[PlacementName, str]:
    """The placement that was asked for, or the cheapest; and why, for the log. What rank 0 finds counts for all."""
    if config.embedding_placement != "auto":
        return config.embedding_placement, "as set"
    memory = usable_memory().bytes
    ids = distinct_ids(source, config.batch_size)
    return choose(table, Load(ranks=ranks, local_ranks=local_ranks, distinct_ids=ids, memory_bytes=memory))
