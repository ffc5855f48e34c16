"""Tables whose columns have names, as the engine takes them: chunks of a file, raw rows of a chunk, rows by the transform.

The transform is fitted in a pass of its own over the training rows, unless one that was fitted before is given.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from components.errors import InvalidConfig, InvalidRecords
from components.framing import scan_framed
from components.preprocess.chunks import Chunk, record_chunks, text_chunks
from components.preprocess.columns import Columns
from components.preprocess.conform import conform
from components.preprocess.criteo import CATEGORIES, CRITEO, CriteoParser, has_labels
from components.preprocess.delimited import Delimited, DelimitedParser, end_of_records, read_header
from components.preprocess.named_examples import check_names, parse_named
from components.preprocess.parquet import check_same_schema, parquet_schema, read_batches
from components.preprocess.parsed import Parsed, Reject
from components.preprocess.raw_rows import RawRows, merged
from components.preprocess.transform import Transform, apply
from components.records import Batch

# Features that hold nothing are absent from a record, so that one record does not show all names.
_PEEKED_RECORDS = 1000

TableFormat = Literal["csv", "parquet", "tfrecord", "criteo"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """How the files of a table are read.

    Attributes:
        format: csv, parquet, tfrecord with named features, or raw criteo.
        form: of CSV.
        names: of CSV, the columns in the order of each file, by its index; the other formats name them in each row or file.
        labelled: of criteo, whether a label stands in each row; of the others, `columns` say so.
    """

    columns: Columns
    format: TableFormat
    form: Delimited = field(default_factory=Delimited)
    names: tuple[tuple[str, ...], ...] = ()
    labelled: bool = True

    @property
    def row_word(self) -> str:
        """What the number of a row counts, as messages say it."""
        return {"tfrecord": "record", "parquet": "row"}.get(self.format, "line")

    def chunks(self, path: Path, file_index: int) -> Iterator[Chunk]:
        """Whole records of a file."""
        if self.format == "csv":
            yield from text_chunks(path, file_index, whole=end_of_records)
            return
        if self.format == "tfrecord":
            yield from record_chunks(path, file_index)
            return
        if self.format == "criteo":
            yield from text_chunks(path, file_index)
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
        if self.format == "criteo":
            return CriteoParser(columns=self.columns, labelled=self.labelled).parse(chunk)
        if self.format == "tfrecord":
            return self._named_rows(chunk)
        if self.format == "parquet":
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

    def _named_rows(self, chunk: Chunk) -> RawRows:
        """Records whose payload is damaged are refused like other wrong rows; the ones around them are read."""
        found = list(scan_framed(io.BytesIO(chunk.data), str(chunk.path), chunk.first))
        whole = [(number, payload) for number, payload in enumerate(found, chunk.first) if isinstance(payload, bytes)]
        parts, damaged = (
            [],
            [
                Reject(number=number, reason="damaged", message=str(error))
                for number, error in enumerate(found, chunk.first)
                if not isinstance(error, bytes)
            ],
        )
        for _, run in groupby(enumerate(whole), lambda each: each[1][0] - each[0]):
            records = [record for _, record in run]
            parts.append(parse_named([payload for _, payload in records], records[0][0], self.columns, str(chunk.path)))
        rows = merged(parts, self.columns)
        rejects = sorted([*rows.rejects, *damaged], key=lambda reject: reject.number)
        return RawRows(batch=rows.batch, numbers=rows.numbers, rejects=tuple(rejects))


def open_table(columns: Columns, source_format: str, form: Delimited, files: list[Path]) -> Table:
    """A table of these files, whose columns are all as declared.

    Raises:
        InvalidConfig: what cannot be done with these columns.
        InvalidRecords: a file with other columns, or that is no such table.
    """
    if source_format == "criteo":
        if (columns.numeric, columns.categorical, columns.multi_valued) != (CRITEO.numeric, CRITEO.categorical, ()):
            raise InvalidConfig("format criteo: rows are wanted of other columns than raw Criteo has (I1..I13, C1..C26)")
        if columns.split not in (None, *CRITEO.categorical):
            raise InvalidConfig(f"split {columns.split!r}: rows of criteo are divided by one of {CATEGORIES} columns, C1, C2 ...")
        table = Table(columns=columns, format="criteo")
        # Rows to train on must have a label; rows to score may.
        first = None if columns.label is not None else next(table.chunks(files[0], 0), None)
        return table if first is None else replace(table, labelled=has_labels(first.data))
    if source_format == "tfrecord":
        for path in files:
            check_names(_first_records(path), columns, str(path))
        return Table(columns=columns, format="tfrecord")
    if source_format == "parquet":
        first = parquet_schema(files[0])
        for path in files:
            check_same_schema(first, files[0], path, columns)
        return Table(columns=columns, format="parquet")
    names = []
    for path in files:
        found, _ = read_header(_opening(path), form, str(path))
        try:
            columns.check_header(found, str(path))
        except InvalidRecords as error:
            if form.names or set(found) & set(columns.read):
                raise
            raise InvalidRecords(f"{error}; if the first line is a row, name its columns with --names") from None
        names.append(found)
    return Table(columns=columns, format="csv", form=form, names=tuple(names))


def _first_records(path: Path) -> list[bytes]:
    """Payloads of the first records that are whole; a damaged one is refused, or skipped, where it is parsed."""
    with path.open("rb") as file:
        found = list(islice(scan_framed(file, str(path)), _PEEKED_RECORDS))
    payloads = [each for each in found if isinstance(each, bytes)]
    for damage in found if not payloads else ():
        if isinstance(damage, InvalidRecords):
            raise damage
    return payloads


def _opening(path: Path) -> bytes:
    """The first records of a text file, as far as they can be read; damage after them is named where they are parsed."""
    first = next(text_chunks(path, whole=end_of_records), None)
    return first.data if first else b""


def transformed(transform: Transform, raw: RawRows) -> Parsed:
    """Rows as ids and values."""
    applied = apply(transform, raw.batch)
    return Parsed(
        batch=applied.rows,
        numbers=raw.numbers,
        rejects=raw.rejects,
        missing=int(applied.missing.sum()),
        completed=raw.completed,
        unseen=int(applied.unseen.sum()),
        hashes=applied.hashes,
        by_column=np.stack([applied.missing, applied.unseen]),
    )


def untransformed(raw: RawRows, field_size: int) -> Parsed:
    """What the pass that fits the transform hears of a chunk: its rejects alone."""
    none = Batch(
        labels=np.empty(0, np.float32), ids=np.empty((0, field_size), np.int64), values=np.empty((0, field_size), np.float32)
    )
    return Parsed(
        batch=none,
        numbers=np.empty(0, np.int64),
        rejects=raw.rejects,
    )
