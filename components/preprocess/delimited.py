"""CSV and its relatives: cells between commas, tabs or semicolons, quoted where RFC 4180 says so.

A cell that begins with a quote ends with one; it may hold separators and line ends, and quotes doubled. A quote anywhere else is
refused, because tools disagree on what it means, and because records are found by counting quotes. Line ends are LF or
CRLF, also in quoted cells, where CRLF is read as LF; blank lines are no rows. Text is UTF-8. An empty cell is missing, quoted or
not, and so is one that `Columns.missing` names; "NA" is Namibia unless it stands there.

Rows go through pyarrow many at a time. Where it refuses some, they are halved until the wrong one is found, and that is read cell
by cell by the code below, which knows what to say. Both read the same rows alike; tests hold them against each other.
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.chunks import BYTE_ORDER_MARK
from components.preprocess.columns import Columns
from components.preprocess.kinds import looks_like, shown
from components.preprocess.parsed import LABELS, Reject
from components.preprocess.quoting import FEED, Refused, cells_of, quotes_are_legal, record_ends
from components.preprocess.raw_rows import (
    LARGEST_FLOAT32,
    RawRows,
    labels_of,
    merged,
    no_labels,
    raw_schema,
    rows_from_cells,
    whole_part,
    whole_parts,
    without_empty,
)

Separator = Literal[",", "\t", ";"]
SEPARATORS: tuple[Separator, ...] = get_args(Separator)
_BLANK_LINES = re.compile(rb"( *\r?\n)*")
_NUMBER = re.compile(rb"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")
# Where so few rows are left, one of which is wrong, halving them again costs more than reading them.
_FEW_ROWS = 32


@dataclass(frozen=True, kw_only=True)
class Delimited:
    """How a table is written: what stands between cells, and the names of its columns where the file has no header."""

    separator: Separator = ","
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.separator not in SEPARATORS:
            raise InvalidConfig(f"separator {self.separator!r} is none of {', '.join(map(repr, SEPARATORS))}")


def end_of_records(data: bytes) -> int:
    """How many bytes of `data`, which begins at the start of a record, are whole records with their line ends."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    ends = record_ends(np.frombuffer(data, np.uint8))
    return int(ends[-1]) + 1 if len(ends) else 0


def read_header(data: bytes, form: Delimited, place: str) -> tuple[tuple[str, ...], bytes]:
    """Names of the columns, and what stands before the first row: the record that holds them with its line end, and before it byte
    order mark and blank lines; the mark alone if names are declared.

    Args:
        data: the beginning of a file with at least its first record.
    Raises:
        InvalidRecords: the first record is no header, or there is none.
    """
    mark = len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK) else 0
    if form.names:
        return form.names, data[:mark]
    blank = _BLANK_LINES.match(data, mark)
    start = blank.end() if blank else mark
    line = 1 + data.count(b"\n", 0, start)
    ends = record_ends(np.frombuffer(data[start:], np.uint8))
    length = start + int(ends[0]) + 1 if len(ends) else len(data)
    record = data[start:length].removesuffix(b"\n").removesuffix(b"\r").replace(b"\r\n", b"\n")
    if not record.strip(b" "):
        raise InvalidRecords(f"{place}: no rows in it; remove the file or send it again")
    try:
        cells = [cell.decode() for cell in cells_of(record, form.separator.encode())]
    except UnicodeDecodeError as error:
        raise InvalidRecords(f"{place}, line {line}: the header is not UTF-8 ({shown(record)}); convert the file") from error
    except Refused as error:
        raise InvalidRecords(f"{place}, line {line}: {error.sentence}") from error
    others = [other for other in SEPARATORS if other != form.separator and len(cells) == 1 and other in cells[0]]
    if others:
        raise InvalidRecords(f"{place}, line {line}: one column in {shown(record)}; is the separator {others[0]!r}?")
    if len(cells) == 1 and (kind := looks_like(record, but_not="CSV")):
        raise InvalidRecords(f"{place}, line {line}: one column in {shown(record)}{kind}")
    return tuple(cells), data[:length]


@dataclass(frozen=True, kw_only=True)
class DelimitedParser:
    """Turns the text of one file into rows, chunk by chunk. `names` are the columns in the order of the file.

    Raises, when it is made:
        InvalidRecords: the columns are not as declared.
    """

    path: Path
    names: tuple[str, ...]
    separator: Separator
    columns: Columns

    def __post_init__(self) -> None:
        self.columns.check_header(self.names, str(self.path))

    def parse(self, data: bytes, first: int) -> RawRows:
        """Rows of whole records, without header; `first` is the number of the first line."""
        text = data.replace(b"\r\n", b"\n").removesuffix(b"\r") if b"\r" in data else data
        octets = np.frombuffer(text, np.uint8)
        feeds = np.flatnonzero(octets == FEED)
        ends = record_ends(octets, feeds)
        if text and (not len(ends) or ends[-1] < len(text) - 1):
            ends = np.append(ends, len(text))
        starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)[: len(ends)]
        numbers = first + np.searchsorted(feeds, starts)
        filled = ends > starts
        records = _Records(text=text, starts=starts[filled], ends=ends[filled], numbers=numbers[filled])
        return merged(self._parse(records), self.columns)

    def _parse(self, records: "_Records") -> list[RawRows]:
        if not len(records.starts):
            return []
        if (batch := self._many(records.whole(), len(records.starts))) is not None:
            return [RawRows(batch=batch, numbers=records.numbers)]
        if len(records.starts) <= _FEW_ROWS:
            return [self._one_by_one(records)]
        middle = len(records.starts) // 2
        return self._parse(records.part(slice(0, middle))) + self._parse(records.part(slice(middle, None)))

    def _many(self, text: bytes, rows: int) -> pa.RecordBatch | None:
        """All rows at once; None when anything is unusual."""
        if (
            b"\r" in text
            or b"\0" in text
            or text.startswith(BYTE_ORDER_MARK)
            or not quotes_are_legal(text, self.separator.encode())
        ):
            return None
        schema = raw_schema(self.columns)
        label = self.columns.label
        numeric = {label, *self.columns.numeric}
        wanted = [str(self.names.index(name)) for name in self.columns.read]
        types = [pa.float64() if name in numeric else pa.string() for name in self.columns.read]
        try:
            table = pyarrow.csv.read_csv(
                io.BytesIO(text),
                # Names of ours, because those of the file may be empty.
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=len(text) + 1, column_names=[str(index) for index in range(len(self.names))]
                ),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self.separator, newlines_in_values=b'"' in text),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict(zip(wanted, types, strict=True)),
                    null_values=["", *self.columns.missing],
                    strings_can_be_null=True,
                ),
            ).combine_chunks()
        except pa.ArrowInvalid:
            return None
        if len(table) != rows:
            return None
        arrays = {name: table.column(place).chunk(0) for place, name in enumerate(self.columns.read)}
        labels = no_labels(rows) if label is None else labels_of(arrays[label].to_numpy(zero_copy_only=False))
        lists = [self._lists(arrays[column.name], column.separator, column.values) for column in self.columns.multi_valued]
        in_range = (_in_range(arrays[name]) for name in self.columns.numeric)
        if (label is not None and np.isnan(labels).any()) or any(array is None for array in lists) or not all(in_range):
            return None
        plain = [arrays[name] for name in (*self.columns.numeric, *self.columns.categorical)]
        split = [] if self.columns.split is None else [arrays[self.columns.split]]
        if self.columns.split in self.columns.numeric:
            split = [whole_parts(split[0])]
        return pa.RecordBatch.from_arrays([pa.array(labels), *plain, *lists, *split], schema=schema)

    def _lists(self, texts: pa.Array, separator: str, values: int) -> pa.Array | None:
        lists = without_empty(pc.split_pattern(texts, separator))
        longest = pc.max(pc.list_value_length(lists)).as_py() or 0
        return lists if longest <= values else None

    def _one_by_one(self, records: "_Records") -> RawRows:
        rows: list[list[object]] = []
        numbers: list[int] = []
        rejects: list[Reject] = []
        for number, record in records.numbered():
            try:
                if record.strip(b" "):
                    rows.append(self._row(record))
                    numbers.append(number)
            except Refused as error:
                message = f"{self.path}, line {number}: {error.sentence}"
                rejects.append(Reject(number=number, reason=error.reason, message=message))
        cells = list(zip(*rows, strict=True)) or [()] * len(raw_schema(self.columns))
        return RawRows(batch=rows_from_cells(cells, self.columns), numbers=np.array(numbers, np.int64), rejects=tuple(rejects))

    def _row(self, record: bytes) -> list[object]:
        """The cells of one record in the order of a batch; every failing reason is named."""
        cells = cells_of(record, self.separator.encode())
        if len(cells) != len(self.names):
            kind = looks_like(record, but_not="CSV" if self.separator == "," else "raw Criteo")
            raise Refused("columns", f"{len(self.names)} columns expected, {len(cells)} found{kind}")
        by_name = dict(zip(self.names, cells, strict=True))
        columns = self.columns
        row: list[object] = [np.nan if columns.label is None else self._label(by_name[columns.label])]
        row += [self._number(name, by_name[name]) for name in columns.numeric]
        row += [self._text(name, by_name[name]) for name in columns.categorical]
        for column in columns.multi_valued:
            text = self._text(column.name, by_name[column.name])
            values = [value for value in (text or "").split(column.separator) if value]
            if len(values) > column.values:
                found = f"column {column.name}: {len(values)} values in {shown(by_name[column.name])}"
                raise Refused("values", f"{found}, at most {column.values} are declared")
            row.append(values or None)
        if columns.split in columns.numeric:
            return [*row, whole_part(self._number(columns.split, by_name[columns.split]))]
        return row if columns.split is None else [*row, self._text(columns.split, by_name[columns.split])]

    def _label(self, cell: bytes) -> float:
        if self._is_missing(cell):
            raise Refused("missing label", f"column {self.columns.label}: the label is missing")
        label = LABELS.get(float(cell)) if _NUMBER.fullmatch(cell) else None
        if label is None:
            raise Refused("label", f"column {self.columns.label}: label {shown(cell)} is none of 0, 1, -1, +1")
        return label

    def _number(self, name: str, cell: bytes) -> float | None:
        if self._is_missing(cell):
            return None
        if not _NUMBER.fullmatch(cell):
            raise Refused("number", f"column {name}: {shown(cell)} is not a number")
        if abs(value := float(cell)) > LARGEST_FLOAT32:
            raise Refused("number", f"column {name}: {shown(cell)} is not finite as float32")
        return value

    def _text(self, name: str, cell: bytes) -> str | None:
        try:
            return None if self._is_missing(cell) else cell.decode()
        except UnicodeDecodeError:
            raise Refused("encoding", f"column {name}: {shown(cell)} is not UTF-8; convert the file") from None

    def _is_missing(self, cell: bytes) -> bool:
        return not cell or cell.decode(errors="surrogateescape") in self.columns.missing


@dataclass(frozen=True, kw_only=True)
class _Records:
    """Records that follow one another: where in the text each starts and ends, and the number of its first line."""

    text: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]

    def part(self, chosen: slice) -> "_Records":
        return _Records(text=self.text, starts=self.starts[chosen], ends=self.ends[chosen], numbers=self.numbers[chosen])

    def whole(self) -> bytes:
        return self.text[self.starts[0] : self.ends[-1]]

    def numbered(self) -> list[tuple[int, bytes]]:
        places = zip(self.numbers.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)
        return [(number, self.text[start:end]) for number, start, end in places]


def _in_range(numbers: pa.Array) -> bool:
    found = numbers.to_numpy(zero_copy_only=False)[numbers.is_valid().to_numpy(zero_copy_only=False)]
    return bool((np.abs(found) <= LARGEST_FLOAT32).all())
