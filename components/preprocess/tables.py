"""Tables whose columns have names, as the engine takes them: chunks of a file, raw rows of a chunk, rows by the transform.

The transform is fitted in a pass of its own over the training rows, unless one that was fitted before is given.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.chunks import GZIP_MAGIC, Chunk, text_chunks
from components.preprocess.columns import Columns
from components.preprocess.conform import conform
from components.preprocess.delimited import Delimited, DelimitedParser, end_of_records, read_header
from components.preprocess.parquet import check_same_schema, parquet_schema, read_batches
from components.preprocess.parsed import Parsed, Reject
from components.preprocess.raw_rows import RawRows
from components.preprocess.transform import Transform, apply
from components.records import Batch

# A header is one record; no table has a longer one.
_HEADER_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Table:
    """How the files of a table are read.

    Attributes:
        form: of CSV; None for Parquet.
        names: the columns in the order of each file, by its index; empty for Parquet, whose files say so themselves.
    """

    columns: Columns
    form: Delimited | None
    names: tuple[tuple[str, ...], ...] = ()

    def chunks(self, path: Path, file_index: int) -> Iterator[Chunk]:
        """Whole records of a file."""
        if self.form is not None:
            yield from text_chunks(path, file_index, whole=end_of_records)
            return
        size = path.stat().st_size
        for first, batch in read_batches(path, self.columns):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            data = sink.getvalue().to_pybytes()
            yield Chunk(path=path, file_index=file_index, first=first, data=data, offset=size, ends=np.empty(0, np.int64))

    def raw_rows(self, chunk: Chunk) -> RawRows:
        """Rows of a chunk before they are transformed."""
        if self.form is None:
            with pa.ipc.open_stream(chunk.data) as stream:
                batch = stream.read_next_batch()
            return conform(batch, chunk.first, self.columns, f"{chunk.path}, row ")
        parser = DelimitedParser(
            path=chunk.path, names=self.names[chunk.file_index], separator=self.form.separator, columns=self.columns
        )
        data, first = chunk.data, chunk.first
        if first == 1:
            _, header = read_header(data, self.form, str(chunk.path))
            data, first = data[len(header) :], first + header.count(b"\n")
        return parser.parse(data, first)


def open_table(columns: Columns, form: Delimited | None, files: list[Path]) -> Table:
    """A table of these files, whose columns are all as declared.

    Raises:
        InvalidConfig: what cannot be done with these columns.
        InvalidRecords: a file with other columns, or that is no such table.
    """
    if columns.split is not None:
        raise InvalidConfig(
            f"columns: split {columns.split!r}: rows are divided by --validation-fraction only so far; leave it out"
        )
    if form is None:
        first = parquet_schema(files[0])
        for path in files:
            check_same_schema(first, files[0], path, columns)
        return Table(columns=columns, form=None)
    names = []
    for path in files:
        found, _ = read_header(_opening(path), form, str(path))
        columns.check_header(found, str(path))
        names.append(found)
    return Table(columns=columns, form=form, names=tuple(names))


def _opening(path: Path) -> bytes:
    """The beginning of a text file, as `text_chunks` would give it."""
    with path.open("rb") as raw:
        compressed = raw.read(2) == GZIP_MAGIC
    try:
        with gzip.open(path) if compressed else path.open("rb") as file:
            return file.read(_HEADER_BYTES)
    except EOFError as error:
        raise InvalidRecords(f"{path}: compressed file ended early after line 0; send it again") from error


def transformed(transform: Transform, raw: RawRows) -> Parsed:
    """Rows as ids and values."""
    applied = apply(transform, raw.batch)
    return Parsed(
        batch=applied.rows,
        numbers=raw.numbers,
        rejects=tuple(Reject(each.number, each.reason, each.message) for each in raw.rejects),
        missing=int(applied.missing.sum()),
        unseen=int(applied.unseen.sum()),
    )


def untransformed(raw: RawRows, field_size: int) -> Parsed:
    """What the pass that fits the transform hears of a chunk: its rejects alone."""
    none = Batch(
        labels=np.empty(0, np.float32), ids=np.empty((0, field_size), np.int64), values=np.empty((0, field_size), np.float32)
    )
    return Parsed(
        batch=none,
        numbers=np.empty(0, np.int64),
        rejects=tuple(Reject(each.number, each.reason, each.message) for each in raw.rejects),
    )
