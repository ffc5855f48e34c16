"""One table means the same rows in every format that can hold it."""

import csv
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from components.preprocess.columns import Columns, MultiValued
from components.preprocess.conform import check_types, conform
from components.preprocess.delimited import DelimitedParser
from components.preprocess.named_examples import parse_named
from components.preprocess.raw_rows import RawRows, merged, rows_from_cells

COLUMNS = Columns(
    label="y",
    numeric=("n", "m"),
    categorical=("c",),
    multi_valued=(MultiValued(name="t", separator="|", values=3),),
    ignored=("at",),
    split="at",
)
WORD = st.text(st.characters(blacklist_characters="|\0\r", blacklist_categories=["Cs"]), min_size=1, max_size=4)
NUMBER = st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False)
TABLE = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0]), NUMBER, NUMBER, st.none() | WORD, st.none() | st.lists(WORD, min_size=1, max_size=3), WORD
    ),
    min_size=1,
    max_size=8,
)
Rows = list[tuple[float, float | None, float | None, str | None, list[str] | None, str]]


def as_csv(table: Rows) -> RawRows:
    file = io.StringIO(newline="")
    lists = [["|".join(cell) if isinstance(cell, list) else cell for cell in row] for row in table]
    csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n").writerows(lists)
    parser = DelimitedParser(path=Path("a.csv"), names=("y", "n", "m", "c", "t", "at"), separator=",", columns=COLUMNS)
    return parser.parse(file.getvalue().encode(), 1)


def as_arrow(table: Rows) -> RawRows:
    y, n, m, c, t, at = (list(cells) for cells in zip(*table, strict=True))
    types = [pa.int64(), pa.float32(), pa.float64(), pa.large_string(), pa.large_list(pa.string()), pa.string()]
    arrays = [pa.array(cells, type_) for cells, type_ in zip(([int(label) for label in y], n, m, c, t, at), types, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=["y", "n", "m", "c", "t", "at"])
    check_types(batch.schema, COLUMNS, "a.parquet")
    return conform(batch, 0, COLUMNS, "a.parquet, row ")


def as_examples(table: Rows) -> RawRows:
    def floats(value: float | None) -> Any:
        return tf.train.Feature(float_list=tf.train.FloatList(value=[] if value is None else [value]))

    def texts(values: list[str] | None) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode() for value in values or ()]))

    payloads = []
    for y, n, m, c, t, at in table:
        feature = {"y": floats(y), "n": floats(n), "m": floats(m), "t": texts(t), "at": texts([at])}
        feature |= {} if c is None else {"c": texts([c])}
        payloads.append(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return parse_named(payloads, 0, COLUMNS, "a.tfrecord")


@given(TABLE)
def test_a_table_is_the_same_in_csv_arrow_and_examples(table: Rows) -> None:
    expected = rows_from_cells(list(zip(*table, strict=True)), COLUMNS)
    for read in (as_csv, as_arrow, as_examples):
        found = read(table)
        assert found.rejects == ()
        assert found.batch.to_pylist() == expected.to_pylist(), read.__name__
        assert found.batch.schema.equals(expected.schema)


def test_parts_follow_one_another() -> None:
    rows: Rows = [(1.0, 1.0, None, "a", ["x"], "1"), (0.0, None, 2.0, None, None, "2")]
    parts = [as_arrow(rows), as_arrow(rows[:1])]
    found = merged(parts, COLUMNS)
    assert found.batch.to_pylist() == [*as_arrow(rows).batch.to_pylist(), *as_arrow(rows[:1]).batch.to_pylist()]
    assert found.numbers.tolist() == [0, 1, 0]
    assert merged([], COLUMNS).batch.schema.equals(found.batch.schema)
