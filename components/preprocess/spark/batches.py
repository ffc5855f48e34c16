"""What Spark's Python workers do: functions from Arrow batches to Arrow batches, for `mapInArrow`. Nothing of Spark is needed here.

    files  --cut-->  chunks  --work_on-->  findings: rows, and what was found of them  --owned-->  rows by shard  --write-->  shards

Keys are unsigned and Spark's integers are signed: a key travels with its first bit flipped, which keeps the order.
"""

import os
import pickle
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.preprocess.chunks import Chunk
from components.preprocess.engine import Method
from components.preprocess.fitting import Counts
from components.preprocess.keys import Keys
from components.preprocess.reading import file_chunks
from components.preprocess.repeats import row_hashes
from components.preprocess.spill import Words, row_words, to_batch, to_words
from components.preprocess.tokens import NO_TOKENS
from components.preprocess.worker import ChunkResult, ShardTask, Work, Worker
from components.records import Batch, Shard, write_stream

Batches = Iterator[pa.RecordBatch]

# What a row of findings is: one of train or validation (as in SPLITS), the result of a chunk, a token with its count, what a
# worker counted, or when its rows are.
TRAIN, VALIDATION, RESULT, TOKEN, STATE, TIMES = range(6)
# After all chunks of a file.
_AT_THE_END = 2**62
# Of the tokens that one machine may hold, the share that a worker holds before it hands them to Spark, which adds them up.
_HELD_SHARE = 0.05
_FLIPPED = np.uint64(1 << 63)

# The chunk itself is pickled, which leaves out the bytes that its reader finds in the file (chunks.py).
CHUNKS = pa.schema([("file", pa.int32()), ("first", pa.int64()), ("data", pa.binary())])
FINDINGS = pa.schema([("part", pa.int8()), ("key", pa.int64()), ("number", pa.int64()), ("data", pa.binary())])
OWNED = pa.schema([("owner", pa.int64()), ("key", pa.int64()), ("data", pa.binary())])
WRITTEN = pa.schema([("task", pa.int32()), ("data", pa.binary())])


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What a worker does with the chunks of which files."""

    work: Work
    method: Method
    files: tuple[Path, ...]


def signed(keys: Keys) -> NDArray[np.int64]:
    return (keys ^ _FLIPPED).view(np.int64)


def row_column(words: Words) -> pa.Array:
    """Rows as one binary column, without a copy."""
    width = 4 * words.shape[1]
    offsets = np.arange(len(words) + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), len(words), [None, pa.py_buffer(offsets), pa.py_buffer(words)])


def words_of(column: pa.Array, width: int) -> Words:
    """The rows of such a column: all are of the same width, so that they follow one another without gaps."""
    _, offsets, data = column.buffers()
    start = int(np.frombuffer(offsets, np.int32)[column.offset])
    return np.frombuffer(data, np.uint32, len(column) * width, start).reshape(-1, width)


def _findings(part: int, key: int, number: int, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"part": [part], "key": [key], "number": [number], "data": [data]}, schema=FINDINGS)


def cut(a_pass: Pass, batches: Batches) -> Batches:
    """Files (their places in the list, int64) as chunks, and what makes the rest of one unreadable in the place of a chunk."""
    for batch in batches:
        for index in batch.column(0).to_pylist():
            try:
                for chunk in file_chunks(a_pass.work.format, a_pass.work.table, a_pass.files[index], index):
                    yield _chunk_batch(index, chunk.first, chunk)
            except InvalidRecords as error:
                yield _chunk_batch(index, _AT_THE_END, error)


def _chunk_batch(file: int, first: int, chunk: Chunk | InvalidRecords) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"file": [file], "first": [first], "data": [pickle.dumps(chunk)]}, schema=CHUNKS)


@dataclass(kw_only=True)
class RowSink:
    """Where a worker puts its rows: batches of findings, which are taken after each chunk. A row's number is its hash."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, 1), np.int64))
    _waiting: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, keys: Keys, validates: NDArray[np.bool_], batch: Batch) -> None:
        self.counts += np.array([[int((~validates).sum())], [int(validates.sum())]])
        columns = [
            pa.array(np.where(validates, VALIDATION, TRAIN).astype(np.int8)),
            pa.array(signed(keys)),
            pa.array(row_hashes(batch).view(np.int64)),
            row_column(to_words(keys, batch)),
        ]
        self._waiting.append(pa.RecordBatch.from_arrays(columns, schema=FINDINGS))

    def close(self) -> None:
        """Nothing is open."""

    def take(self) -> list[pa.RecordBatch]:
        taken, self._waiting = self._waiting, []
        return taken


def work_on(a_pass: Pass, batches: Batches) -> Batches:
    """Chunks as findings.

    After a chunk that will stop everything, later ones are passed over: whatever is wrong in them, it is not the first.
    """
    work, sink, stop = a_pass.work, RowSink(), (len(a_pass.files), 0)
    worker = Worker(work=work, number=0, sink=sink)
    method: Callable[[Chunk], ChunkResult] = getattr(worker, a_pass.method)
    for batch in batches:
        for file, first, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if (file, first) > stop:
                continue
            found = _worked(method, data)
            if isinstance(found, InvalidRecords) or found.fatal or (found.first_reject and not work.skip):
                stop = (file, first)
            yield from sink.take()
            yield _findings(RESULT, file, first, pickle.dumps(found))
            if work.fitting and worker.tokens(None) > _HELD_SHARE * work.fitting.most_tokens:
                yield from _counted(worker)
                yield _times(worker)
                worker.take(work)
    if a_pass.method == "count":
        yield from _counted(worker)
    if a_pass.method == "parse":
        yield _findings(STATE, 0, 0, pickle.dumps(worker.finish(None)))
    yield _times(worker)


def _worked(method: Callable[[Chunk], ChunkResult], data: bytes) -> ChunkResult | InvalidRecords:
    """The result of a chunk, or what makes it unreadable; its bytes are read here."""
    try:
        chunk = pickle.loads(data)
        return chunk if isinstance(chunk, InvalidRecords) else method(chunk)
    except InvalidRecords as error:
        return error


def _times(worker: Worker) -> pa.RecordBatch:
    return _findings(TIMES, 0, 0, pickle.dumps(worker.times(None)))


def _counted(worker: Worker) -> Batches:
    """What a worker counted: tokens row by row, which Spark adds up, and the rest as it is."""
    counts: Counts | None = worker.counted(None)
    if counts is None:
        return
    for place, tokens in enumerate(counts.tokens):
        same = np.full(len(tokens), TOKEN, np.int8), np.full(len(tokens), place, np.int64)
        columns = [*map(pa.array, same), pa.array(tokens.counts), tokens.tokens]
        yield pa.RecordBatch.from_arrays(columns, schema=FINDINGS)
    rest = replace(counts, tokens=(NO_TOKENS,) * len(counts.tokens))
    yield _findings(STATE, 0, 0, pickle.dumps(rest))


def owned(cuts: Sequence[NDArray[np.int64]], owners: Sequence[NDArray[np.int64]], batches: Batches) -> Batches:
    """Rows of findings with the shard that they belong to.

    Args:
        cuts: of each split, the first key of each shard but the first, rising.
        owners: of each split, what stands for each shard.
    """
    for batch in batches:
        part, key = (batch.column(index).to_numpy() for index in (0, 1))
        places = [own[np.searchsorted(cut, key, side="right")] for cut, own in zip(cuts, owners, strict=True)]
        owner = np.where(part == TRAIN, places[TRAIN], places[VALIDATION])
        yield pa.RecordBatch.from_arrays([pa.array(owner), batch.column(1), batch.column(3)], schema=OWNED)


def write(work: Work, tasks: dict[int, tuple[int, ShardTask]], own_disks: bool, batches: Batches) -> Batches:
    """Rows of one shard in the order of their keys as its file; `tasks` by owner, with their places.

    It is written beside and then renamed, because Spark may do a task twice. With `own_disks` it stays on the disk of the host.
    """
    width = row_words(work.schema.field_size)
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    place, task = tasks[first.column(0)[0].as_py()]

    def rows() -> Iterator[Batch]:
        for batch in chain([first], batches):
            yield to_batch(words_of(batch.column(2), width))

    if own_disks:
        for folder_here in (task.path.parent, work.scratch):
            folder_here.mkdir(parents=True, exist_ok=True)
    if not task.path.parent.is_dir():
        found: Shard | InvalidRecords = InvalidRecords(
            f"{task.path.parent}: not seen by {socket.gethostname()}; choose an output on a disk that all hosts share"
        )
    else:
        with tempfile.TemporaryDirectory(dir=work.scratch) as folder:
            beside = Path(folder) / task.split / task.path.name
            beside.parent.mkdir()
            found = write_stream(beside, rows(), work.encoding)
            os.replace(beside, task.path)
    yield pa.RecordBatch.from_pydict({"task": [place], "data": [pickle.dumps(found)]}, schema=WRITTEN)
