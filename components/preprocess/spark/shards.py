"""Which rows belong to which shard: the exact keys at which shards begin, so that their sizes differ by at most one row.

Spark's own ranges are estimates. Here rows are counted by the first bits of their keys, which tells the bucket that a shard begins
in, and of these small buckets alone all keys are looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from components.manifest import SPLITS
from components.preprocess.worker import ShardTask

_BUCKET_ROWS = 1000
_MOST_BITS = 16


@dataclass(frozen=True, kw_only=True)
class Owners:
    """What stands for each shard in Spark, in the order of tasks; by split the keys at which shards begin, and who owns them."""

    names: tuple[int, ...]
    cuts: tuple[NDArray[np.int64], ...]
    owners: tuple[NDArray[np.int64], ...]


def shard_owners(session: SparkSession, rows: DataFrame, tasks: Sequence[ShardTask]) -> Owners:
    """Owners of the shards of these rows (part, key), which stand in the order of splits and keys."""
    names = np.array(partition_names(session, len(tasks)), np.int64)
    splits = np.array([SPLITS.index(task.split) for task in tasks])
    train = sum(task.stop - task.start for task in tasks if task.split == SPLITS[0])
    inner = np.array([task.start > 0 for task in tasks])
    ranks = np.array([task.start for task in tasks]) + train * splits
    total = sum(task.stop - task.start for task in tasks)
    bits = min(max((total // _BUCKET_ROWS).bit_length(), 1), _MOST_BITS)
    keys = _keys_at(rows, bits, ranks[inner])
    return Owners(
        names=tuple(names.tolist()),
        cuts=tuple(keys[splits[inner] == split] for split in range(len(SPLITS))),
        owners=tuple(names[splits == split] for split in range(len(SPLITS))),
    )


def partition_names(session: SparkSession, count: int) -> list[int]:
    """For each of `count` partitions a number that Spark puts there: by their hashes two shards might share one."""
    hashed = session.range(32 * count + 32).select("id", F.pmod(F.hash("id"), F.lit(count)))
    found: dict[int, int] = {}
    for number, partition in hashed.collect():
        found.setdefault(partition, number)
    return [found[partition] for partition in range(count)]


def _keys_at(rows: DataFrame, bits: int, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The keys of the rows that have these places in the order of all rows."""
    if not len(ranks):
        return np.empty(0, np.int64)
    bucket = F.col("part").cast("bigint") * (1 << bits) + F.shiftright("key", 64 - bits)
    keys = rows.select("key", bucket.alias("bucket"))
    counted = np.array(sorted(map(tuple, keys.groupBy("bucket").count().collect())), np.int64)
    buckets, ends = counted[:, 0], np.cumsum(counted[:, 1])
    within = np.searchsorted(ends, ranks, side="right")
    wanted = np.unique(buckets[within])
    looked_at = keys.filter(F.col("bucket").isin(wanted.tolist())).select("bucket", "key").collect()
    found = np.array(sorted(map(tuple, looked_at)), np.int64)
    before_bucket = ends[within] - counted[within, 1]
    places = np.searchsorted(found[:, 0], buckets[within]) + ranks - before_bucket
    chosen: NDArray[np.int64] = found[places, 1]
    return chosen
