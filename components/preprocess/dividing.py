"""Rows of a chunk divided: those that train, those that validate, negative ones that are left out. No row depends on another.

Array suffix: B rows.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from components.preprocess.keys import Keys, below
from components.preprocess.kinds import shown
from components.preprocess.parsed import Reject
from components.preprocess.raw_rows import RawRows
from components.preprocess.splits import TIMES, SplitConfig, TimeRange, held_out_by_hash, held_out_by_time, kept, times_of


@dataclass(frozen=True, kw_only=True)
class Divided:
    """Which rows stay, bool [B]; of those that do their keys and whether they validate."""

    stays: NDArray[np.bool_]
    keys: Keys
    validates: NDArray[np.bool_]

    @property
    def left_out(self) -> int:
        return len(self.stays) - len(self.keys)


@dataclass(frozen=True, kw_only=True)
class Division:
    """Everything that decides where a row goes. `boundary` is the second from which on rows validate, where times divide them."""

    split: SplitConfig
    fraction: float
    seed: int
    negative_rate: float
    boundary: int | None = None

    def rows(self, keys_B: Keys, labels_B: NDArray[np.float32]) -> Divided:
        """Rows of a format without columns: each by its key."""
        return self._divided(keys_B, labels_B, below(keys_B, self.fraction))

    def table(self, raw: RawRows, keys_B: Keys, seconds_B: NDArray[np.int64]) -> Divided:
        """Rows of a table; `seconds_B` are their times, where times divide them."""
        if self.split.by == "time":
            assert self.boundary is not None
            validates = held_out_by_time(seconds_B, self.boundary)
        elif self.split.by == "hash":
            validates = held_out_by_hash(raw.batch.column(raw.batch.num_columns - 1), self.fraction, self.seed)
        else:
            validates = below(keys_B, self.fraction)
        return self._divided(keys_B, raw.labels, validates)

    def _divided(self, keys_B: Keys, labels_B: NDArray[np.float32], validates_B: NDArray[np.bool_]) -> Divided:
        # Validation rows stay as the traffic is: what is measured on them is true of it.
        stays = validates_B | kept(labels_B, keys_B, self.negative_rate)
        return Divided(stays=stays, keys=keys_B[stays], validates=validates_B[stays])


def timed(raw: RawRows, column: str, place: str) -> tuple[RawRows, NDArray[np.int64]]:
    """Rows whose last column is a time, and that time (int64, seconds since 1970 UTC); the others are refused.

    Args:
        place: what the number of a row follows in a message: "day1.csv, line ".
    """
    texts = raw.batch.column(raw.batch.num_columns - 1)
    times = times_of(texts)
    if not times.wrong.any():
        return raw, times.seconds
    rejects = list(raw.rejects)
    for row in np.flatnonzero(times.wrong).tolist():
        text, number = texts[row].as_py(), int(raw.numbers[row])
        found = "the time is missing" if text is None else f"{shown(text.encode())} is no time; {TIMES}"
        rejects.append(Reject(number, "time", f"{place}{number}: column {column}: {found}"))
    good = raw.only(~times.wrong)
    ordered = tuple(sorted(rejects, key=lambda reject: reject.number))
    return replace(good, rejects=ordered), times.seconds[~times.wrong]


def range_of(seconds_B: NDArray[np.int64]) -> TimeRange | None:
    return TimeRange(int(seconds_B.min()), int(seconds_B.max())) if len(seconds_B) else None
