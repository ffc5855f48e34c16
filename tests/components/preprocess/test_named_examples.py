"""Records with a feature a column, written by TensorFlow itself where it is the independent witness."""

import math
from typing import Any

import pytest
import tensorflow as tf

from components.errors import InvalidRecords
from components.preprocess.columns import Columns, MultiValued
from components.preprocess.named_examples import check_names, parse_named

COLUMNS = Columns(
    label="y", numeric=("n",), categorical=("c",), multi_valued=(MultiValued(name="t", values=2),), ignored=("at",), split="at"
)
GOOD: dict[str, Any] = {"y": [1.0], "n": [2.5], "c": [b"NA"], "t": [b"a", b"b"], "at": [b"2026-12-02"]}


def record(features: dict[str, Any]) -> bytes:
    def feature(values: list[Any]) -> Any:
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    found = {name: feature(values) for name, values in features.items()}
    return bytes(tf.train.Example(features=tf.train.Features(feature=found)).SerializeToString())


def test_rows_and_what_is_missing() -> None:
    payloads = [
        record(GOOD),
        record({"y": [0], "n": [3], "c": [12], "t": [7], "at": [1764671405], "other": [b"ignored"]}),
        record({"y": [-1], "n": [], "c": [b""], "t": [b"", b"x"]}),
        record({"y": [0]}),
    ]
    found = parse_named(payloads, 5, COLUMNS, "day1.tfrecord")
    assert found.rejects == ()
    assert found.numbers.tolist() == [5, 6, 7, 8]
    assert list(zip(*(column.to_pylist() for column in found.batch.columns), strict=True)) == [
        (1.0, 2.5, "NA", ["a", "b"], "2026-12-02"),
        (0.0, 3.0, "12", ["7"], "1764671405"),
        (0.0, None, None, ["x"], None),
        (0.0, None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"y": []}, "missing label", "feature y: the label is missing"),
        ({"y": [0.5]}, "label", "feature y: label 0.5 is none of 0, 1, -1, +1"),
        ({"y": [b"1"]}, "type", "feature y is bytes, float or int64 wanted"),
        ({"y": [1, 0]}, "values", "feature y: 2 values, at most 1 fits"),
        ({"n": [math.nan]}, "number", "feature n: nan is not finite as float32; leave it out where it is missing"),
        ({"n": [math.inf]}, "number", "feature n: inf is not finite"),
        ({"n": [b"3"]}, "type", "feature n is bytes, float or int64 wanted"),
        ({"c": [1.5]}, "type", "feature c is float, bytes or int64 wanted"),
        ({"c": [b"a", b"b"]}, "values", "feature c: 2 values, at most 1 fits"),
        ({"c": [b"\xff"]}, "encoding", "feature c: '\\\\xff' is not UTF-8"),
        ({"t": [b"a", b"b", b"c"]}, "values", "feature t: 3 values, at most 2 are declared"),
    ],
)
def test_a_wrong_record_is_named_among_right_ones(change: dict[str, Any], kind: str, sentence: str) -> None:
    found = parse_named([record(GOOD), record(GOOD | change), record(GOOD)], 7, COLUMNS, "day1.tfrecord")
    assert [(reject.number, reject.reason) for reject in found.rejects] == [(8, kind)]
    assert found.rejects[0].message.startswith(f"day1.tfrecord, record 8: {sentence}")
    assert found.numbers.tolist() == [7, 9]


def test_what_is_no_example_is_a_damaged_record() -> None:
    found = parse_named([b"\xff\xff", record(GOOD), b""], 0, COLUMNS, "day1.tfrecord")
    assert [(reject.number, reject.reason) for reject in found.rejects] == [(0, "example"), (2, "example")]
    assert found.rejects[0].message.startswith("day1.tfrecord, record 0 is not a tf.train.Example")
    assert len(found.batch) == 1


def test_a_name_that_no_record_has_is_refused() -> None:
    check_names([record({"y": [1], "n": [1.0]}), b"\xff\xff", record({"c": [1], "t": [2], "at": [3]})], COLUMNS, "day1.tfrecord")
    with pytest.raises(InvalidRecords) as caught:
        check_names([record({"y": [1], "N": [1.0], "c": [1], "t": [1], "at": [3]})], COLUMNS, "day1.tfrecord")
    assert str(caught.value) == "day1.tfrecord: no feature 'n' in the first 1 records; features found: 'N', 'at', 'c', 't', 'y'"
    with pytest.raises(InvalidRecords, match="record 0 is not a tf"):
        check_names([b"\xff\xff"], COLUMNS, "day1.tfrecord")
