"""TFRecord files of tf.train.Example with `label`, `ids` and `values`: many records of like layout decoded at once.

The wire format is Google's Protocol Buffers (encoding guide): a tag, a length, that many bytes, three levels deep:

    Example   0A n { entries }
    entry     0A n { 0A n <name> 12 n { list } }
    list      1A n (int64) or 12 n (float) { 0A n <packed values> }

A position for each record walks through all records of a chunk together. What is not exactly of this layout, in whatever way
that is legal or not, is left to protobuf itself, record by record.
"""

import io

import google_crc32c
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.examples import FEATURES, check_rows, decode_example
from components.framing import masked_crc, read_framed
from components.preprocess.chunks import Chunk
from components.preprocess.libsvm import repeated_ids
from components.preprocess.parsed import BadRow, Parsed, Reason, Reject, place
from components.records import Batch, Schema, concatenate

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
# Lengths of messages: two groups of 7 bits reach 16 KiB, three 2 MiB.
_LENGTH_BYTES = 3
# An id below 2^31 has at most 5 groups; a negative one, which is refused anyway, has 10.
_ID_BYTES = 5
# The lower seven bits of so many bytes.
_GROUPS_OF = np.array([int.from_bytes(b"\x7f" * size, "little") for size in range(_ID_BYTES + 1)], np.uint64)


class _OtherLayout(Exception):
    """Some record is not of the layout of the others."""


def _lengths(data: Bytes, at: Positions) -> tuple[Positions, Positions]:
    """Varints at positions [B], and the positions after them."""
    found, after, more = np.zeros(len(at), np.int64), at.copy(), np.ones(len(at), bool)
    for group in range(_LENGTH_BYTES):
        byte = data[after]
        found += np.where(more, (byte & 0x7F).astype(np.int64) << 7 * group, 0)
        after += more
        more = more & (byte >= 0x80)
        if not more.any():
            return found, after
    raise _OtherLayout


def _entered(data: Bytes, at: Positions, tag: int, end: Positions | None = None) -> tuple[Positions, Positions]:
    """Where the bytes of a field with `tag` begin and end, [B] each; `end` is where they must end."""
    if (data[at] != tag).any():
        raise _OtherLayout
    length, start = _lengths(data, at + 1)
    if end is not None and (start + length != end).any():
        raise _OtherLayout
    return start, start + length


def _feature(data: Bytes, at: Positions) -> tuple[str, int, Positions, Positions, Positions]:
    """Name, kind (the tag of its list), begin and end of its packed values, and where the feature ends."""
    entry, after = _entered(data, at, 0x0A)
    start, end = _entered(data, entry, 0x0A)
    name = data[start[0] : end[0]]
    if len(name) > 6 or (end - start != len(name)).any() or (sliding_window_view(data, len(name))[start] != name).any():
        raise _OtherLayout
    feature, _ = _entered(data, end, 0x12, after)
    kind = int(data[feature[0]])
    inner, _ = _entered(data, feature, kind, after)
    start, _ = _entered(data, inner, 0x0A, after)
    return name.tobytes().decode("ascii", "replace"), kind, start, after, after


def _floats(data: Bytes, start: Positions, end: Positions, count: int) -> NDArray[np.float32]:
    """Packed floats [B, count]."""
    if (end - start != 4 * count).any():
        raise _OtherLayout
    return sliding_window_view(data, 4 * count)[start].view("<f4")


def _varints(data: Bytes, start: Positions, end: Positions, count: int) -> NDArray[np.int64]:
    """Packed varints [B, count]."""
    lengths = end - start
    # Bytes of all records one after the other: slices of bytes, because positions of each would be eight times as large.
    whole = data.tobytes()
    parts = [whole[begin:stop] for begin, stop in zip(start.tolist(), end.tolist(), strict=True)]
    packed = np.frombuffer(b"".join(parts), np.uint8)
    last = np.flatnonzero(packed < 0x80)
    if len(last) != count * len(start) or (last[count - 1 :: count] != np.cumsum(lengths) - 1).any():
        raise _OtherLayout
    first = np.concatenate([[0], last[:-1] + 1])
    sizes = last - first + 1
    longest = int(sizes.max())
    if longest > _ID_BYTES:
        raise _OtherLayout
    # The four or eight bytes from each first one on as one number, of which those after the last are cleared; then its groups of
    # seven bits move together.
    size = 4 if longest <= 4 else 8
    padded = np.concatenate([packed, np.zeros(size, np.uint8)])
    words = np.ndarray((len(packed),), f"<u{size}", padded, strides=(1,)).take(first)
    words &= _GROUPS_OF.astype(words.dtype).take(sizes)
    found = words & words.dtype.type(0x7F)
    for group in range(1, longest):
        found |= (words & words.dtype.type(0x7F << 8 * group)) >> words.dtype.type(group)
    ids: NDArray[np.int64] = found.astype(np.int64).reshape(len(start), count)
    return ids


def decode_many(data: Bytes, start: Positions, end: Positions, field_size: int) -> Batch | None:
    """Rows of records between positions [B] of `data`; None when some record is of another layout."""
    # Positions that damage leads astray end in bytes that are no tag.
    data = np.concatenate([data, np.full(4 * field_size + 16, 0xFF, np.uint8)])
    parts: dict[str, NDArray[np.float32] | NDArray[np.int64]] = {}
    try:
        at, _ = _entered(data, start, 0x0A, end)
        for _ in FEATURES:
            name, kind, first, last, at = _feature(data, at)
            if (name, kind) == ("ids", 0x1A):
                parts[name] = _varints(data, first, last, field_size)
            elif (name, kind) in (("label", 0x12), ("values", 0x12)):
                parts[name] = _floats(data, first, last, 1 if name == "label" else field_size)
        if (at != end).any() or len(parts) != len(FEATURES):
            return None
    except (_OtherLayout, IndexError):
        return None
    labels, values = parts["label"][:, 0].astype(np.float32), parts["values"].astype(np.float32, copy=False)
    return Batch(labels=labels, ids=parts["ids"].astype(np.int64, copy=False), values=values)


def _framing_holds(chunk: Chunk, start: Positions) -> bool:
    """Whether every checksum of a chunk is right; `start` is where each record begins."""
    data = np.frombuffer(chunk.data, np.uint8)
    # Few lengths are different, and the checksum of one is that of all like it.
    _, some = np.unique(sliding_window_view(data, _HEADER_BYTES)[start].view("V12"), return_index=True)
    headers = [chunk.data[at : at + _HEADER_BYTES] for at in start[some].tolist()]
    if any(masked_crc(header[:8]) != int.from_bytes(header[8:], "little") for header in headers):
        return False
    ends = chunk.ends - _FOOTER_BYTES
    payloads, value = chunk.data, google_crc32c.value
    spans = zip((start + _HEADER_BYTES).tolist(), ends.tolist(), strict=True)
    crcs = np.array([value(payloads[begin:end]) for begin, end in spans], np.uint32)
    expected = sliding_window_view(data, _FOOTER_BYTES)[ends].view("<u4")[:, 0]
    return bool(((crcs >> 15 | crcs << 17) + np.uint32(0xA282EAD8) == expected).all())


def parse_tfrecord(chunk: Chunk, schema: Schema, *, skip: bool) -> Parsed:
    """Rows of a chunk, of whose records every checksum is verified; wrong ones are refused to the first or, with `skip`, each."""
    start = np.concatenate([[0], chunk.ends[:-1]])
    if _framing_holds(chunk, start):
        data = np.frombuffer(chunk.data, np.uint8)
        batch = decode_many(data, start + _HEADER_BYTES, chunk.ends - _FOOTER_BYTES, schema.field_size)
        if batch is not None:
            try:
                rows = check_rows(batch, schema, schema.id_base, chunk.path, chunk.first)
                numbers = np.arange(chunk.first, chunk.first + len(rows))
                return Parsed(batch=rows, numbers=numbers, repeated=_repeated(rows))
            except InvalidRecords:
                pass  # named below, by the path that knows the kind
    return _one_by_one(chunk, start, schema, skip=skip)


def _one_by_one(chunk: Chunk, start: Positions, schema: Schema, *, skip: bool) -> Parsed:
    batches, numbers, rejects, fatal = [], [], [], ""
    for number, (begin, end) in enumerate(zip(start.tolist(), chunk.ends.tolist(), strict=True), chunk.first):
        record = chunk.data[begin:end]
        if masked_crc(record[:8]) != int.from_bytes(record[8:12], "little"):
            fatal = _framing_problem(chunk.data[begin:], str(chunk.path), number)
            break
        try:
            batches.append(_row(chunk, number, record, schema))
            numbers.append(number)
        except BadRow as error:
            rejects.append(Reject(number, error.reason, str(error)))
            if not skip:
                break
    batch = concatenate(batches, schema.field_size)
    numbers_B = np.array(numbers, np.int64)
    return Parsed(batch=batch, numbers=numbers_B, rejects=tuple(rejects), fatal=fatal, repeated=_repeated(batch))


def _repeated(batch: Batch) -> int:
    """How many rows hold an id more than once; hashed and multi-valued fields make such, and real data has them."""
    # Rows whose ids rise hold none twice, and most are such.
    unordered = ~(batch.ids[:, 1:] > batch.ids[:, :-1]).all(axis=1)
    return int(repeated_ids(batch.ids[unordered], batch.values[unordered]).sum())


def _framing_problem(data: bytes, name: str, number: int) -> str:
    """The sentence about a record whose framing is damaged; empty when it is not."""
    try:
        next(read_framed(io.BytesIO(data), name, number))
    except InvalidRecords as error:
        return str(error)
    return ""


def _row(chunk: Chunk, number: int, record: bytes, schema: Schema) -> Batch:
    """One record.

    Raises:
        BadRow: saying what is wrong with it.
    """
    where = place(chunk.path, "record", number)
    if damage := _framing_problem(record, str(chunk.path), number):
        raise BadRow("damaged", damage)
    reason: Reason = "example"
    try:
        label, ids, values = decode_example(record[_HEADER_BYTES:-_FOOTER_BYTES], schema.field_size, where)
        batch = Batch(labels=np.array([label], np.float32), ids=np.array([ids], np.int64), values=np.array([values], np.float32))
        outside = (batch.ids < schema.id_base) | (batch.ids >= schema.feature_size + schema.id_base)
        reason = "id" if outside.any() else "value" if label in (0.0, 1.0) else "label"
        return check_rows(batch, schema, schema.id_base, chunk.path, number)
    except InvalidRecords as error:
        raise BadRow(reason, str(error)) from error
