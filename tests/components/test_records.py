"""Shards: what goes in comes out, and every damage is named by file and record."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from components.errors import InvalidConfig, InvalidRecords
from components.framing import read_tfrecords
from components.records import BLOCK_ROWS, ENCODINGS, Batch, Encoding, Schema, concatenate, read_shard, write_shard

SCHEMA = Schema(field_size=3, feature_size=40)


def rows(count: int) -> Batch:
    random = np.random.default_rng(3)
    return Batch(
        labels=(np.arange(count) % 2).astype(np.float32),
        ids=random.integers(0, 40, (count, 3)),
        values=random.normal(size=(count, 3)).astype(np.float32),
    )


def read_all(path: Path, encoding: Encoding) -> Batch:
    return concatenate(read_shard(path, SCHEMA, encoding), SCHEMA.field_size)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("count", [1, 6, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_rows_survive_a_shard(tmp_path: Path, encoding: Encoding, count: int) -> None:
    written = rows(count)
    shard = write_shard(tmp_path / "part.tfrecord", written, encoding)
    back = read_all(tmp_path / "part.tfrecord", encoding)
    np.testing.assert_array_equal(back.labels, written.labels)
    np.testing.assert_array_equal(back.ids, written.ids)
    np.testing.assert_array_equal(back.values, written.values)
    assert (shard.examples, shard.positives) == (count, count // 2)
    assert shard.bytes == (tmp_path / "part.tfrecord").stat().st_size


def test_tensorflow_reads_our_examples_and_we_read_tensorflows(tmp_path: Path) -> None:
    batch = rows(5)
    write_shard(tmp_path / "ours.tfrecord", batch, "examples")
    for row, record in enumerate(tf.data.TFRecordDataset(str(tmp_path / "ours.tfrecord"))):
        feature = tf.train.Example.FromString(record.numpy()).features.feature
        assert feature["ids"].int64_list.value == batch.ids[row].tolist()
        assert feature["label"].float_list.value == [batch.labels[row]]

    with tf.io.TFRecordWriter(str(tmp_path / "theirs.tfrecord")) as writer:
        features = {
            "label": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0])),
            "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[4, 0, 39])),
            "values": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 1.0, -2.0])),
        }
        writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    back = read_all(tmp_path / "theirs.tfrecord", "examples")
    assert (back.labels.tolist(), back.ids.tolist(), back.values.tolist()) == ([1.0], [[4, 0, 39]], [[0.5, 1.0, -2.0]])


def test_lines_of_libsvm_are_what_other_tools_read(tmp_path: Path) -> None:
    """Every digit that it takes to read the same float32 again, and no more."""
    values = np.array([[0.1, -2.5e-7, 33.0], [1 / 3, 0.0, 1e20]], np.float32)
    batch = Batch(labels=np.array([1.0, 0.0], np.float32), ids=np.array([[4, 0, 39], [7, 7, 1]]), values=values)
    shard = write_shard(tmp_path / "part.libsvm", batch, "libsvm")
    text = (tmp_path / "part.libsvm").read_bytes()
    assert text == b"1 4:0.1 0:-2.5e-07 39:33.0\n0 7:0.33333334 7:0.0 1:1e+20\n"
    assert shard.sha256 == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"1 4:1 0:1 9:1\n0 4:1 0:1\n", "line 2: 2 fields, the schema says 3"),
        (b"1 4:1 0:1 9:1\n0 4:1 0:1 9\n", "line 2: not label id:value"),
        (b"1 4:1 0:1 9:1\n0 4:1 0:1 9:x\n", "line 2: not label id:value"),
        (b"1 4:1 0:1 9:1\n0 4:1 0:1 9:1", "line 2: the file ends inside the line"),
        (b"1 4:1 0:1 9:1\n2 4:1 0:1 9:1\n", "line 2, row 0: label 2 is neither 0 nor 1"),
        (b"1 4:1 0:1 40:1\n", "line 1, row 0: id 40 is outside 0..39"),
        (b"1 4:1 0:nan 4:1\n", "line 1, row 0: value nan of id 0 is not finite"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: bytes, reason: str) -> None:
    (tmp_path / "part.libsvm").write_bytes(text)
    with pytest.raises(InvalidRecords, match=re.escape(f"part.libsvm, {reason}")):
        read_all(tmp_path / "part.libsvm", "libsvm")


@pytest.mark.parametrize("encoding", ["blocks", "examples"])
def test_any_flipped_byte_is_noticed(tmp_path: Path, encoding: Encoding) -> None:
    path = tmp_path / "part.tfrecord"
    write_shard(path, rows(2), encoding)
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :])
        with pytest.raises(InvalidRecords, match=r"part\.tfrecord, record [01]"):
            read_all(path, encoding)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x1f\x8b\x08\x00 and so on, compressed", "record 0: gzip-compressed"),
        (b"<Error><Code>AccessDenied</Code></Error>", "record 0: not a TFRecord file"),
        (b"0 1:1", "record 0: not a TFRecord file"),
    ],
)
def test_a_foreign_file_is_called_by_its_kind(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "foreign").write_bytes(content)
    with pytest.raises(InvalidRecords, match=reason):
        list(read_tfrecords(tmp_path / "foreign"))


def test_a_cut_file_names_the_record_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "part.tfrecord"
    write_shard(path, rows(3), "examples")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidRecords, match="record 2: the file ends inside the record; 2 whole records"):
        list(read_tfrecords(path))


@pytest.mark.parametrize(
    ("label", "ids", "value", "reason"),
    [
        (1.0, [0, 40, 1], 1.0, "id 40 is outside 0..39"),
        (1.0, [0, -1, 1], 1.0, "id -1 is outside 0..39"),
        (1.0, [0, 2, 1], float("nan"), "value nan of id"),
        (0.5, [0, 2, 1], 1.0, "label 0.5 is neither 0 nor 1"),
    ],
)
@pytest.mark.parametrize("encoding", ["blocks", "examples"])
def test_rows_that_no_model_can_train_on_are_refused(
    tmp_path: Path, encoding: Encoding, label: float, ids: list[int], value: float, reason: str
) -> None:
    batch = Batch(labels=np.array([label], np.float32), ids=np.array([ids]), values=np.array([[1.0, value, 1.0]], np.float32))
    write_shard(tmp_path / "part.tfrecord", batch, encoding)
    with pytest.raises(InvalidRecords, match=f"record 0.*{reason}"):
        read_all(tmp_path / "part.tfrecord", encoding)


@pytest.mark.parametrize(("field_size", "feature_size", "id_base"), [(0, 10, 0), (3, 0, 0), (3, 2**31, 0), (3, 10, 2)])
def test_an_impossible_schema_is_refused(field_size: int, feature_size: int, id_base: int) -> None:
    with pytest.raises(InvalidConfig):
        Schema(field_size=field_size, feature_size=feature_size, id_base=id_base)
