"""What one process does: chunks into buckets, then buckets into shards."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from components.manifest import SplitName
from components.preprocess.chunks import Chunk
from components.preprocess.dividing import Divided, Division, range_of, timed
from components.preprocess.fitting import Counting, Counts, Fitting
from components.preprocess.keys import Keys, row_keys
from components.preprocess.libffm import FieldLayout
from components.preprocess.libffm import parse_chunk as parse_libffm
from components.preprocess.libsvm import parse_libsvm
from components.preprocess.parsed import Parsed, Parser, Reject
from components.preprocess.raw_rows import RawRows
from components.preprocess.repeats import HashFiles
from components.preprocess.spill import SpillReader, SpillWriter
from components.preprocess.splits import SplitConfig, TimeRange, whole_range
from components.preprocess.tables import Table, transformed, untransformed
from components.preprocess.tally import Tally
from components.preprocess.tfrecord import parse_tfrecord
from components.preprocess.transform import Transform
from components.records import Batch, Encoding, Schema, Shard, write_stream

Format = Literal["criteo", "libsvm", "tfrecord", "csv", "parquet", "libffm"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """All that a parser needs to know.

    Attributes:
        skip: whether parsing goes on after a wrong row. layout: of libffm.
        table, transform: of formats whose columns have names.
    """

    format: Format
    schema: Schema
    skip: bool
    layout: FieldLayout | None = None
    table: Table | None = None
    transform: Transform | None = None


@dataclass(frozen=True, kw_only=True)
class Work(Reading):
    """All that a worker needs to know.

    Attributes:
        bits: 2^bits buckets of keys. limit_rows: that it may sort at once.
        fitting: counts rows for a transform that is not known yet.
        boundary: the second from which on rows validate, where times divide them and it is known.
    """

    seed: int
    validation_fraction: float
    encoding: Encoding
    scratch: Path
    bits: int
    limit_rows: int
    fitting: Fitting | None = None
    split: SplitConfig = field(default_factory=SplitConfig)
    boundary: int | None = None
    negative_rate: float = 1.0

    @property
    def division(self) -> Division:
        return Division(
            split=self.split,
            fraction=self.validation_fraction,
            seed=self.seed,
            negative_rate=self.negative_rate,
            boundary=self.boundary,
        )

    def reader(self) -> SpillReader:
        return SpillReader(folder=self.scratch, bits=self.bits, field_size=self.schema.field_size, limit_rows=self.limit_rows)


@dataclass(frozen=True, kw_only=True)
class ChunkResult:
    """What the main process hears of a chunk. `rows` does not count the negative ones that were left out, nor rejected ones.

    `first_reject` is the sentence of the first of these.
    """

    file_index: int
    rows: int
    left_out: int
    offset: int
    first_reject: str
    rejected: Counter[str]
    fatal: str


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """Rows start..stop of a split, in the order of keys, as one file; `counts` of the split's buckets."""

    path: Path
    split: SplitName
    start: int
    stop: int
    counts: list[int]


def _told(chunk: Chunk, rows: int, parsed: Parsed, left_out: int = 0) -> ChunkResult:
    first: Reject | None = next(iter(parsed.rejects), None)
    return ChunkResult(
        file_index=chunk.file_index,
        rows=rows,
        left_out=left_out,
        offset=chunk.offset,
        first_reject=first.message if first else "",
        rejected=Counter(reject.reason for reject in parsed.rejects),
        fatal=parsed.fatal,
    )


def parser_of(reading: Reading) -> Parser:
    """The function that makes rows of chunks: the one place that knows the formats."""
    if reading.table and reading.transform:
        table, transform = reading.table, reading.transform
        return lambda chunk: transformed(transform, table.raw_rows(chunk))
    if reading.layout:
        return partial(parse_libffm, layout=reading.layout, schema=reading.schema)
    return partial(parse_libsvm if reading.format == "libsvm" else parse_tfrecord, schema=reading.schema, skip=reading.skip)


class Sink(Protocol):
    """Where the rows of a worker go: buckets on scratch disk (spill.py), or what Spark takes (spark/batches.py)."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows by split and bucket."""

    def add(self, keys: Keys, validates: NDArray[np.bool_], batch: Batch) -> None: ...
    def close(self) -> None: ...


@dataclass(kw_only=True)
class Worker:
    """Parses chunks into buckets, then writes shards from buckets."""

    work: Work
    number: int
    sink: Sink | None = None
    _parser: Parser = field(init=False)
    _spill: Sink = field(init=False)
    _tally: Tally = field(init=False)
    _counting: Counting | None = field(init=False)
    _times: TimeRange | None = field(init=False)

    def __post_init__(self) -> None:
        self.take(self.work)

    def take(self, work: Work) -> None:
        """Begin anew with other work: to start another process takes as long as to read 50,000 rows."""
        self.work, self._counting, self._times = work, None, None
        self._parser = parser_of(self.work)
        self._spill = self.sink or SpillWriter(folder=self.work.scratch, bits=self.work.bits, writer=self.number)
        self._tally = Tally(field_size=self.work.schema.field_size, feature_size=self.work.schema.feature_size)

    def parse(self, chunk: Chunk) -> ChunkResult:
        """Rows of a chunk into their buckets."""
        if self.work.transform:
            # Before the transform, so that it does not work for rows that nobody reads.
            raw, divided = self._divided(chunk)
            parsed = transformed(self.work.transform, raw)
        else:
            every = self._parser(chunk)
            divided = self.work.division.rows(self._keys(chunk, every.numbers), every.batch.labels)
            parsed = every.only(divided.stays)
        self._spill.add(divided.keys, divided.validates, parsed.batch)
        self._tally.add(parsed)
        return _told(chunk, len(parsed.batch), parsed, divided.left_out)

    def count(self, chunk: Chunk) -> ChunkResult:
        """What the training rows of a chunk hold, for the transform that is to be fitted."""
        fitting = self.work.fitting
        assert fitting is not None
        raw, divided = self._divided(chunk)
        training = ~divided.validates
        self._counting = self._counting or Counting(fitting=fitting)
        self._counting.add(fitting.count(raw.batch.filter(pa.array(training)), divided.keys[training]))
        return _told(chunk, len(raw.numbers), untransformed(raw, self.work.schema.field_size), divided.left_out)

    def time(self, chunk: Chunk) -> ChunkResult:
        """When the rows of a chunk are, for a boundary that is to be found."""
        raw, _ = self._raw_rows(chunk)
        return _told(chunk, len(raw.numbers), untransformed(raw, self.work.schema.field_size))

    def times(self, _: None) -> TimeRange | None:
        """When the rows were that this worker has read; None where it had none, or times do not divide them."""
        return self._times

    def _keys(self, chunk: Chunk, numbers: NDArray[np.int64]) -> Keys:
        return row_keys(self.work.seed, chunk.file_index, numbers)

    def _raw_rows(self, chunk: Chunk) -> tuple[RawRows, NDArray[np.int64]]:
        """Rows of a table, and their times where these divide them."""
        table, split = self.work.table, self.work.split
        assert table is not None
        raw = table.raw_rows(chunk)
        if split.by != "time":
            return raw, np.empty(0, np.int64)
        raw, seconds = timed(raw, split.column, f"{chunk.path}, {table.row_word} ")
        self._times = whole_range([self._times, range_of(seconds)])
        return raw, seconds

    def _divided(self, chunk: Chunk) -> tuple[RawRows, Divided]:
        """Rows of a table that stay."""
        raw, seconds = self._raw_rows(chunk)
        divided = self.work.division.table(raw, self._keys(chunk, raw.numbers), seconds)
        return raw.only(divided.stays), divided

    def counted(self, _: None) -> Counts | None:
        """What this worker counted; None where it had no chunk."""
        return self._counting.total() if self._counting else None

    def tokens(self, _: None) -> int:
        """How many this worker holds of what it counted."""
        return self._counting.tokens if self._counting else 0

    def finish(self, _: None) -> tuple[Tally, NDArray[np.int64]]:
        """What this worker counted, when all chunks are parsed: rows, and rows by split and bucket."""
        self._spill.close()
        return self._tally, self._spill.counts

    def write(self, tasks: Sequence[ShardTask]) -> list[Shard]:
        """Neighbouring shards of a split; hashes of their rows go to scratch, by their first bits, for the search for repeats."""
        work, first, last = self.work, tasks[0], tasks[-1]
        stretch = work.reader().stretch(first.split, first.counts, first.start, last.stop)
        with HashFiles(work.scratch, first.split, first.path.name, work.bits) as hashes:

            def batches(task: ShardTask) -> Iterator[Batch]:
                for batch in stretch.next_rows(task.stop - task.start):
                    hashes.add(batch)
                    yield batch

            return [write_stream(task.path, batches(task), work.encoding) for task in tasks]
