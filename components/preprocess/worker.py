"""What one process does: chunks into buckets, then buckets into shards."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from components.manifest import SplitName
from components.preprocess.chunks import Chunk
from components.preprocess.fitting import Counting, Counts, Fitting
from components.preprocess.keys import below, row_keys
from components.preprocess.libffm import FieldLayout
from components.preprocess.libffm import parse_chunk as parse_libffm
from components.preprocess.libsvm import parse_libsvm
from components.preprocess.parsed import Parsed, Parser, Reject
from components.preprocess.repeats import HashFiles
from components.preprocess.spill import SpillReader, SpillWriter
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
    """

    seed: int
    validation_fraction: float
    encoding: Encoding
    scratch: Path
    bits: int
    limit_rows: int
    fitting: Fitting | None = None

    def reader(self) -> SpillReader:
        return SpillReader(folder=self.scratch, bits=self.bits, field_size=self.schema.field_size, limit_rows=self.limit_rows)


@dataclass(frozen=True, kw_only=True)
class ChunkResult:
    """What the main process hears of a chunk. `first_reject` is its sentence."""

    file_index: int
    rows: int
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


def _told(chunk: Chunk, rows: int, parsed: Parsed) -> ChunkResult:
    first: Reject | None = next(iter(parsed.rejects), None)
    return ChunkResult(
        file_index=chunk.file_index,
        rows=rows,
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


@dataclass(kw_only=True)
class Worker:
    """Parses chunks into buckets, then writes shards from buckets."""

    work: Work
    number: int
    _parser: Parser = field(init=False)
    _spill: SpillWriter = field(init=False)
    _tally: Tally = field(init=False)
    _counting: Counting | None = field(init=False)

    def __post_init__(self) -> None:
        self.take(self.work)

    def take(self, work: Work) -> None:
        """Begin anew with other work: to start another process takes as long as to read 50,000 rows."""
        self.work, self._counting = work, None
        self._parser = parser_of(self.work)
        self._spill = SpillWriter(folder=self.work.scratch, bits=self.work.bits, writer=self.number)
        self._tally = Tally(field_size=self.work.schema.field_size)

    def parse(self, chunk: Chunk) -> ChunkResult:
        """Rows of a chunk into their buckets."""
        parsed = self._parser(chunk)
        keys = row_keys(self.work.seed, chunk.file_index, parsed.numbers)
        self._spill.add(keys, below(keys, self.work.validation_fraction), parsed.batch)
        self._tally.add(parsed)
        return _told(chunk, len(parsed.batch), parsed)

    def count(self, chunk: Chunk) -> ChunkResult:
        """What the training rows of a chunk hold, for the transform that is to be fitted."""
        table, fitting = self.work.table, self.work.fitting
        assert table is not None
        assert fitting is not None
        raw = table.raw_rows(chunk)
        keys = row_keys(self.work.seed, chunk.file_index, raw.numbers)
        training = ~below(keys, self.work.validation_fraction)
        self._counting = self._counting or Counting(fitting=fitting)
        self._counting.add(fitting.count(raw.batch.filter(pa.array(training)), keys[training]))
        return _told(chunk, len(raw.numbers), untransformed(raw, self.work.schema.field_size))

    def counted(self, _: None) -> Counts | None:
        """What this worker counted; None where it had no chunk."""
        return self._counting.total() if self._counting else None

    def finish(self, _: None) -> tuple[Tally, NDArray[np.int64]]:
        """What this worker counted, when all chunks are parsed: rows, and rows by split and bucket."""
        self._spill.close()
        return self._tally, self._spill.counts

    def write(self, task: ShardTask) -> Shard:
        """One shard; the hashes of its rows go to scratch, by their first bits, for the search for repeats."""
        work = self.work
        reader = work.reader()
        with HashFiles(work.scratch, task.split, task.path.name, work.bits) as hashes:

            def batches() -> Iterator[Batch]:
                for batch in reader.rows(task.split, task.counts, task.start, task.stop):
                    hashes.add(batch)
                    yield batch

            return write_stream(task.path, batches(), work.encoding)
