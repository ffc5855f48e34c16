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
from components.framing import read_tfrecords
from components.records import BLOCK_MAGIC, BLOCK_ROWS, LARGEST_TABLE, Batch, Schema, check_batch

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


def parse_example(payload: bytes, place: str) -> Any:
    """The message of one record, whatever its features are called.

    Raises:
        InvalidRecords: not an Example, or one without features.
    """
    if payload[:4] == BLOCK_MAGIC.to_bytes(4, "little"):
        raise InvalidRecords(f"{place} is a ctrflow block, not a tf.train.Example; give the dataset's own source files")
    example = _Example()
    try:
        example.ParseFromString(payload)
    except message.DecodeError as error:
        raise InvalidRecords(f"{place} is not a tf.train.Example") from error
    if not example.features.feature:
        raise InvalidRecords(f"{place} is not a tf.train.Example: it has no features")
    return example


def _parse(payload: bytes, place: str) -> Any:
    """The message of one record, with the features that a row needs."""
    example = parse_example(payload, place)
    found = sorted(example.features.feature)
    if missing := [name for name in FEATURES if name not in found]:
        # A damaged or hostile name must not spoil the one line that a person reads.
        names = ", ".join(name[:40] if name[:40].isprintable() else repr(name[:40]) for name in found[:50])
        more = f" and {len(found) - 50} more" if len(found) > 50 else ""
        raise InvalidRecords(f"{place}: no feature {', '.join(missing)}; found {names}{more}, wanted {', '.join(FEATURES)}")
    return example


def decode_example(payload: bytes, field_size: int, place: str) -> tuple[float, Any, Any]:
    """Label, ids [F] and values [F] of one record.

    Raises:
        InvalidRecords: not an Example, other feature names, types or lengths.
    """
    example = _parse(payload, place)
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
    failure: InvalidRecords | None = None
    while failure is None:
        labels = np.empty(BLOCK_ROWS, np.float32)
        ids = np.empty((BLOCK_ROWS, schema.field_size), np.int64)
        values = np.empty((BLOCK_ROWS, schema.field_size), np.float32)
        first, rows = 0, 0
        # What cannot be read waits until the records before it are checked, so that the first wrong one is named.
        try:
            for row, (record, payload) in enumerate(islice(records, BLOCK_ROWS)):
                labels[row], ids[row], values[row] = decode_example(payload, schema.field_size, f"{path}, record {record}")
                first, rows = record - row, row + 1
        except InvalidRecords as error:
            failure = error
        if rows:
            batch = Batch(labels=labels[:rows], ids=ids[:rows], values=values[:rows])
            yield check_rows(batch, schema, id_base, path, first)
        elif failure is None:
            return
    raise failure


def check_rows(found: Batch, schema: Schema, id_base: int, path: Path, first: int) -> Batch:
    """Rows with ids from 0, every one checked; `found` has them as in the file, from record `first` on."""
    ids = found.ids
    if ids.min(initial=id_base) >= id_base and ids.max(initial=id_base) < schema.feature_size + id_base:
        batch = Batch(labels=found.labels, ids=ids - id_base if id_base else ids, values=found.values)
        if np.isfinite(batch.values).all() and ((batch.labels == 0) | (batch.labels == 1)).all():
            return batch
    outside = (ids < id_base) | (ids >= schema.feature_size + id_base)
    batch = Batch(labels=found.labels, ids=np.where(outside, 0, ids - id_base), values=found.values)
    try:
        check_batch(batch, schema, str(path))
        wrong = bool(outside.any())
    except InvalidRecords:
        wrong = True
    if wrong:
        for row in range(len(batch)):
            place = f"{path}, record {first + row}"
            if outside[row].any():
                raise InvalidRecords(f"{place}: {_outside(int(ids[row][outside[row]][0]), schema, id_base)}")
            check_batch(batch.rows(slice(row, row + 1)), schema, place)
    return batch


def _outside(found: int, schema: Schema, id_base: int) -> str:
    """What is wrong with an id, as it stands in the file."""
    last = schema.feature_size - 1 + id_base
    too_large = (
        "raise --feature-size or check --id-base" if schema.feature_size < LARGEST_TABLE else "map the ids to a smaller range"
    )
    hint = too_large if found > last else "check --id-base"
    return f"id {found} is outside {id_base}..{last}; {hint}"


def peek_field_size(path: Path) -> int:
    """How many ids the first record of a file of Examples holds.

    Raises:
        InvalidRecords: no record, or not an Example with ids.
    """
    for payload in read_tfrecords(path):
        place = f"{path}, record 0"
        found = len(_parse(payload, place).features.feature["ids"].int64_list.value)
        # Whatever else is wrong with it, decode_example names it.
        decode_example(payload, max(found, 1), place)
        return found
    raise InvalidRecords(f"{path}: 0 records; send the file again")
