"""tf.train.Example records without TensorFlow: the same three messages, declared to protobuf here.

Importing TensorFlow costs seconds and half a gigabyte, which a reader of data must not pay. Source of names and numbers:
tensorflow/core/example/example.proto and feature.proto.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.records import BLOCK_ROWS, Batch, Schema, check_batch, read_tfrecords

FEATURES = ("ids", "label", "values")


def _message_classes() -> dict[str, Any]:
    """Example and its parts in a pool of their own, so that TensorFlow's registration of the real names is not disturbed."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="ctrflow_example.proto", package="ctrflow", syntax="proto3")

    def add(target: Any, name: str, number: int, kind: int, *, repeated: bool = False, of: str = "") -> Any:
        label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        return target.field.add(name=name, number=number, type=kind, label=label, type_name=f".ctrflow.{of}" if of else None)

    for name, kind in (("BytesList", field.TYPE_BYTES), ("FloatList", field.TYPE_FLOAT), ("Int64List", field.TYPE_INT64)):
        add(file.message_type.add(name=name), "value", 1, kind, repeated=True)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), start=1):
        of = {"bytes_list": "BytesList", "float_list": "FloatList", "int64_list": "Int64List"}[name]
        add(feature, name, number, field.TYPE_MESSAGE, of=of).oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, field.TYPE_STRING)
    add(entry, "value", 2, field.TYPE_MESSAGE, of="Feature")
    add(features, "feature", 1, field.TYPE_MESSAGE, repeated=True, of="Features.FeatureEntry")
    add(file.message_type.add(name="Example"), "features", 1, field.TYPE_MESSAGE, of="Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {"Example": message_factory.GetMessageClass(pool.FindMessageTypeByName("ctrflow.Example"))}


_Example = _message_classes()["Example"]


def encode_example(label: float, ids: NDArray[np.int64], values: NDArray[np.float32]) -> bytes:
    """One row (ids and values [F]) as a serialized tf.train.Example."""
    example = _Example()
    feature = example.features.feature
    feature["label"].float_list.value.append(label)
    feature["ids"].int64_list.value.extend(ids.tolist())
    feature["values"].float_list.value.extend(values.tolist())
    # Map order is unspecified without this, and equal rows must give equal bytes.
    encoded: bytes = example.SerializeToString(deterministic=True)
    return encoded


def _feature(example: Any, name: str, kind: str, length: int, place: str) -> Any:
    """The values of one feature; refuses another type or length."""
    feature = example.features.feature[name]
    found = feature.WhichOneof("kind")
    if found != kind:
        words = {"int64_list": "int64", "float_list": "float", "bytes_list": "bytes", None: "empty"}
        raise InvalidRecords(f"{place}: {name} is {words[found]}, {words[kind]} wanted")
    values = getattr(feature, kind).value
    if len(values) != length:
        raise InvalidRecords(f"{place}: {name} has {len(values)} of {length} elements; every row needs field_size of them")
    return values


def decode_example(payload: bytes, field_size: int, place: str) -> tuple[float, Any, Any]:
    """Label, ids [F] and values [F] of one record.

    Raises:
        InvalidRecords: not an Example, other feature names, types or lengths.
    """
    example = _Example()
    try:
        example.ParseFromString(payload)
    except message.DecodeError as error:
        raise InvalidRecords(f"{place} is not a tf.train.Example") from error
    found = sorted(example.features.feature)
    if not found:
        raise InvalidRecords(f"{place} is not a tf.train.Example: it has no features")
    if missing := [name for name in FEATURES if name not in found]:
        raise InvalidRecords(f"{place}: no feature {', '.join(missing)}; found {', '.join(found)}, wanted {', '.join(FEATURES)}")
    label = _feature(example, "label", "float_list", 1, place)[0]
    ids = _feature(example, "ids", "int64_list", field_size, place)
    values = _feature(example, "values", "float_list", field_size, place)
    return label, ids, values


def read_examples(path: Path, schema: Schema, id_base: int = 0) -> Iterator[Batch]:
    """Rows of a file of Examples in batches of at most BLOCK_ROWS, every record checked.

    Ids of the file start at `id_base`, those returned at 0; shards of a dataset start at 0 already.

    Raises:
        InvalidRecords: naming file and 0-based record.
    """
    records = enumerate(read_tfrecords(path))
    while chunk := list(islice(records, BLOCK_ROWS)):
        labels = np.empty(len(chunk), np.float32)
        ids = np.empty((len(chunk), schema.field_size), np.int64)
        values = np.empty((len(chunk), schema.field_size), np.float32)
        for row, (record, payload) in enumerate(chunk):
            labels[row], ids[row], values[row] = decode_example(payload, schema.field_size, f"{path}, record {record}")
        batch = Batch(labels=labels, ids=ids - id_base, values=values)
        check_rows_of_records(batch, schema, path, chunk[0][0])
        yield batch


def check_rows_of_records(batch: Batch, schema: Schema, path: Path, first: int) -> None:
    """`check_batch`, naming the record of a wrong row (here every row is a record of its own)."""
    try:
        check_batch(batch, schema, str(path))
    except InvalidRecords:
        for row in range(len(batch)):
            check_batch(batch.rows(slice(row, row + 1)), schema, f"{path}, record {first + row}")
        raise
