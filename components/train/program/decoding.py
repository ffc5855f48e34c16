"""Payloads of each encoding (components/records.py) as columns, by TensorFlow operations, a whole block of rows at a time.

Shapes: n rows, F fields. Every function gives labels float32 [n], ids int32 [n, F] and values float32 [n, F].
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from components.records import BLOCK_HEADER, BLOCK_MAGIC, BLOCK_VERSION, Encoding

HEADER_WORDS = BLOCK_HEADER.size // 4

Columns = tuple[Any, Any, Any]


def decode_block(payload: Any, field_size: int) -> Columns:
    """One record of `blocks`, a string."""
    words = tf.io.decode_raw(payload, tf.int32, little_endian=True)
    rows, cells = words[2], words[2] * field_size
    header = tf.stack([BLOCK_MAGIC, BLOCK_VERSION, rows, field_size])
    with tf.control_dependencies([tf.debugging.assert_equal(words[:HEADER_WORDS], header, "not a block of this dataset")]):
        labels = tf.bitcast(words[HEADER_WORDS : HEADER_WORDS + rows], tf.float32)
    ids = tf.reshape(words[HEADER_WORDS + rows : HEADER_WORDS + rows + cells], [rows, field_size])
    values = tf.bitcast(tf.reshape(words[HEADER_WORDS + rows + cells :], [rows, field_size]), tf.float32)
    return labels, ids, values


def parse_examples(serialized: Any, field_size: int) -> Columns:
    """Records of `examples`, strings [n]."""
    features = {
        "label": tf.io.FixedLenFeature([], tf.float32),
        "ids": tf.io.FixedLenFeature([field_size], tf.int64),
        "values": tf.io.FixedLenFeature([field_size], tf.float32),
    }
    row = tf.io.parse_example(serialized, features)
    return row["label"], tf.cast(row["ids"], tf.int32), row["values"]


def parse_lines(lines: Any, field_size: int) -> Columns:
    """Lines of `libsvm`, strings [n]: label, then id:value of every field."""
    tokens = tf.raw_ops.StringSplit(input=lines, delimiter=" :", skip_empty=True)
    rows, width = tf.size(lines), 1 + 2 * field_size
    whole = tf.debugging.assert_equal(
        tf.math.bincount(tf.cast(tokens.indices[:, 0], tf.int32), minlength=rows), width, "a row of another width"
    )
    with tf.control_dependencies([whole]):
        grid = tf.reshape(tokens.values, [rows, width])
    labels = tf.strings.to_number(grid[:, 0], tf.float32)
    ids = tf.strings.to_number(tf.reshape(grid[:, 1::2], [-1]), tf.int32)
    values = tf.strings.to_number(tf.reshape(grid[:, 2::2], [-1]), tf.float32)
    return labels, tf.reshape(ids, [rows, field_size]), tf.reshape(values, [rows, field_size])


DECODERS: dict[Encoding, Callable[[Any, int], Columns]] = {
    "blocks": decode_block,
    "examples": parse_examples,
    "libsvm": parse_lines,
}


def check_columns(columns: Columns, feature_size: int) -> Columns:
    """Refuse what no model can train on; TensorFlow says that it is so, explain_damage (input.py) says where."""
    labels, ids, values = columns
    checks = [
        tf.debugging.assert_equal(labels * (1 - labels), tf.zeros_like(labels), "a label is neither 0 nor 1"),
        tf.debugging.assert_equal(tf.reduce_any((ids < 0) | (ids >= feature_size)), False, "an id is outside the table"),
        tf.debugging.assert_equal(tf.reduce_all(tf.math.is_finite(values)), True, "a value is not finite"),
    ]
    with tf.control_dependencies(checks):
        return tf.identity(labels), ids, values
