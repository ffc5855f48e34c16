"""Input files as chunks: some megabytes of whole lines or records, which know the number of their first.

Where a chunk ends depends on the file and CHUNK_BYTES only, never on how many processes there are.
"""

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.framing import read_framed
from components.preprocess.kinds import kind_of_file, shown

CHUNK_BYTES = 2 << 20
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Enough to tell what kind of file it is; a gzip stream of several members may give fewer at first.
_OPENING_BYTES = 16
# A row of a click log has a few hundred bytes; without this a file with no line feed would be read into memory whole.
MAX_LINE_BYTES = 16 << 20
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Whole lines or records that follow each other in a file.

    Attributes:
        file_index: which of the input files, from 0.
        first: number of the first line (from 1) or record (from 0).
        data: lines with their ends, of which the last line of a file may have none; or framed records.
        ends: where each record ends in `data`, int64 [B]; empty for text.
        offset: bytes of the file, compressed where it is, that were read so far: for the progress.
        start: where `data` stands in the file, byte for byte; None where it does not (compressed, converted).
    """

    path: Path
    file_index: int
    first: int
    data: bytes
    offset: int
    ends: NDArray[np.int64]
    start: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Bytes of the file do not travel between processes, only where they stand."""
        state = dict(vars(self))
        return state if self.start is None else {**state, "data": len(self.data)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["start"] is not None:
            state["data"] = _stretch(state["path"], state["start"], state["data"])
        vars(self).update(state)


def _stretch(path: Path, start: int, size: int) -> bytes:
    """Bytes of a file that were there when it was cut into chunks."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            data = file.read(size) or b""
    except OSError as error:
        raise InvalidRecords(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) < size:
        raise InvalidRecords(f"{path}: became shorter while it was read; wait until it is written, and run again")
    return data


def _opening(path: Path, text: bytes) -> bytes:
    """The beginning of a file without its byte order mark; a file of another kind is named."""
    if kind := kind_of_file(text):
        raise InvalidRecords(f"{path}: not a text file of rows; this looks like {kind}")
    return text.removeprefix(BYTE_ORDER_MARK)


def _refuse_long(path: Path, number: int, line: bytes) -> None:
    if problem := byte_problem(line, alone=number == 1):
        raise InvalidRecords(f"{path}, line {number}: {problem}")
    raise InvalidRecords(
        f"{path}, line {number}: no line feed in {MAX_LINE_BYTES} bytes; not a text file of rows, starts with {shown(line)}"
    )


def byte_problem(line: bytes, *, alone: bool) -> str:
    """What is wrong with the bytes of a line; empty when nothing is. `alone`: it is all that was found."""
    if b"\0" in line:
        return "a NUL byte; this is not a text file"
    if b"\r" in line:
        hint = "no line feed found, old Mac line ends?" if alone else "old Mac line ends?"
        return f"a carriage return inside the line ({hint}); convert line ends to LF"
    return ""


class _Filling:
    """Collects pieces of a stream until there is a chunk of them."""

    def __init__(self, file: io.BufferedReader | gzip.GzipFile, chunk_bytes: int) -> None:
        self._file, self._chunk_bytes = file, chunk_bytes
        self.ended = False
        self.failure: Exception | None = None

    def fill(self, rest: bytes) -> bytes:
        """`rest` and what follows it; less than a chunk only where the stream ended or is damaged."""
        pieces, size = [rest], len(rest)
        try:
            while size < max(self._chunk_bytes, len(rest) + 1):
                # read1 gives what is there before it raises for a damaged stream, so that the line number is right.
                piece = self._file.read1(self._chunk_bytes)
                if not piece:
                    self.ended = True
                    break
                pieces.append(piece)
                size += len(piece)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self.failure = error
        return b"".join(pieces)


def whole_lines(data: bytes) -> int:
    """How many bytes of `data` are lines with their ends."""
    return data.rfind(b"\n") + 1


def _line_feeds(data: bytes) -> int:
    # bytes.count takes five times as long where lines are short.
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == 0x0A))


def text_chunks(
    path: Path, file_index: int = 0, chunk_bytes: int = CHUNK_BYTES, whole: Callable[[bytes], int] = whole_lines
) -> Iterator[Chunk]:
    """The lines of a text file; gzip is decompressed, a byte order mark dropped.

    Args:
        whole: how many of some bytes are whole rows.

    Raises:
        InvalidRecords: a truncated or damaged gzip stream, after the whole lines before it; a file that is not text.
        OSError: the file cannot be opened or read.
    """
    none = np.empty(0, np.int64)
    with path.open("rb") as raw:
        compressed = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        filling = _Filling(gzip.GzipFile(fileobj=raw) if compressed else raw, chunk_bytes)
        first, at, rest, opened = 1, 0, b"", False
        while not (filling.ended or filling.failure):
            rest = filling.fill(rest)
            if not opened and (len(rest) >= _OPENING_BYTES or filling.ended):
                text = _opening(path, rest)
                at, rest, opened = len(rest) - len(text), text, True
            end = len(rest) if filling.ended else whole(rest)
            data, rest = rest[:end], rest[end:]
            if data:
                start = None if compressed else at
                yield Chunk(path=path, file_index=file_index, first=first, data=data, offset=raw.tell(), ends=none, start=start)
                first += _line_feeds(data)
                at += len(data)
            if len(rest) > MAX_LINE_BYTES:
                _refuse_long(path, first, rest)
    if isinstance(filling.failure, EOFError):
        raise InvalidRecords(f"{path}: compressed file ended early after line {first - 1}; send it again")
    if filling.failure:
        raise InvalidRecords(f"{path}: damaged gzip data after line {first - 1} ({filling.failure}); send it again")


def _record_ends(data: bytes) -> list[int]:
    """Where the whole records of `data` end, by their lengths, whose checksums are not looked at here."""
    ends, position, last = [], 0, len(data) - 16
    unpack = _LENGTH.unpack_from
    while position <= last:
        position += 16 + unpack(data, position)[0]
        if position <= len(data):
            ends.append(position)
    return ends


def record_chunks(path: Path, file_index: int = 0, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """The records of a TFRecord file.

    Raises:
        InvalidRecords: the file ends inside a record, or a length is damaged so that no whole record follows.
        OSError: the file cannot be opened or read.
    """
    with path.open("rb") as file:
        first, at, rest = 0, 0, b""
        while block := file.read(chunk_bytes):
            data = rest + block
            if ends := _record_ends(data):
                yield Chunk(
                    path=path,
                    file_index=file_index,
                    first=first,
                    data=data[: ends[-1]],
                    offset=file.tell(),
                    ends=np.array(ends),
                    start=at,
                )
                first += len(ends)
                at += ends[-1]
            rest = data[ends[-1] if ends else 0 :]
            if len(rest) > chunk_bytes:
                # A record that is larger than a chunk, or a damaged length that asks for gigabytes.
                check_header(path, first, rest[:12])
    if rest:
        list(read_framed(io.BytesIO(rest), str(path), first))


def check_header(path: Path, record: int, header: bytes) -> None:
    """Refuse a record by the 12 bytes before its payload.

    Raises:
        InvalidRecords: the length is damaged, or beyond all sense.
    """
    # What is whole but has no payload here ends "inside the record": only this question is not asked here.
    try:
        list(read_framed(io.BytesIO(header), str(path), record))
    except InvalidRecords as error:
        if "ends inside the record;" not in str(error):
            raise
