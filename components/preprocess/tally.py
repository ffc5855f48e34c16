"""What is counted of rows while they pass: sums that merge, so that each process counts its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from components.manifest import ColumnStatistics, Statistics
from components.preprocess.codes import ValueCodes
from components.preprocess.collisions import TokenSketch
from components.preprocess.parsed import Parsed
from components.preprocess.transform import NumberField, Transform
from components.records import Batch

# Bytes that the exact sets of ids may take in one process, a byte for each id of each field; beyond it they become sketches.
EXACT_BYTES = 64 << 20
SKETCH_BYTES = 1 << 20


class DistinctIds:
    """How many different ids each field holds: exact up to EXACT_BYTES of sets, an estimate within about 1 % beyond.

    Source of the estimate: Whang, Vander-Zanden, Taylor 1990, linear-time probabilistic counting.
    """

    def __init__(self, field_size: int) -> None:
        self.sketched = False
        self.seen_FI = np.zeros((field_size, 0), bool)

    def __getstate__(self) -> tuple[bool, tuple[int, ...], NDArray[np.uint8]]:
        """Bits, not bytes, travel between processes."""
        return self.sketched, self.seen_FI.shape, np.packbits(self.seen_FI)

    def __setstate__(self, state: tuple[bool, tuple[int, ...], NDArray[np.uint8]]) -> None:
        self.sketched, shape, bits = state
        self.seen_FI = np.unpackbits(bits, count=int(np.prod(shape))).view(bool).reshape(shape)

    def add(self, ids_BF: NDArray[np.int64]) -> None:
        if not self.sketched and (largest := int(ids_BF.max(initial=-1))) >= self.seen_FI.shape[1]:
            self._grow(max(largest + 1, min(2 * self.seen_FI.shape[1], EXACT_BYTES // len(self.seen_FI))))
        self.seen_FI[np.arange(len(self.seen_FI)), _slot(ids_BF) if self.sketched else ids_BF] = True

    def _grow(self, width: int) -> None:
        fields, old = self.seen_FI.shape
        if fields * width > EXACT_BYTES:
            self._sketch()
        else:
            self.seen_FI = np.concatenate([self.seen_FI, np.zeros((fields, width - old), bool)], axis=1)

    def _sketch(self) -> None:
        """From sets to sketches; nothing that was seen is lost."""
        exact, self.sketched = self.seen_FI, True
        self.seen_FI = np.zeros((len(exact), SKETCH_BYTES), bool)
        for row, known in zip(self.seen_FI, exact, strict=True):
            row[_slot(np.flatnonzero(known))] = True

    def merge(self, other: "DistinctIds") -> None:
        for one, another in ((self, other), (other, self)):
            if one.sketched and not another.sketched:
                another._sketch()
        if not self.sketched:
            width = max(self.seen_FI.shape[1], other.seen_FI.shape[1])
            self._grow(width)
            other._grow(width)
            if self.sketched:
                return self.merge(other)
        self.seen_FI |= other.seen_FI
        return None

    def counts(self) -> tuple[int, ...]:
        set_F = self.seen_FI.sum(axis=1)
        if not self.sketched:
            return tuple(set_F.tolist())
        empty = np.maximum(1 - set_F / SKETCH_BYTES, 1 / SKETCH_BYTES)
        return tuple(round(-SKETCH_BYTES * float(np.log(share))) for share in empty)


def _slot(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(44)).astype(np.int64)  # 20 bits, as many as SKETCH_BYTES


@dataclass(kw_only=True)
class Tally:
    """Counts of rows that were taken."""

    field_size: int
    rows: int = 0
    positives: int = 0
    smallest_id: int = 2**63 - 1
    largest_id: int = -1
    smallest_value: float = float("inf")
    largest_value: float = float("-inf")
    missing: int = 0
    completed: int = 0
    repeated: int = 0
    unseen: int = 0
    by_column: NDArray[np.int64] | None = None
    distinct: DistinctIds = field(init=False)
    tokens: list[TokenSketch] = field(default_factory=list)
    codes: ValueCodes = field(init=False)

    def __post_init__(self) -> None:
        self.distinct = DistinctIds(self.field_size)
        self.codes = ValueCodes(self.field_size)

    def add(self, parsed: Parsed) -> None:
        self.missing += parsed.missing
        self.completed += parsed.completed
        self.repeated += parsed.repeated
        self.unseen += parsed.unseen
        self._add_tokens(parsed.hashes)
        self._add_columns(parsed.by_column)
        if len(parsed.batch):
            self._add_rows(parsed.batch)

    def _add_tokens(self, hashes: Sequence[NDArray[np.uint64]]) -> None:
        """Of each hashed column the hashes of its tokens."""
        self.tokens += [TokenSketch() for _ in range(len(hashes) - len(self.tokens))]
        for sketch, new in zip(self.tokens, hashes, strict=False):
            sketch.add(new)

    def _add_columns(self, by_column: NDArray[np.int64] | None) -> None:
        if by_column is not None:
            self.by_column = by_column + (0 if self.by_column is None else self.by_column)

    def _add_rows(self, batch: Batch) -> None:
        self.rows += len(batch)
        self.positives += int(batch.labels.sum())
        self._stretch(int(batch.ids.min()), int(batch.ids.max()), float(batch.values.min()), float(batch.values.max()))
        self.distinct.add(batch.ids)
        self.codes.add(batch.values)

    def _stretch(self, smallest_id: int, largest_id: int, smallest_value: float, largest_value: float) -> None:
        self.smallest_id, self.largest_id = min(self.smallest_id, smallest_id), max(self.largest_id, largest_id)
        self.smallest_value = min(self.smallest_value, smallest_value)
        self.largest_value = max(self.largest_value, largest_value)

    def merge(self, other: "Tally") -> None:
        for name in ("rows", "positives", "missing", "completed", "repeated", "unseen"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._stretch(other.smallest_id, other.largest_id, other.smallest_value, other.largest_value)
        self._add_columns(other.by_column)
        self.distinct.merge(other.distinct)
        self._add_tokens([sketch.hashes() for sketch in other.tokens])
        self.codes.merge(other.codes)


def statistics_of(tally: Tally, transform: Transform | None, repeats: int) -> Statistics:
    """What the manifest says of the rows; `repeats` are validation rows that also stand in train."""
    return Statistics(
        smallest_id=tally.smallest_id,
        largest_id=tally.largest_id,
        smallest_value=tally.smallest_value,
        largest_value=tally.largest_value,
        missing=tally.missing,
        click_rate=tally.positives / tally.rows,
        distinct_ids_by_field=tally.distinct.counts(),
        validation_rows_in_train=repeats,
        columns=_column_statistics(tally, transform) if transform else (),
    )


def _column_statistics(tally: Tally, transform: Transform) -> tuple[ColumnStatistics, ...]:
    assert tally.by_column is not None, "rows of a table are counted by column"
    counted = zip((*transform.numbers, *transform.categories), *tally.by_column.tolist(), strict=True)
    return tuple(
        ColumnStatistics(name=column.name, missing=missing)
        if isinstance(column, NumberField)
        else ColumnStatistics(
            name=column.name,
            missing=missing,
            unseen=None if column.rare is None else unseen,
            distinct=column.distinct,
            collision_rate=column.collision_rate if column.rare is None else None,
        )
        for column, missing, unseen in counted
    )
