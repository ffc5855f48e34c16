"""What is counted of rows while they pass: sums that merge, so that each process counts its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.manifest import ColumnStatistics, Statistics
from components.preprocess.codes import ValueCodes
from components.preprocess.collisions import TokenSketch
from components.preprocess.parsed import Parsed
from components.preprocess.transform import NumberField, Transform
from components.records import LARGEST_TABLE, Batch

# Bytes that the exact sets of ids may take in one process, a byte for each id of each field; beyond it they become sketches.
EXACT_BYTES = 64 << 20
SKETCH_BYTES = 1 << 20


class DistinctIds:
    """How many different ids each field holds: exact up to EXACT_BYTES of sets, an estimate within about 1 % beyond.

    Only the stretch of a field's set between its smallest and largest id is ever touched: fields whose ids follow each other, the
    usual case, take the memory of one table and not of one each.

    Source of the estimate: Whang, Vander-Zanden, Taylor 1990, linear-time probabilistic counting.
    """

    def __init__(self, field_size: int, feature_size: int = LARGEST_TABLE) -> None:
        self.sketched = False
        # All at once where the table is known and fits: growing copies.
        width = feature_size if field_size * feature_size <= EXACT_BYTES else 0
        self._take(np.zeros((field_size, width), bool), np.full(field_size, 2**62), np.zeros(field_size, np.int64))

    def _take(self, seen_FI: NDArray[np.bool_], first_F: NDArray[np.int64], stop_F: NDArray[np.int64]) -> None:
        """Sets by field; those of field f are within first_F[f]..stop_F[f] - 1."""
        self.seen_FI, self._first_F, self._stop_F = seen_FI, first_F, stop_F

    def __getstate__(self) -> tuple[Any, ...]:
        """Bits, not bytes, travel between processes."""
        bits = [np.packbits(row) for row in self._rows()]
        return self.sketched, self.seen_FI.shape, self._first_F, self._stop_F, bits

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.sketched, shape, first_F, stop_F, bits = state
        self._take(np.zeros(shape, bool), first_F, stop_F)
        for row, some in zip(self._rows(), bits, strict=True):
            row[:] = np.unpackbits(some, count=len(row))

    def _rows(self) -> list[NDArray[np.bool_]]:
        """The stretch of each field's set that may hold something."""
        return [row[first:stop] for row, first, stop in zip(self.seen_FI, self._first_F, self._stop_F, strict=True)]

    def add(self, ids_BF: NDArray[np.int64]) -> None:
        """Ids of some rows, at least one."""
        if not self.sketched and (largest := int(ids_BF.max())) >= self.seen_FI.shape[1]:
            self._grow(max(largest + 1, min(2 * self.seen_FI.shape[1], EXACT_BYTES // len(self.seen_FI))))
        found_BF = _slot(ids_BF) if self.sketched else ids_BF
        self._first_F = np.minimum(self._first_F, found_BF.min(axis=0))
        self._stop_F = np.maximum(self._stop_F, found_BF.max(axis=0) + 1)
        fields, width = self.seen_FI.shape
        self.seen_FI.reshape(-1)[found_BF + np.arange(fields) * width] = True

    def _grow(self, width: int) -> None:
        fields = len(self.seen_FI)
        if fields * width > EXACT_BYTES:
            self._sketch()
        else:
            old = self._rows()
            self._take(np.zeros((fields, width), bool), self._first_F, self._stop_F)
            for row, known in zip(self._rows(), old, strict=True):
                row[:] = known

    def _sketch(self) -> None:
        """From sets to sketches; nothing that was seen is lost."""
        exact, fields, self.sketched = self._rows(), len(self.seen_FI), True
        sketches = np.zeros((fields, SKETCH_BYTES), bool)
        for row, known, first in zip(sketches, exact, self._first_F, strict=True):
            row[_slot(first + np.flatnonzero(known))] = True
        self._take(sketches, np.zeros(fields, np.int64), np.full(fields, SKETCH_BYTES))

    def merge(self, other: "DistinctIds") -> None:
        for one, another in ((self, other), (other, self)):
            if one.sketched and not another.sketched:
                another._sketch()
        if not self.sketched:
            width = max(self.seen_FI.shape[1], other.seen_FI.shape[1])
            for each in (self, other):
                if each.seen_FI.shape[1] < width:
                    each._grow(width)
            if self.sketched:
                return self.merge(other)
        added = other._rows()
        for row, first, stop, more in zip(self.seen_FI, other._first_F, other._stop_F, added, strict=True):
            row[first:stop] |= more
        self._first_F = np.minimum(self._first_F, other._first_F)
        self._stop_F = np.maximum(self._stop_F, other._stop_F)
        return None

    def counts(self) -> tuple[int, ...]:
        set_F = tuple(int(np.count_nonzero(row)) for row in self._rows())
        if not self.sketched:
            return set_F
        empty = np.maximum(1 - np.array(set_F) / SKETCH_BYTES, 1 / SKETCH_BYTES)
        return tuple(round(-SKETCH_BYTES * float(np.log(share))) for share in empty)


def _slot(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(44)).astype(np.int64)  # 20 bits, as many as SKETCH_BYTES


@dataclass(kw_only=True)
class Tally:
    """Counts of rows that were taken."""

    field_size: int
    feature_size: int = LARGEST_TABLE
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
        self.distinct = DistinctIds(self.field_size, self.feature_size)
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
