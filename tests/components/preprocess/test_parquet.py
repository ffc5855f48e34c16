"""Parquet and other Arrow columns: what fits the declared roles is read, and what does not is named by file, row and column."""

import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.errors import InvalidRecords
from components.preprocess.columns import Columns, MultiValued
from components.preprocess.conform import check_types, conform
from components.preprocess.parquet import BATCH_ROWS, check_same_schema, parquet_schema, read_batches
from components.preprocess.raw_rows import RawRows, merged, raw_schema

COLUMNS = Columns(label="y", numeric=("n",), categorical=("c",), multi_valued=(MultiValued(name="t", values=2),))
GOOD: dict[str, Any] = {
    "extra": [b"x", b"y", b"z"],
    "t": [["a", "b"], None, ["", None, "c"]],
    "c": ["NA", None, ""],
    "n": [1.5, None, -2.0],
    "y": [1, 0, -1],
}


def written(folder: Path, table: dict[str, Any], **settings: Any) -> Path:
    pq.write_table(pa.table(table), folder / "day1.parquet", **settings)
    return folder / "day1.parquet"


def read(path: Path, columns: Columns = COLUMNS) -> RawRows:
    parts = [conform(batch, row, columns, f"{path}, row ") for row, batch in read_batches(path, columns)]
    return merged(parts, columns)


def rows(found: RawRows) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in found.batch.columns), strict=True))


def ignoring(columns: Columns = COLUMNS) -> Columns:
    return Columns(
        label=columns.label,
        numeric=columns.numeric,
        categorical=columns.categorical,
        multi_valued=columns.multi_valued,
        ignored=("*",),
        split=columns.split,
    )


def test_rows_have_the_declared_columns_and_nulls_are_missing(tmp_path: Path) -> None:
    found = read(written(tmp_path, GOOD), ignoring())
    assert rows(found) == [(1.0, 1.5, "NA", ["a", "b"]), (0.0, None, None, None), (0.0, -2.0, None, ["c"])]
    assert found.numbers.tolist() == [0, 1, 2]
    assert found.batch.schema.equals(raw_schema(ignoring()))


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("y", pa.array([True, False]), [1.0, 0.0]),
        ("y", pa.array([1.0, -1.0]), [1.0, 0.0]),
        ("n", pa.array([2**60, 7], pa.uint64()), [2.0**60, 7.0]),
        ("n", pa.array([True, None]), [1.0, None]),
        ("n", pa.array([Decimal("1.25"), None]), [1.25, None]),
        ("n", pa.array([1.5, 2.5], pa.float16()), [1.5, 2.5]),
        ("n", pa.nulls(2), [None, None]),
        ("c", pa.array([12, -3]), ["12", "-3"]),
        ("c", pa.array([True, False]), ["true", "false"]),
        ("c", pa.array(["東京".encode(), b""]), ["東京", None]),
        ("c", pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
        ("c", pa.array(["a", None]).dictionary_encode(), ["a", None]),
        ("c", pa.nulls(2), [None, None]),
        ("t", pa.array(["a|b", "|c|"]), [["a", "b"], ["c"]]),
        ("t", pa.array([[1, 2], []]), [["1", "2"], None]),
        ("t", pa.array([["a"], None], pa.large_list(pa.large_string())), [["a"], None]),
        ("t", pa.array([[b"a"], None]), [["a"], None]),
    ],
)
def test_types_that_fit(tmp_path: Path, name: str, column: pa.Array, expected: list[Any]) -> None:
    table = {"y": [1, 0], "n": [1.0, 2.0], "c": ["a", "b"], "t": [["a"], ["b"]]} | {name: column}
    found = read(written(tmp_path, table))
    assert found.rejects == ()
    assert found.batch.column(name).to_pylist() == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([date(2026, 12, 2)]), "2026-12-02"),
        (pa.array([datetime(2026, 12, 2, 10, 30)], pa.timestamp("s")), "2026-12-02 10:30:00.000"),
        (pa.array([datetime(2026, 12, 2, 10, 30)], pa.timestamp("us", "Europe/Berlin")), "2026-12-02 10:30:00.000000"),
        (pa.array([1764671405]), "1764671405"),
    ],
)
def test_times_of_a_split_are_text_in_utc(tmp_path: Path, column: pa.Array, expected: str) -> None:
    columns = Columns(label="y", numeric=("n",), split="at")
    found = read(written(tmp_path, {"y": [1], "n": [1], "at": column}), columns)
    assert found.batch.column(2).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("y", ["1", "0"], "column 'y' is string, the label needs a number or boolean; cast it, or declare another role"),
        ("y", pa.nulls(2), "column 'y' is null, the label needs"),
        ("n", ["1", "2"], "column 'n' is string, numeric needs a number or boolean"),
        ("n", [[1], [2]], "column 'n' is list<"),
        ("c", [1.0, 2.0], "column 'c' is double, categorical needs a string, whole number or boolean"),
        ("t", [1, 2], "column 't' is int64, multi_valued needs a list of strings or whole numbers, or one string"),
        ("t", [[1.5], []], "column 't' is list<"),
    ],
)
def test_types_that_do_not_fit(tmp_path: Path, name: str, column: Any, reason: str) -> None:
    table = {"y": [1, 0], "n": [1.0, 2.0], "c": ["a", "b"], "t": [["a"], ["b"]]} | {name: column}
    path = written(tmp_path, table)
    with pytest.raises(InvalidRecords) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: {reason}")


def test_columns_are_those_declared(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    with pytest.raises(InvalidRecords, match=r"day1\.parquet: column 'extra' has no role"):
        read(path)
    with pytest.raises(InvalidRecords, match=r"no label column 'clk'; columns found: extra,t,c,n,y"):
        read(path, Columns(label="clk", categorical=("c",), ignored=("*",)))


@pytest.mark.parametrize(
    ("name", "value", "kind", "sentence"),
    [
        ("y", None, "missing label", "column y: the label is missing"),
        ("y", 2.0, "label", "column y: label 2 is none of 0, 1, -1, +1"),
        ("y", math.nan, "label", "column y: label nan is none of"),
        ("n", math.nan, "number", "column n: NaN is not a number; write null where it is missing"),
        ("n", -math.inf, "number", "column n: -inf is not finite as float32"),
        ("n", 1e39, "number", "column n: 1e+39 is not finite as float32"),
        ("c", b"\xff", "encoding", "column c: '\\\\xff' is not UTF-8; convert it"),
        ("t", [b"a", b"\xfe"], "encoding", "column t: '\\\\xfe' is not UTF-8; convert it"),
        ("t", [b"a", b"b", b"c"], "values", "column t: 3 values, at most 2 are declared"),
    ],
)
def test_a_wrong_row_is_named_among_right_ones(tmp_path: Path, name: str, value: Any, kind: str, sentence: str) -> None:
    count = BATCH_ROWS + 20  # the wrong one stands in the second batch
    table: dict[str, Any] = {"y": [1.0] * count, "n": [1.0] * count, "c": [b"a"] * count, "t": [[b"x"]] * count}
    table[name][count - 5] = value
    path = written(tmp_path, table)
    found = read(path)
    assert [(reject.number, reject.reason) for reject in found.rejects] == [(count - 5, kind)]
    assert found.rejects[0].message == f"{path}, row {count - 5}: {sentence}" or "label" in kind
    assert found.rejects[0].message.startswith(f"{path}, row {count - 5}: {sentence}")
    assert len(found.batch) == count - 1
    assert count - 5 not in found.numbers.tolist()


def test_a_slice_of_a_batch_means_its_own_rows() -> None:
    """Spark and workers hand on slices, whose buffers begin earlier."""
    batch = pa.record_batch({"y": [1, 0, 1], "n": [1.0, 2.0, 3.0], "c": ["a", "b", "c"], "t": [["p", "q"], ["r"], ["s", "t"]]})
    check_types(batch.schema, COLUMNS, "part")
    assert rows(conform(batch.slice(1), 10, COLUMNS, "part, row ")) == [(0.0, 2.0, "b", ["r"]), (1.0, 3.0, "c", ["s", "t"])]


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "day1.parquet"
    for content, reason in [
        (b"a,b\n1,2\n", "it starts with 'a,b"),
        (b"\x1f\x8b\x08\0", "this looks like gzip-compressed, decompress it first"),
        (b"", "it starts"),
    ]:
        path.write_bytes(content)
        with pytest.raises(InvalidRecords) as caught:
            parquet_schema(path)
        assert str(caught.value).startswith(f"{path}: not a Parquet file; {reason}")


def test_a_cut_file_is_named_wherever_it_is_cut(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    content = path.read_bytes()
    for length in range(4, len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(InvalidRecords, match=r"day1\.parquet: the Parquet file is cut off|damaged Parquet footer"):
            parquet_schema(path)


def test_damage_is_named_or_changes_nothing(tmp_path: Path) -> None:
    """Pages have checksums here; where a writer makes none, damage may pass for data, as in any reader of Parquet."""
    good = {"y": [1, 0] * 50, "n": [float(i) for i in range(100)], "c": ["a", "b"] * 50, "t": [["x"], ["y"]] * 50}
    path = written(tmp_path, good, write_page_checksum=True, use_dictionary=False)
    whole, content = rows(read(path)), path.read_bytes()
    said = []
    for place in range(4, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ (0x80 if place % 2 else 0x01)]) + content[place + 1 :])
        try:
            found = rows(read(path))
        except InvalidRecords as error:
            said.append(str(error))
        else:
            assert found == whole
    assert len(said) > 200
    assert all(sentence.startswith(f"{path}: ") and sentence.isprintable() for sentence in said)


def test_files_have_one_schema(tmp_path: Path) -> None:
    first = written(tmp_path, GOOD)
    schema = parquet_schema(first)
    check_same_schema(schema, first, first, ignoring())
    (tmp_path / "b").mkdir()
    other = written(tmp_path / "b", GOOD | {"n": ["1", "2", "3"]})
    with pytest.raises(InvalidRecords) as caught:
        check_same_schema(schema, first, other, ignoring())
    assert str(caught.value) == f"{other}: column 'n' is string, but double in {first}; write all files with one schema"
