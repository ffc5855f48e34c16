"""preprocess on Spark: one pass over all files and what follows it, as Spark jobs.

    files -> chunks (a task a file) -> workers: parse, check, key -> findings, kept by Spark -> sorted by shard and key -> shards

The driver reads the first rows for the schema, hears of each chunk, and writes the manifest last. Rows never come to it.
"""

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import RDD, Broadcast, StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from components.errors import InvalidRecords
from components.manifest import SPLITS, SplitName
from components.preprocess.digests import file_digest
from components.preprocess.engine import Engine, Method
from components.preprocess.fitting import Counts
from components.preprocess.spark.batches import (
    RESULT,
    STATE,
    TIMES,
    TOKEN,
    TRAIN,
    VALIDATION,
    Batches,
    Pass,
    cut,
    owned,
    work_on,
    write,
)
from components.preprocess.spark.failures import FAILURES, failures_in_one_line
from components.preprocess.spark.hosts import hosts_watched
from components.preprocess.spark.progress import watched
from components.preprocess.spark.shards import Owners, shard_owners
from components.preprocess.splits import TimeRange, whole_range
from components.preprocess.tally import Tally
from components.preprocess.tokens import TokenCounts
from components.preprocess.worker import ChunkResult, ShardTask, Work
from components.records import Shard

log = logging.getLogger(__name__)

_CHUNKS = "file int, first bigint, data binary"
_FINDINGS = "part tinyint, key bigint, number bigint, data binary"
_OWNED = "owner bigint, key bigint, data binary"
_WRITTEN = "task int, data binary"
# Input of one task that parses: enough to be worth starting it, and a small part of the whole.
_TASK_BYTES = 64 << 20
_MOST_TASKS = 100_000
# Rows of a batch that Spark hands to Python: a chunk has megabytes, a row some hundred bytes.
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_CHUNKS_A_BATCH, _ROWS_A_BATCH = 4, 16_384


class SparkEngine:
    """The engine of a Spark session. Files and folders are read and written by Spark's workers: all hosts must see them.

    With `own_disks` each host sees the same inputs at the same paths, and keeps the shards that it writes; others gather them.
    """

    def __init__(self, session: SparkSession, own_disks: bool, work: Work) -> None:
        self._session, self._own_disks, self._work = session, own_disks, work
        self._findings: DataFrame | None = None
        self._kept: list[DataFrame] = []
        self._shipped: list[Broadcast[Any]] = []

    def take(self, work: Work) -> None:
        self.close()
        self._work = work

    def read(self, method: Method, files: Sequence[Path]) -> Iterator[ChunkResult]:
        began = time.monotonic()
        shipped = self._ship(Pass(work=self._work, method=method, files=tuple(files)))
        named = self._session.range(0, len(files), 1, min(len(files), _MOST_TASKS))
        chunks = named.mapInArrow(lambda batches: cut(shipped.value, batches), _CHUNKS)
        tasks = max(self._session.sparkContext.defaultParallelism, sum(path.stat().st_size for path in files) // _TASK_BYTES)
        if len(files) < tasks:
            chunks = chunks.repartition(min(tasks, _MOST_TASKS), "file", "first")
        self._findings = self._keep(chunks.mapInArrow(lambda batches: work_on(shipped.value, batches), _FINDINGS))
        self._session.conf.set(_BATCH_ROWS, _CHUNKS_A_BATCH)
        with watched(self._session.sparkContext, method):
            results = self._part(RESULT).select("key", "number", "data").collect()
        self._session.conf.set(_BATCH_ROWS, _ROWS_A_BATCH)
        log.info("%s: %d chunks in %.1f s", method, len(results), time.monotonic() - began)
        for _, _, data in sorted(results, key=lambda row: (row[0], row[1])):
            found = pickle.loads(data)
            if isinstance(found, InvalidRecords):
                raise found
            yield found

    @contextmanager
    def digests(self, files: Sequence[Path]) -> Iterator[Callable[[Path], str]]:
        @cache
        def all_digests() -> dict[Path, str]:
            named = self._session.sparkContext.parallelize(files, min(len(files), _MOST_TASKS))
            return dict(zip(files, named.map(file_digest).collect(), strict=True))

        yield lambda path: all_digests()[path]

    def times(self) -> TimeRange | None:
        return whole_range([pickle.loads(row[0]) for row in self._part(TIMES).select("data").collect()])

    def counted(self) -> Counts:
        fitting = self._work.fitting
        assert fitting is not None
        counts: Counts = self._states().treeReduce(lambda one, other: fitting.merge([one, other]))
        if fitting.config.categories != "vocabulary":
            return counts
        return self._with_vocabulary(counts, fitting.config.min_count, fitting.config.max_size)

    def _with_vocabulary(self, counts: Counts, min_count: int, max_size: int) -> Counts:
        """Counts with the tokens that a vocabulary takes; the others are counted where they are, however many there are."""
        tokens = self._part(TOKEN).groupBy("key", "data").agg(F.sum("number").alias("number"))
        tokens = self._keep(tokens)
        distinct = {row[0]: row[1] for row in tokens.groupBy("key").count().collect()}
        kept = tokens.filter(F.col("number") >= min_count)
        if max_size:
            order = Window.partitionBy("key").orderBy(F.desc("number"), "data")
            kept = kept.withColumn("place", F.row_number().over(order)).filter(F.col("place") <= max_size)
        columns = range(len(counts.tokens))
        found: list[list[tuple[bytes, int]]] = [[] for _ in columns]
        for key, token, number in kept.select("key", "data", "number").collect():
            found[key].append((bytes(token), number))
        merged = tuple(
            TokenCounts(
                tokens=pa.array([token for token, _ in pairs], pa.binary()),
                counts=np.array([number for _, number in pairs], np.int64),
            )
            for pairs in found
        )
        return replace(counts, tokens=merged, distinct=tuple(distinct.get(place, 0) for place in columns))

    def finished(self) -> tuple[Tally, NDArray[np.int64]]:
        found: tuple[Tally, NDArray[np.int64]] = self._states().treeReduce(_merged)
        return found

    def move_one(self, counts: NDArray[np.int64], source: SplitName) -> None:
        of = SPLITS.index(source)
        edge = F.min("key") if source == "train" else F.max("key")
        key = self._part(of).agg(edge).collect()[0][0]
        moved = (F.col("part") == of) & (F.col("key") == key)
        assert self._findings is not None
        self._findings = self._findings.withColumn("part", F.when(moved, 1 - of).otherwise(F.col("part")))
        counts[of, 0] -= 1
        counts[1 - of, 0] += 1

    def write(self, tasks: Sequence[ShardTask]) -> Iterator[Shard]:
        began = time.monotonic()
        rows = self._rows()
        owners: Owners = shard_owners(self._session, rows, tasks)
        by_owner = {owner: (place, task) for place, (owner, task) in enumerate(zip(owners.names, tasks, strict=True))}
        shipped, work = self._ship((owners, by_owner)), self._ship(self._work)

        def with_owner(batches: Batches) -> Batches:
            return owned(shipped.value[0].cuts, shipped.value[0].owners, batches)

        # Each owner's hash is the number of a partition: a shard is the whole work of one task.
        sorted_rows = rows.mapInArrow(with_owner, _OWNED).repartition(len(tasks), "owner").sortWithinPartitions("key")
        own_disks = self._own_disks

        def write_shard(batches: Batches) -> Batches:
            return write(work.value, shipped.value[1], own_disks, batches)

        with watched(self._session.sparkContext, "write"):
            written = sorted_rows.mapInArrow(write_shard, _WRITTEN).collect()
        shards: dict[int, Shard] = {}
        for place, data in written:
            found = pickle.loads(data)
            if isinstance(found, InvalidRecords):
                raise found
            shards[place] = found
        log.info("wrote %d shards in %.1f s", len(shards), time.monotonic() - began)
        yield from (shards[place] for place in range(len(tasks)))

    def repeats(self) -> int:
        # TRAIN is 0 and VALIDATION 1: a sum is how many validate, and a smallest one of 0 says that the row stands in train, too.
        parts = self._rows().groupBy("number").agg(F.min("part").alias("least"), F.sum("part").alias("validate"))
        repeats: int = parts.filter(F.col("least") == TRAIN).agg(F.sum("validate")).collect()[0][0] or 0
        return repeats

    def _rows(self) -> DataFrame:
        assert self._findings is not None
        return self._findings.filter(F.col("part") <= VALIDATION)

    def _part(self, part: int) -> DataFrame:
        assert self._findings is not None
        return self._findings.filter(F.col("part") == part)

    def _states(self) -> RDD[Any]:
        return self._part(STATE).select("data").rdd.map(lambda row: pickle.loads(row[0]))

    def _keep(self, frame: DataFrame) -> DataFrame:
        """What several jobs need stays on the disks of the hosts until the engine is closed."""
        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return frame

    def _ship(self, value: Any) -> Broadcast[Any]:
        self._shipped.append(self._session.sparkContext.broadcast(value))
        return self._shipped[-1]

    def close(self) -> None:
        while self._kept:
            self._kept.pop().unpersist()
        while self._shipped:
            self._shipped.pop().destroy()


def _merged(one: tuple[Tally, NDArray[np.int64]], other: tuple[Tally, NDArray[np.int64]]) -> tuple[Tally, NDArray[np.int64]]:
    one[0].merge(other[0])
    return one[0], one[1] + other[1]


@contextmanager
def on_spark(session: SparkSession, own_disks: bool, work: Work) -> Iterator[Engine]:
    """An engine that keeps nothing in Spark when the block ends.

    Raises:
        WorkflowError: Spark failed.
    """
    engine = SparkEngine(session, own_disks, work)
    with failures_in_one_line(), hosts_watched(session.sparkContext):
        try:
            yield engine
        finally:
            # Java that is gone keeps nothing, and must not hide why the block ends.
            with suppress(*FAILURES):
                engine.close()
