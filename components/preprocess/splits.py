"""Which rows validate by a column's text or time instead of by their key, and which negative rows are kept: decided row by row.

Array suffix: B rows.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.keys import below, mix

# One draw must not follow from another: the key that shuffles is mixed again, before it decides more.
_KEEP = np.uint64(0x6B656570)
_DAY_S = 86_400
# Fewer digits are dates or hours in notations that only their writers know, more are milliseconds.
_UNIX_SECONDS = re.compile(r"[0-9]{9,11}(\.[0-9]+)?")
TIMES = "a time is ISO 8601 (2026-12-02, 2026-12-02T10:30:00Z) or unix seconds"


def held_out_by_hash(texts: pa.Array, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Rows that validate: all rows with the same text stand on the same side, in every file and on every day.

    Missing cells count as one text. About `fraction` of the texts validates, which need not be that fraction of the rows.
    """
    encoded = pc.fill_null(texts, "").dictionary_encode()
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in encoded.dictionary.to_pylist()]
    hashes = np.frombuffer(b"".join(digests), "<u8")
    held_out = below(mix(hashes ^ mix(np.array([seed + 1], np.uint64))), fraction)
    chosen: NDArray[np.bool_] = held_out[encoded.indices.to_numpy()] if len(hashes) else np.zeros(0, bool)
    return chosen


@dataclass(frozen=True, kw_only=True)
class Times:
    """The times of rows in seconds since 1970 UTC (int64 [B]), and the place of the first row that has none, if any."""

    seconds: NDArray[np.int64]
    wrong: int | None


def times_of(texts: pa.Array) -> Times:
    """Times written as ISO 8601 (a date, or date and time, UTC unless an offset is given) or as unix seconds."""
    encoded = texts.dictionary_encode()
    found = [parsed_time(text) for text in encoded.dictionary.to_pylist()]
    lookup = np.array([0 if seconds is None else seconds for seconds in found] + [0], np.int64)
    unknown = np.array([seconds is None for seconds in found] + [True])
    places = pc.fill_null(encoded.indices, len(found)).to_numpy(zero_copy_only=False)
    wrong = unknown[places]
    return Times(seconds=lookup[places], wrong=int(wrong.argmax()) if wrong.any() else None)


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


def check_times(earliest: int, latest: int, boundary: int, column: str) -> None:
    """Refuse a boundary that leaves one side empty.

    Raises:
        InvalidRecords: what the times are.
    """
    if not earliest < boundary <= latest:
        side = "train" if boundary <= earliest else "validate"
        raise InvalidRecords(
            f"column {column}: times are from {_shown(earliest)} to {_shown(latest)}, so no row is left to {side} when those from "
            f"{_shown(boundary)} on validate; give more days or another boundary"
        )


def _shown(seconds: int) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return date.isoformat(moment) if seconds % _DAY_S == 0 else moment.isoformat().replace("+00:00", "Z")


def kept(labels_B: NDArray[np.float32], keys_B: NDArray[np.uint64], negative_rate: float) -> NDArray[np.bool_]:
    """Rows that stay when only this share of the negative ones does: every positive one, and a draw for each other.

    Raises:
        InvalidConfig: a rate outside 0 (excluded) to 1.
    """
    if not 0.0 < negative_rate <= 1.0:
        raise InvalidConfig(f"negative_rate {negative_rate}: must be above 0 and at most 1")
    if negative_rate == 1.0:
        return np.ones(len(labels_B), bool)
    return (labels_B > 0) | below(mix(keys_B ^ _KEEP), negative_rate)


def calibrated(probability: NDArray[np.float64], negative_rate: float) -> NDArray[np.float64]:
    """Click probabilities of the whole traffic, from those of a model that saw this share of the negative rows.

    q = p / (p + (1 - p) / w): keeping w of the negatives multiplies the odds by 1 / w, and this divides them again.
    Source: He et al. 2014, Practical Lessons from Predicting Clicks on Ads at Facebook, section 6.3.
    """
    found: NDArray[np.float64] = probability / (probability + (1.0 - probability) / negative_rate)
    return found
