"""TFRecord framing: length, its checksum, payload, its checksum. What a payload means is said in records.py and examples.py."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from components.errors import InvalidRecords

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
# No record of ours is larger; a damaged length field must not ask for gigabytes.
_MAX_RECORD_BYTES = 1 << 30


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


def read_framed(file: BinaryIO, name: str, first: int = 0) -> Iterator[bytes]:
    """Payloads of TFRecord framing to its last byte, every checksum verified; `name` and the `first` number are for messages."""
    for found in scan_framed(file, name, first):
        if isinstance(found, InvalidRecords):
            raise found
        yield found


def scan_framed(file: BinaryIO, name: str, first: int = 0) -> Iterator[bytes | InvalidRecords]:
    """Payloads of TFRecord framing, and in the place of a damaged one what is wrong with it.

    Past a damaged payload the next record is found by its length; a damaged length or a cut record is the last thing given.
    """
    record = first
    while header := file.read(12):
        where = f"{name}, record {record}"
        length_ok = len(header) == 12 and masked_crc(header[:8]) == _CRC.unpack(header[8:])[0]
        if not length_ok:
            yield _wrong_header(header, where, record)
            return
        (length,) = _LENGTH.unpack(header[:8])
        if length > _MAX_RECORD_BYTES:
            yield InvalidRecords(f"{where}: length {length} bytes, at most {_MAX_RECORD_BYTES} are read")
            return
        body = file.read(length + 4)
        if len(body) < length + 4:
            yield InvalidRecords(f"{where}: the file ends inside the record; {record} whole records before it")
            return
        payload = body[:length]
        damaged = masked_crc(payload) != _CRC.unpack(body[length:])[0]
        yield InvalidRecords(f"{where}: damaged payload (checksum differs)") if damaged else payload
        record += 1


def _wrong_header(header: bytes, where: str, record: int) -> InvalidRecords:
    """Why the next twelve bytes are no header of a record."""
    if record == 0:
        kind = "gzip-compressed, decompress it first" if header[:2] == b"\x1f\x8b" else "not a TFRecord file"
        return InvalidRecords(f"{where}: {kind} (starts with {header[:12]!r})")
    if len(header) < 12:
        return InvalidRecords(f"{where}: the file ends inside the record's header; {record} whole records before it")
    return InvalidRecords(f"{where}: damaged length (checksum differs); {record} whole records before it")
