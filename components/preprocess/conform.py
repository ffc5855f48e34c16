"""Arrow columns of any source (Parquet, records with named features, a Spark partition) into raw rows of the declared roles.

Types are checked once a file, because they concern all of its rows; then cells are, row by row. Null is missing; NaN is not, and is
refused, because nobody can tell what it was meant to say.

    label          whole or floating numbers 0/1 or -1/+1, booleans
    numeric        whole or floating numbers, decimals, booleans
    categorical    strings, bytes in UTF-8, whole numbers (their digits), booleans (true, false)
    multi-valued   lists of these, or one string with the declared separator
    split          what a category may be, dates and timestamps (ISO 8601, UTC), or a numeric column
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.preprocess.columns import Columns, MultiValued
from components.preprocess.kinds import shown
from components.preprocess.parsed import Reason, Reject
from components.preprocess.raw_rows import LARGEST_FLOAT32, RawRows, labels_of, no_labels, raw_schema, whole_parts, without_empty


def check_types(found: pa.Schema, columns: Columns, place: str) -> None:
    """Refuse columns whose type cannot be what was declared, before any row is read.

    Raises:
        InvalidRecords: naming the column, its type and the role.
    """
    columns.check_header(found.names, place)
    lists = {column.name for column in columns.multi_valued}
    for name in columns.read:
        type_ = _plain(found.field(name).type)
        if name == columns.label:
            role, fits, wanted = "the label", _is_number(type_), "a number or boolean"
        elif name in columns.numeric:
            role, fits, wanted = "numeric", _is_number(type_) or pa.types.is_decimal(type_), "a number or boolean"
        elif name in lists:
            entries = _plain(type_.value_type) if _is_list(type_) else type_
            fits = _is_text(entries) or (_is_list(type_) and _is_token(entries))
            role, wanted = "multi_valued", "a list of strings or whole numbers, or one string"
        elif name in columns.categorical:
            role, fits, wanted = "categorical", _is_token(type_), "a string, whole number or boolean"
        else:
            role, wanted = "the split column", "a string, whole number, date or timestamp"
            fits = _is_token(type_) or pa.types.is_date(type_) or pa.types.is_timestamp(type_)
        if not (fits or (pa.types.is_null(type_) and name != columns.label)):
            raise InvalidRecords(f"{place}: column {name!r} is {type_}, {role} needs {wanted}; cast it, or declare another role")


def conform(batch: pa.RecordBatch, first: int, columns: Columns, place: str) -> RawRows:
    """Raw rows of a batch whose types were checked; `first` is the number of its first row, `place` ends before it ("f, row ")."""
    wrong = _Wrong(batch.num_rows)
    label = columns.label
    arrays = [pa.array(no_labels(batch.num_rows)) if label is None else _label(batch.column(label), label, wrong)]
    arrays += [_number(batch.column(name), name, wrong) for name in columns.numeric]
    arrays += [_text(batch.column(name), name, wrong) for name in columns.categorical]
    arrays += [_list(batch.column(column.name), column, wrong) for column in columns.multi_valued]
    if columns.split in columns.numeric:
        arrays.append(whole_parts(arrays[1 + columns.numeric.index(columns.split)]))
    elif columns.split is not None:
        arrays.append(_text(batch.column(columns.split), columns.split, wrong))
    rows = pa.RecordBatch.from_arrays(arrays, schema=raw_schema(columns))
    numbers = np.arange(first, first + batch.num_rows)
    rejects = tuple(
        Reject(number=first + row, reason=reason, message=f"{place}{first + row}: {sentence}")
        for row, (reason, sentence) in sorted(wrong.reasons.items())
    )
    if rejects:
        good = ~np.isin(np.arange(batch.num_rows), list(wrong.reasons))
        rows, numbers = rows.filter(pa.array(good)), numbers[good]
    return RawRows(batch=rows, numbers=numbers, rejects=rejects)


class _Wrong:
    """The first reason against each row, column by column."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.reasons: dict[int, tuple[Reason, str]] = {}

    def note(self, wrong: NDArray[np.bool_], reason: Reason, sentence: Callable[[int], str]) -> None:
        for row in np.flatnonzero(wrong).tolist():
            self.reasons.setdefault(row, (reason, sentence(row)))


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_))


def _is_text(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(kind(type_) for kind in kinds)


def _is_token(type_: pa.DataType) -> bool:
    return bool(_is_text(type_) or pa.types.is_integer(type_) or pa.types.is_boolean(type_))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _floats(column: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers, and which of them are there."""
    column = _decoded(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    # A whole number beyond 2^53 is rounded, as it is in every other format.
    floats = column.cast(pa.float64(), safe=False)
    return floats.to_numpy(zero_copy_only=False), column.is_valid().to_numpy(zero_copy_only=False)


def _label(column: pa.Array, name: str, wrong: _Wrong) -> pa.Array:
    numbers, there = _floats(column)
    labels = labels_of(numbers)
    wrong.note(~there, "missing label", lambda row: f"column {name}: the label is missing")
    wrong.note(np.isnan(labels) & there, "label", lambda row: f"column {name}: label {numbers[row]:g} is none of 0, 1, -1, +1")
    return pa.array(np.nan_to_num(labels))


def _number(column: pa.Array, name: str, wrong: _Wrong) -> pa.Array:
    numbers, there = _floats(column)
    with np.errstate(invalid="ignore"):
        fits = np.abs(numbers) <= LARGEST_FLOAT32
    unknown = there & np.isnan(numbers)
    wrong.note(unknown, "number", lambda row: f"column {name}: NaN is not a number; write null where it is missing")
    wrong.note(there & ~fits & ~unknown, "number", lambda row: f"column {name}: {numbers[row]:g} is not finite as float32")
    return pa.array(np.where(there & fits, numbers, 0.0), mask=~there)


def _text(column: pa.Array, name: str, wrong: _Wrong) -> pa.Array:
    """Strings; an empty one is missing, as an empty cell of CSV is."""
    texts, broken = _strings(_decoded(column))
    if len(broken):
        rows = np.isin(np.arange(wrong.rows), list(broken))
        wrong.note(rows, "encoding", lambda row: f"column {name}: {shown(broken[row])} is not UTF-8; convert it")
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _strings(column: pa.Array) -> tuple[pa.Array, dict[int, bytes]]:
    """Cells as text, and those that are none, by their place (missing in the array)."""
    if pa.types.is_timestamp(column.type) and column.type.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC")).cast(pa.timestamp(column.type.unit))
    try:
        return column.cast(pa.string()), {}
    except pa.ArrowInvalid:
        cells = column.cast(pa.binary()).to_pylist()
    broken = {place: cell for place, cell in enumerate(cells) if cell is not None and not _is_utf8(cell)}
    return pa.array([None if place in broken else cell for place, cell in enumerate(cells)], pa.binary()).cast(pa.string()), broken


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True


def _list(column: pa.Array, declared: MultiValued, wrong: _Wrong) -> pa.Array:
    column = _decoded(column)
    if not _is_list(column.type):
        lists = pc.split_pattern(_text(column, declared.name, wrong), declared.separator)
    else:
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        entries, broken = _strings(_decoded(pc.list_flatten(column)))
        owner = np.repeat(np.arange(len(lengths)), lengths)
        for place, cell in broken.items():
            sentence = f"column {declared.name}: {shown(cell)} is not UTF-8; convert it"
            wrong.reasons.setdefault(int(owner[place]), ("encoding", sentence))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), entries)
    lists = without_empty(lists)
    found = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    too_many = found > declared.values
    wrong.note(
        too_many, "values", lambda row: f"column {declared.name}: {found[row]} values, at most {declared.values} are declared"
    )
    return lists
