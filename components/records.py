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
from typing import BinaryIO, Literal

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords

Encoding = Literal["blocks", "examples", "libsvm"]
ENCODINGS: tuple[Encoding, ...] = ("blocks", "examples", "libsvm")
SUFFIXES: dict[Encoding, str] = {"blocks": ".tfrecord", "examples": ".tfrecord", "libsvm": ".libsvm"}

BLOCK_ROWS = 4096
BLOCK_MAGIC = int.from_bytes(b"CTRB", "little")
BLOCK_VERSION = 1
BLOCK_HEADER = struct.Struct("<IIII")  # magic, version, rows, fields

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
# No record of ours is larger; a damaged length field must not ask for gigabytes.
_MAX_RECORD_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The shape of every row of a dataset. Stored ids are 0-based; `id_base` is what the source declared."""

    field_size: int
    feature_size: int
    id_base: int = 0

    def __post_init__(self) -> None:
        if self.field_size < 1:
            raise InvalidConfig(f"field_size {self.field_size}: at least 1 is needed")
        if not 1 <= self.feature_size <= 2**31 - 1:
            raise InvalidConfig(f"feature_size {self.feature_size}: must be in 1..{2**31 - 1}, blocks hold ids as int32")
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
    wrong_labels = ~np.isin(batch.labels, (0.0, 1.0))
    if wrong_labels.any():
        row = int(wrong_labels.argmax())
        raise InvalidRecords(f"{place}, row {row}: label {batch.labels[row]:g} is neither 0 nor 1")
    outside = (batch.ids < 0) | (batch.ids >= schema.feature_size)
    if outside.any():
        row, field = np.argwhere(outside)[0]
        raise InvalidRecords(
            f"{place}, row {row}: id {batch.ids[row, field]} is outside 0..{schema.feature_size - 1}; raise --feature-size"
        )
    broken = ~np.isfinite(batch.values)
    if broken.any():
        row, field = np.argwhere(broken)[0]
        raise InvalidRecords(f"{place}, row {row}: value {batch.values[row, field]} of id {batch.ids[row, field]} is not finite")


def masked_crc(payload: bytes) -> int:
    """The checksum of TFRecord framing: CRC-32C, rotated and offset. Source: TensorFlow, lib/hash/crc32c.h."""
    crc: int = google_crc32c.value(payload)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """One TFRecord: length, its checksum, payload, its checksum."""
    length = _LENGTH.pack(len(payload))
    return b"".join((length, _CRC.pack(masked_crc(length)), payload, _CRC.pack(masked_crc(payload))))


def read_tfrecords(path: Path) -> Iterator[bytes]:
    """Payloads of a TFRecord file, every checksum verified.

    Raises:
        InvalidRecords: naming file and 0-based record, where TensorFlow names only an offset.
    """
    with path.open("rb") as file:
        yield from read_framed(file, str(path))


def read_framed(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Payloads of TFRecord framing from its first byte to its last, every checksum verified; `name` is for messages."""
    record = 0
    while header := file.read(12):
        where = f"{name}, record {record}"
        length_ok = len(header) == 12 and masked_crc(header[:8]) == _CRC.unpack(header[8:])[0]
        if not length_ok and record == 0:
            kind = "gzip-compressed, decompress it first" if header[:2] == b"\x1f\x8b" else "not a TFRecord file"
            raise InvalidRecords(f"{where}: {kind} (starts with {header[:12]!r})")
        if len(header) < 12:
            raise InvalidRecords(f"{where}: the file ends inside the record's header; {record} whole records before it")
        if not length_ok:
            raise InvalidRecords(f"{where}: damaged length (checksum differs); {record} whole records before it")
        (length,) = _LENGTH.unpack(header[:8])
        if length > _MAX_RECORD_BYTES:
            raise InvalidRecords(f"{where}: length {length} bytes, at most {_MAX_RECORD_BYTES} are read")
        body = file.read(length + 4)
        if len(body) < length + 4:
            raise InvalidRecords(f"{where}: the file ends inside the record; {record} whole records before it")
        payload = body[:length]
        if masked_crc(payload) != _CRC.unpack(body[length:])[0]:
            raise InvalidRecords(f"{where}: damaged payload (checksum differs)")
        yield payload
        record += 1


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
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for piece in pieces(batch, encoding):
            file.write(piece)
            digest.update(piece)
            size += len(piece)
    return Shard(
        path=f"{path.parent.name}/{path.name}",
        examples=len(batch),
        positives=int(batch.labels.sum()),
        bytes=size,
        sha256=digest.hexdigest(),
    )


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
