"""Rows on scratch disk between parsing and writing: by split and by range of keys, so that a range fits into memory.

A row is 32-bit words: key (2), label, ids (F), values (F). The files of a bucket, one for each process that wrote, together hold
its rows in no order; sorted by key they are a stretch of the global shuffle.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from components.manifest import SPLITS, SplitName
from components.preprocess.keys import Keys
from components.records import BLOCK_ROWS, Batch

Words = NDArray[np.uint32]
Order = NDArray[np.int64]
_PIECE_ROWS = 4 * BLOCK_ROWS


def row_words(field_size: int) -> int:
    return 3 + 2 * field_size


def to_words(keys: Keys, batch: Batch) -> Words:
    fields = batch.ids.shape[1]
    words = np.empty((len(batch), row_words(fields)), np.uint32)
    words[:, :2] = keys.view(np.uint32).reshape(len(batch), 2)
    words[:, 2] = batch.labels.view(np.uint32)
    words[:, 3 : 3 + fields] = batch.ids
    words[:, 3 + fields :] = batch.values.view(np.uint32)
    return words


def to_batch(words: Words) -> Batch:
    fields = (words.shape[1] - 3) // 2
    return Batch(
        labels=words[:, 2].copy().view(np.float32),
        ids=words[:, 3 : 3 + fields].astype(np.int64),
        values=words[:, 3 + fields :].copy().view(np.float32),
    )


def keys_of(words: Words) -> Keys:
    return np.ascontiguousarray(words[:, :2]).view(np.uint64)[:, 0]


@dataclass(kw_only=True)
class SpillWriter:
    """What one process writes. `bits`: there are 2^bits buckets, by the first bits of the key; `counts` [split, bucket]."""

    folder: Path
    bits: int
    writer: int
    counts: NDArray[np.int64] = field(init=False)
    _files: dict[tuple[int, int], BinaryIO] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.counts = np.zeros((len(SPLITS), 1 << self.bits), np.int64)

    def add(self, keys: Keys, validates: NDArray[np.bool_], batch: Batch) -> None:
        if not len(batch):
            return
        buckets = (keys >> np.uint64(1) >> np.uint64(63 - self.bits)).astype(np.uint16)
        places = validates.astype(np.uint16) << np.uint16(self.bits) | buckets
        # Numbers of 16 bits are sorted by radix, in a tenth of the time.
        words = to_words(keys, batch).take(np.argsort(places, kind="stable"), axis=0)
        counts = np.bincount(places, minlength=self.counts.size).reshape(self.counts.shape)
        stops = np.cumsum(counts).tolist()
        for where in np.flatnonzero(counts).tolist():
            start = stops[where - 1] if where else 0
            self._file(*divmod(where, 1 << self.bits)).write(words[start : stops[where]].data)
        self.counts += counts

    def _file(self, split: int, bucket: int) -> BinaryIO:
        if (split, bucket) not in self._files:
            self._files[split, bucket] = (self.folder / bucket_name(SPLITS[split], bucket, self.writer)).open("wb")
        return self._files[split, bucket]

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def bucket_name(split: SplitName, bucket: int, writer: int | str) -> str:
    return f"{split}-{bucket:04d}-{writer}.rows"


@dataclass(frozen=True, kw_only=True)
class SpillReader:
    """Rows of a split in the order of their keys, at most about `limit_rows` of them in memory."""

    folder: Path
    bits: int
    field_size: int
    limit_rows: int

    def bucket(self, split: SplitName, bucket: int) -> Iterator[tuple[Words, Order]]:
        """A bucket in parts of rising keys, rows and their order: in one where it fits, else in several passes over its files."""
        files = sorted(self.folder.glob(bucket_name(split, bucket, "*")))
        width = row_words(self.field_size)
        total = sum(path.stat().st_size for path in files) // (4 * width)
        passes = -(-total // self.limit_rows)
        span = -(-(1 << (64 - self.bits)) // max(passes, 1))
        for number in range(passes):
            if passes == 1:
                words = _whole(files, total, width)
            else:
                parts = []
                for path in files:
                    for piece in _pieces(path, width, _PIECE_ROWS):
                        offset = keys_of(piece) - np.uint64(bucket << (64 - self.bits))
                        parts.append(piece[offset // np.uint64(span) == number])
                words = np.concatenate(parts)
            yield words, np.argsort(keys_of(words))

    def stretch(self, split: SplitName, counts: list[int], start: int, stop: int) -> "Stretch":
        """Rows start..stop of a split; `counts` are those of its buckets."""
        return Stretch(self._between(split, counts, start, stop))

    def _between(self, split: SplitName, counts: list[int], start: int, stop: int) -> Iterator[tuple[Words, Order]]:
        at = 0
        for bucket, count in enumerate(counts):
            if at < stop and at + count > start:
                first = at
                for words, order in self.bucket(split, bucket):
                    low, high = max(start - first, 0), min(stop - first, len(words))
                    if low < high:
                        yield words, order[low:high]
                    first += len(words)
            at += count


class Stretch:
    """Neighbouring rows, which several shards take one after the other: each bucket is read and sorted once for all of them."""

    def __init__(self, parts: Iterator[tuple[Words, Order]]) -> None:
        self._parts = parts
        self._words, self._left = np.empty((0, 0), np.uint32), np.empty(0, np.int64)

    def next_rows(self, count: int) -> Iterator[Batch]:
        """The next `count` rows in whole blocks, of which only the last may be shorter."""
        while count:
            # A block at a time, which the processor's caches hold until it is written.
            rows = min(BLOCK_ROWS, count)
            block = self._block(rows)
            yield to_batch(np.concatenate(block) if len(block) > 1 else block[0])
            count -= rows

    def _block(self, rows: int) -> list[Words]:
        found: list[Words] = []
        while rows:
            if not len(self._left):
                self._words, self._left = next(self._parts)
            taken, self._left = np.split(self._left, [rows])
            found.append(self._words.take(taken, axis=0))
            rows -= len(taken)
        return found


def _whole(files: list[Path], rows: int, width: int) -> Words:
    """All rows of some files."""
    words = np.empty((rows, width), np.uint32)
    space, at = words.data.cast("B"), 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            at += file.readinto(space[at:])
    assert at == len(space)
    return words


def _pieces(path: Path, width: int, rows: int) -> Iterator[Words]:
    with path.open("rb") as file:
        while len(words := np.fromfile(file, np.uint32, rows * width)):
            yield words.reshape(-1, width)


def move_one(reader: SpillReader, counts: NDArray[np.int64], source: SplitName) -> None:
    """Give the other split, which is empty, one row: the smallest key of train, or the largest of validation."""
    of, other = SPLITS.index(source), 1 - SPLITS.index(source)
    buckets = np.flatnonzero(counts[of])
    bucket = int(buckets[0] if source == "train" else buckets[-1])
    parts = [words.take(order, axis=0) for words, order in reader.bucket(source, bucket)]
    for path in reader.folder.glob(bucket_name(source, bucket, "*")):
        path.unlink()
    rows = np.concatenate(parts)
    chosen = slice(0, 1) if source == "train" else slice(len(rows) - 1, None)
    (reader.folder / bucket_name(SPLITS[other], bucket, "moved")).write_bytes(rows[chosen].data)
    rest = rows[1:] if source == "train" else rows[:-1]
    if len(rest):
        (reader.folder / bucket_name(source, bucket, "rest")).write_bytes(rest.data)
    counts[of, bucket] -= 1
    counts[other, bucket] += 1
