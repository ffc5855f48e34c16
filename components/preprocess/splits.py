"""Which rows validate by a column's text or time instead of by their key, and which negative rows are kept: decided row by row.

Array suffix: B rows.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords
from components.manifest import SplitBy
from components.preprocess.hashing import token_hashes
from components.preprocess.keys import below, mix

# One draw must not follow from another: the key that shuffles is mixed again, before it decides more.
_KEEP = np.uint64(0x6B656570)
_DAY_S = 86_400
# Fewer digits are dates or hours in notations that only their writers know, more are milliseconds.
_UNIX_SECONDS = re.compile(r"[0-9]{9,11}(\.[0-9]+)?")
TIMES = "a time is ISO 8601 (2026-12-02, 2026-12-02T10:30:00Z) or unix seconds, not milliseconds"


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Which rows validate.

    `row` draws each by itself; `hash` draws texts of `column`, so that all rows of a user stay together; `time` takes those of the
    last UTC day in `column`, or from `boundary` on.
    """

    by: SplitBy = "row"
    column: str = ""
    boundary: str = ""

    def __post_init__(self) -> None:
        if self.by not in get_args(SplitBy):
            raise InvalidConfig(f"split by {self.by!r} is none of {', '.join(get_args(SplitBy))}")
        if self.by == "row" and (self.column or self.boundary):
            given = f"column {self.column!r}" if self.column else f"boundary {self.boundary!r}"
            raise InvalidConfig(f"split {given}: say how it divides the rows, --split-by hash or time")
        if self.by != "row" and not self.column:
            raise InvalidConfig(f"split by {self.by}: say by which column, such as --split-column user")
        if self.boundary and self.by != "time":
            raise InvalidConfig(f"split boundary {self.boundary!r}: only times have one; leave it out, or give --split-by time")
        if self.boundary:
            boundary_of(self.boundary)


def held_out_by_hash(texts: pa.Array, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Rows that validate: all rows with the same text stand on the same side, in every file and on every day.

    Missing cells count as one text. About `fraction` of the texts validates, which need not be that fraction of the rows.
    """
    encoded = pc.fill_null(texts, "").dictionary_encode()
    hashes = token_hashes(encoded.dictionary.cast(pa.binary()), np.full(len(encoded.dictionary), seed, np.uint64))
    # Mixed again, because a hashed column with this seed takes its ids from the same hashes.
    chosen: NDArray[np.bool_] = below(mix(hashes), fraction)[encoded.indices.to_numpy()]
    return chosen


@dataclass(frozen=True, kw_only=True)
class Times:
    """The times of rows in seconds since 1970 UTC, int64 [B], and which rows have none, bool [B]."""

    seconds: NDArray[np.int64]
    wrong: NDArray[np.bool_]


def times_of(texts: pa.Array) -> Times:
    """Times written as ISO 8601 (a date, or date and time, UTC unless an offset is given) or as unix seconds."""
    encoded = texts.dictionary_encode()
    found = [parsed_time(text) for text in encoded.dictionary.to_pylist()]
    lookup = np.array([0 if seconds is None else seconds for seconds in found] + [0], np.int64)
    unknown = np.array([seconds is None for seconds in found] + [True])
    places = pc.fill_null(encoded.indices, len(found)).to_numpy(zero_copy_only=False)
    return Times(seconds=lookup[places], wrong=unknown[places])


def parsed_time(text: str) -> int | None:
    """Whole seconds since 1970 UTC; None where the text is no time."""
    if _UNIX_SECONDS.fullmatch(text):
        return int(text.partition(".")[0])
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() // 1)
    except (ValueError, OverflowError):
        return None


def boundary_of(text: str) -> int:
    """The second from which on rows validate, as a user declares it.

    Raises:
        InvalidConfig: no time.
    """
    if (seconds := parsed_time(text)) is None:
        raise InvalidConfig(f"split boundary {text!r}: {TIMES}")
    return seconds


def last_day(latest: int) -> int:
    """The second at which the UTC day of the latest row began: from there on rows validate."""
    return latest - latest % _DAY_S


def held_out_by_time(seconds_B: NDArray[np.int64], boundary: int) -> NDArray[np.bool_]:
    """Rows that validate: those at the boundary or later, as the next day's data come after today's."""
    return seconds_B >= boundary


class TimeRange(NamedTuple):
    """Seconds since 1970 UTC of the first and the last row."""

    earliest: int
    latest: int


def whole_range(parts: Iterable[TimeRange | None]) -> TimeRange | None:
    """The range of all rows from those of parts of them; None where no part has rows."""
    found = [part for part in parts if part is not None]
    return TimeRange(min(part.earliest for part in found), max(part.latest for part in found)) if found else None


def check_times(times: TimeRange, boundary: int, column: str) -> None:
    """Refuse a boundary that leaves one side empty.

    Raises:
        InvalidRecords: what the times are.
    """
    if not times.earliest < boundary <= times.latest:
        side = "train" if boundary <= times.earliest else "validate"
        raise InvalidRecords(
            f"column {column}: times are from {time_text(times.earliest)} to {time_text(times.latest)}, so no row is left to "
            f"{side} when those from {time_text(boundary)} on validate; give more days or another boundary"
        )


def time_text(seconds: int) -> str:
    """A time as a message and the manifest print it: midnights as dates, in UTC."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return date.isoformat(moment) if seconds % _DAY_S == 0 else moment.isoformat().replace("+00:00", "Z")


def kept(labels_B: NDArray[np.float32], keys_B: NDArray[np.uint64], negative_rate: float) -> NDArray[np.bool_]:
    """Rows that stay when only this share of the negative ones does: every positive one, and a draw for each other."""
    if negative_rate == 1.0:
        return np.ones(len(labels_B), bool)
    return (labels_B > 0) | below(mix(keys_B ^ _KEEP), negative_rate)
