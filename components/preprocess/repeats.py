"""How many validation rows also stand in train: exact repeats, found by their hashes, which go through scratch files."""

from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from components.manifest import SPLITS, SplitName
from components.records import Batch


def row_hashes(batch: Batch) -> NDArray[np.uint64]:
    """A 64-bit hash of each row [B]; equal rows have equal hashes, and others differ but for about one pair in 2^64.

    Id and bits of the value are one number a field, which an odd factor and a shift mix (a bijection), before the sum with odd
    factors: rows that differ in one field only always differ. Source: Carter, Wegman 1979 for sums with drawn factors.
    """
    fields = batch.ids.shape[1]
    inner, outer = np.random.default_rng(0x5EED).integers(1, 2**63, (2, fields + 1), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    mixed_BF = batch.ids.astype(np.uint64)
    mixed_BF <<= np.uint64(32)
    mixed_BF |= batch.values.view(np.uint32)
    mixed_BF *= inner[:fields]
    mixed_BF ^= mixed_BF >> np.uint64(32)
    mixed_BF *= outer[:fields]
    hashes: NDArray[np.uint64] = mixed_BF.sum(axis=1) + batch.labels.astype(np.uint64) * inner[fields]
    return hashes


def _name(split: SplitName, part: int, shard: str) -> str:
    return f"{split}-{part:04d}-{shard}.hashes"


class HashFiles:
    """Hashes of the rows of one shard, in 2^bits files by their first bits."""

    def __init__(self, folder: Path, split: SplitName, shard: str, bits: int) -> None:
        self._folder, self._split, self._shard, self._bits = folder, split, shard, bits
        self._files: dict[int, BinaryIO] = {}

    def __enter__(self) -> "HashFiles":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for file in self._files.values():
            file.close()

    def add(self, batch: Batch) -> None:
        hashes = np.sort(row_hashes(batch))
        parts = (hashes >> np.uint64(1) >> np.uint64(63 - self._bits)).astype(np.int64)
        found, starts = np.unique(parts, return_index=True)
        for part, some in zip(found.tolist(), np.split(hashes, starts[1:]), strict=True):
            if part not in self._files:
                self._files[part] = (self._folder / _name(self._split, part, self._shard)).open("wb")
            # Not by `tofile`, whose error does not say that a disk is full.
            self._files[part].write(some.data)


def repeated_rows(folder: Path, bits: int) -> int:
    """How many hashes of validation rows are hashes of training rows, too."""
    count = 0
    for part in range(1 << bits):
        train, validation = (
            [np.fromfile(path, np.uint64) for path in sorted(folder.glob(_name(split, part, "*")))] for split in SPLITS
        )
        if train and validation:
            hashes, wanted = np.sort(np.concatenate(train)), np.concatenate(validation)
            places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
            count += int(np.count_nonzero(hashes[places] == wanted))
    return count
