"""What Spark's workers do with Arrow batches, without Spark."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from components.preprocess.spark.batches import (
    RESULT,
    TRAIN,
    VALIDATION,
    Pass,
    cut,
    owned,
    row_column,
    signed,
    words_of,
    work_on,
)
from components.preprocess.worker import Work
from components.records import Schema


def a_pass(folder: Path, *files: Path, skip: bool = False) -> Pass:
    work = Work(
        format="libsvm",
        schema=Schema(field_size=2, feature_size=10),
        seed=0,
        validation_fraction=0.5,
        encoding="blocks",
        skip=skip,
        scratch=folder,
        bits=0,
        limit_rows=1,
    )
    return Pass(work=work, method="parse", files=files)


def findings(a_pass: Pass) -> pa.Table:
    named = pa.RecordBatch.from_pydict({"id": list(range(len(a_pass.files)))})
    return pa.Table.from_batches(work_on(a_pass, cut(a_pass, iter([named]))))


def test_signed_keys_have_the_order_of_unsigned_ones() -> None:
    keys = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    assert signed(keys).tolist() == [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1]


@pytest.mark.parametrize("part", [slice(0, 3), slice(1, 3), slice(2, 2)])
def test_rows_survive_as_a_binary_column_also_when_it_is_cut(part: slice) -> None:
    words = np.arange(21, dtype=np.uint32).reshape(3, 7)
    column = row_column(words)
    assert [value.as_py() for value in column] == [row.tobytes() for row in words]
    np.testing.assert_array_equal(words_of(column[part], 7), words[part])


def test_every_row_is_found_once_and_what_a_chunk_gave_is_told(tmp_path: Path) -> None:
    for name, rows in (("a", 30), ("b", 12)):
        (tmp_path / name).write_text("1 1:1 2:2\n" * rows)
    found = findings(a_pass(tmp_path, tmp_path / "a", tmp_path / "b")).to_pydict()
    assert sum(part in (TRAIN, VALIDATION) for part in found["part"]) == 42
    assert {TRAIN, VALIDATION} < set(found["part"])
    rows = [row for row in zip(*found.values(), strict=True) if row[0] in (TRAIN, VALIDATION)]
    assert len({key for _, key, _, _ in rows}) == 42
    assert len({content for _, _, content, _ in rows}) == 1  # their hashes: the same row each time
    assert [row[1:3] for row in zip(*found.values(), strict=True) if row[0] == RESULT] == [(0, 1), (1, 1)]


@pytest.mark.parametrize(("skip", "told"), [(False, 1), (True, 3)])
def test_what_follows_a_row_that_stops_everything_is_passed_over(tmp_path: Path, skip: bool, told: int) -> None:
    for name, text in (("a", "2 1:1 2:2\n"), ("b", "1 1:1 2:2\n"), ("c", "x\n")):
        (tmp_path / name).write_text(text)
    found = findings(a_pass(tmp_path, *(tmp_path / name for name in "abc"), skip=skip)).to_pydict()
    assert found["part"].count(RESULT) == told


def test_rows_belong_to_the_shard_whose_first_key_is_the_last_at_or_below_theirs() -> None:
    schema = pa.schema([("part", pa.int8()), ("key", pa.int64()), ("number", pa.int64()), ("data", pa.binary())])
    rows = [(TRAIN, -5), (TRAIN, 9), (TRAIN, 10), (TRAIN, 11), (VALIDATION, 10)]
    parts, keys = zip(*rows, strict=True)
    columns = {"part": parts, "key": keys, "number": [0] * 5, "data": [b""] * 5}
    cuts, owners = [np.array([10]), np.array([], np.int64)], [np.array([7, 8]), np.array([3])]
    found = next(owned(cuts, owners, iter([pa.RecordBatch.from_pydict(columns, schema=schema)])))
    assert found.column(0).to_pylist() == [7, 7, 8, 8, 3]
