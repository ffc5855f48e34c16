"""The training example, and the shard files that hold it.

A row is a label (float32, 0 or 1), `field_size` ids (0 <= id < feature_size) and as many float32 values.
A shard has one of three encodings, of which the first two are ordinary TFRecord files:

    examples   one tf.train.Example a record: `label` float, `ids` int64, `values` float; the interchange format
    blocks     one record = up to BLOCK_ROWS rows as raw little-endian columns behind a 16-byte header; nothing to parse
    libsvm     text, a row a line: `label id:value id:value ...`; for other tools, slow to read, and without checksums

Array suffixes: B rows, F fields.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords
from components.framing import frame, read_tfrecords

Encoding = Literal["blocks", "examples", "libsvm"]
ENCODINGS: tuple[Encoding, ...] = ("blocks", "examples", "libsvm")
SUFFIXES: dict[Encoding, str] = {"blocks": ".tfrecord", "examples": ".tfrecord", "libsvm": ".libsvm"}

# Ids are int32 in blocks and in the training program.
LARGEST_TABLE = 2**31 - 1

BLOCK_ROWS = 4096
BLOCK_MAGIC = int.from_bytes(b"CTRB", "little")
BLOCK_VERSION = 1
BLOCK_HEADER = struct.Struct("<IIII")  # magic, version, rows, fields


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The shape of every row of a dataset. Stored ids are 0-based; `id_base` is what the source declared."""

    field_size: int
    feature_size: int
    id_base: int = 0

    def __post_init__(self) -> None:
        if self.field_size < 1:
            raise InvalidConfig(f"field_size {self.field_size}: at least 1 is needed")
        if not 1 <= self.feature_size <= LARGEST_TABLE:
            raise InvalidConfig(f"feature_size {self.feature_size}: must be in 1..{LARGEST_TABLE}, blocks hold ids as int32")
        if self.id_base not in (0, 1):
            raise InvalidConfig(f"id_base {self.id_base}: must be 0 or 1")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows as columns: labels float32 [B], ids int64 [B, F], values float32 [B, F]."""

    labels: NDArray[np.float32]
    ids: NDArray[np.int64]
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, chosen: slice | NDArray[np.int64]) -> "Batch":
        """The chosen rows, in the order given."""
        return Batch(labels=self.labels[chosen], ids=self.ids[chosen], values=self.values[chosen])


def concatenate(batches: Iterable[Batch], field_size: int) -> Batch:
    """All rows of several batches as one; none gives an empty batch."""
    parts = list(batches)
    empty = Batch(
        labels=np.empty(0, np.float32), ids=np.empty((0, field_size), np.int64), values=np.empty((0, field_size), np.float32)
    )
    parts = parts or [empty]
    return Batch(
        labels=np.concatenate([part.labels for part in parts]),
        ids=np.concatenate([part.ids for part in parts]),
        values=np.concatenate([part.values for part in parts]),
    )


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of a dataset: path relative to the dataset, rows, clicks, size and digest."""

    path: str
    examples: int
    positives: int
    bytes: int
    sha256: str


def check_batch(batch: Batch, schema: Schema, place: str) -> None:
    """Refuse what no model can train on. `place` names file and record in the message.

    Raises:
        InvalidRecords: labels other than 0 and 1, ids outside the table, values that are not finite.
    """
    if batch.ids.shape[1:] != (schema.field_size,) or batch.values.shape != batch.ids.shape:
        raise InvalidRecords(f"{place}: {batch.ids.shape[1]} fields, the schema says {schema.field_size}; set --field-size")
    if (wrong := wrong_rows(batch, schema)).any():
        row = int(wrong.argmax())
        raise InvalidRecords(f"{place}, row {row}: {row_problem(batch, row, schema)}")


def wrong_rows(batch: Batch, schema: Schema) -> NDArray[np.bool_]:
    """Which rows [B] no model can train on; row_problem says why."""
    outside = (batch.ids < 0) | (batch.ids >= schema.feature_size)
    wrong: NDArray[np.bool_] = ~np.isin(batch.labels, (0.0, 1.0)) | outside.any(axis=1) | ~np.isfinite(batch.values).all(axis=1)
    return wrong


def row_problem(batch: Batch, row: int, schema: Schema) -> str:
    """What is wrong with a row that wrong_rows names."""
    label, ids, values = batch.labels[row], batch.ids[row], batch.values[row]
    if label not in (0.0, 1.0):
        return f"label {label:g} is neither 0 nor 1"
    outside = (ids < 0) | (ids >= schema.feature_size)
    if outside.any():
        return f"id {ids[outside.argmax()]} is outside 0..{schema.feature_size - 1}; raise --feature-size"
    field = int((~np.isfinite(values)).argmax())
    return f"value {values[field]} of id {ids[field]} is not finite"


def encode_block(batch: Batch) -> bytes:
    """Rows as one raw record: header, then labels, ids and values as whole columns, little-endian, row-major."""
    rows, fields = batch.ids.shape
    return b"".join(
        (
            BLOCK_HEADER.pack(BLOCK_MAGIC, BLOCK_VERSION, rows, fields),
            batch.labels.astype("<f4").tobytes(),
            batch.ids.astype("<i4").tobytes(),
            batch.values.astype("<f4").tobytes(),
        )
    )


def decode_block(payload: bytes, place: str) -> Batch:
    """The rows of one raw record.

    Raises:
        InvalidRecords: wrong magic, version or size.
    """
    if len(payload) < BLOCK_HEADER.size:
        raise InvalidRecords(f"{place}: {len(payload)} bytes are too few for a block")
    magic, version, rows, fields = BLOCK_HEADER.unpack_from(payload)
    if magic != BLOCK_MAGIC or version != BLOCK_VERSION:
        raise InvalidRecords(f"{place}: not a block of version {BLOCK_VERSION}")
    expected = BLOCK_HEADER.size + 4 * rows * (1 + 2 * fields)
    if len(payload) != expected:
        raise InvalidRecords(f"{place}: {len(payload)} bytes, {rows} rows of {fields} fields take {expected}")
    labels = np.frombuffer(payload, "<f4", rows, BLOCK_HEADER.size)
    ids = np.frombuffer(payload, "<i4", rows * fields, BLOCK_HEADER.size + 4 * rows)
    values = np.frombuffer(payload, "<f4", rows * fields, BLOCK_HEADER.size + 4 * rows * (1 + fields))
    return Batch(labels=labels, ids=ids.reshape(rows, fields).astype(np.int64), values=values.reshape(rows, fields))


def check_example(payload: bytes, schema: Schema, place: str) -> None:
    """Refuse a record that is no row of this schema, as `read_shard` does.

    Raises:
        InvalidRecords: what is wrong with it, at `place`.
    """
    from components.examples import decode_example

    label, ids, values = decode_example(payload, schema.field_size, place)
    batch = Batch(labels=np.array([label], np.float32), ids=np.array([ids], np.int64), values=np.array([values], np.float32))
    check_batch(batch, schema, place)


def pieces(batch: Batch, encoding: Encoding) -> Iterator[bytes]:
    """The bytes of a shard, piece by piece: framed blocks of BLOCK_ROWS rows, a framed example a row, or lines."""
    if encoding == "blocks":
        for start in range(0, len(batch), BLOCK_ROWS):
            yield frame(encode_block(batch.rows(slice(start, start + BLOCK_ROWS))))
    elif encoding == "libsvm":
        from components.libsvm import encode_lines

        for start in range(0, len(batch), BLOCK_ROWS):
            yield encode_lines(batch.rows(slice(start, start + BLOCK_ROWS)))
    else:
        from components.examples import encode_example

        for row in range(len(batch)):
            yield frame(encode_example(float(batch.labels[row]), batch.ids[row], batch.values[row]))


def write_shard(path: Path, batch: Batch, encoding: Encoding) -> Shard:
    """Write rows to one file. The returned path is `<split>/<file>`, relative to the dataset."""
    return write_stream(path, [batch], encoding)


def write_stream(path: Path, batches: Iterable[Batch], encoding: Encoding) -> Shard:
    """Write rows to one file as they come: the same bytes however they are divided into batches."""
    digest, size, examples, positives = hashlib.sha256(), 0, 0, 0
    with path.open("wb") as file:
        for block in in_blocks(batches):
            examples, positives = examples + len(block), positives + int(block.labels.sum())
            for piece in pieces(block, encoding):
                file.write(piece)
                digest.update(piece)
                size += len(piece)
    return Shard(
        path=f"{path.parent.name}/{path.name}", examples=examples, positives=positives, bytes=size, sha256=digest.hexdigest()
    )


def in_blocks(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The rows of batches of any size in batches of BLOCK_ROWS; only the last may be smaller."""
    waiting: list[Batch] = []
    for batch in batches:
        while len(batch):
            missing = BLOCK_ROWS - sum(map(len, waiting))
            waiting.append(batch.rows(slice(0, missing)))
            batch = batch.rows(slice(missing, None))
            if len(waiting[-1]) == missing:
                yield concatenate(waiting, waiting[0].ids.shape[1]) if len(waiting) > 1 else waiting[0]
                waiting = []
    if waiting:
        yield concatenate(waiting, waiting[0].ids.shape[1])


def read_shard(path: Path, schema: Schema, encoding: Encoding) -> Iterator[Batch]:
    """Rows of one file in batches of at most BLOCK_ROWS, every record checked against the schema."""
    if encoding == "blocks":
        for record, payload in enumerate(read_tfrecords(path)):
            place = f"{path}, record {record}"
            batch = decode_block(payload, place)
            check_batch(batch, schema, place)
            yield batch
    elif encoding == "libsvm":
        from components.libsvm import read_lines

        yield from read_lines(path, schema)
    else:
        from components.examples import read_examples

        yield from read_examples(path, schema)
