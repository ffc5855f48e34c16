"""Rows of a table before they are transformed: Arrow columns in a fixed order, whatever format they came from.

    0            the label, float32, 0 or 1; NaN in rows to score
    1 ..         the fields in the order of `Columns.fields`: float64 (numeric), string (categorical), list of string (multi-valued)
                 (where text need not be UTF-8, dictionaries of binary, in which an empty token is missing)
    the last     what the split is by, as text, where a split column is declared (of a number its whole part)

Null is a missing cell. Columns are taken by place, because the last one may have the name of a field. Batches of this shape are
what reading gives and the transform takes, in worker processes of one machine and in Spark (`mapInArrow`) alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from components.preprocess.columns import Columns
from components.preprocess.parsed import LABELS, Reject

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class RawRows:
    """Rows of a part of a file, in its order: Arrow columns, the line or record of each row (int64 [B]), and what was refused.

    `completed` rows had lost cells at their end.
    """

    batch: pa.RecordBatch
    numbers: NDArray[np.int64]
    rejects: tuple[Reject, ...] = ()
    completed: int = 0

    @property
    def labels(self) -> NDArray[np.float32]:
        """0 and 1, float32 [B]."""
        found: NDArray[np.float32] = self.batch.column(0).to_numpy(zero_copy_only=False)
        return found

    def only(self, chosen_B: NDArray[np.bool_]) -> "RawRows":
        """Some of the rows; what was refused stays."""
        if chosen_B.all():
            return self
        return replace(self, batch=self.batch.filter(pa.array(chosen_B)), numbers=self.numbers[chosen_B])


def raw_schema(columns: Columns) -> pa.Schema:
    """The Arrow schema of a batch."""
    parts = [pa.field(columns.label or "label", pa.float32(), nullable=False)]
    parts += [pa.field(name, pa.float64()) for name in columns.numeric]
    parts += [pa.field(name, pa.string()) for name in columns.categorical]
    parts += [pa.field(column.name, pa.list_(pa.field("item", pa.string()))) for column in columns.multi_valued]
    if columns.split is not None:
        parts.append(pa.field(columns.split, pa.string()))
    return pa.schema(parts)


def labels_of(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """0 and 1 from labels written as 0/1 or -1/+1; NaN where neither."""
    known = np.isin(numbers, list(LABELS))
    return np.where(known, numbers > 0, np.nan).astype(np.float32)


def no_labels(rows: int) -> NDArray[np.float32]:
    """The label column of rows to score."""
    return np.full(rows, np.nan, np.float32)


def without_empty(lists: pa.ListArray) -> pa.ListArray:
    """A list<string> array without empty and null entries; a list with none left is null, as a missing cell is."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    entries = pc.list_flatten(lists)
    kept = pc.fill_null(pc.not_equal(entries, ""), False).to_numpy(zero_copy_only=False)
    row = np.repeat(np.arange(len(lengths)), lengths)[kept]
    counts = np.bincount(row, minlength=len(lengths))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), entries.filter(pa.array(kept)), mask=pa.array(counts == 0))


def whole_part(number: float | None) -> str | None:
    """A number as the text of what is before its point; None where it is missing."""
    return None if number is None else str(math.floor(number))


def whole_parts(numbers: pa.Array) -> pa.Array:
    """The same of a float64 array."""
    encoded = numbers.dictionary_encode()
    texts = pa.array([whole_part(number) for number in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def rows_from_cells(cells: Sequence[Sequence[Any]], columns: Columns) -> pa.RecordBatch:
    """A batch from Python values, a sequence a column."""
    schema = raw_schema(columns)
    arrays = [pa.array(values, field.type) for values, field in zip(cells, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def merged(parts: Sequence[RawRows], columns: Columns) -> RawRows:
    """Parts of a file that follow one another as one."""
    schema = raw_schema(columns)
    batches = [part.batch for part in parts if len(part.numbers)]
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    batch = table.to_batches()[0] if len(table) else rows_from_cells([[] for _ in schema], columns)
    return RawRows(
        batch=batch,
        numbers=np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)]),
        rejects=tuple(reject for part in parts for reject in part.rejects),
    )
