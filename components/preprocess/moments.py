"""Numbers of a column summed up: exact sums, which do not depend on the order of rows, and what is made of them."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from components.preprocess.transform import NumberEncoding

# 2**-1126 divides every float64 (and frexp's mantissa of 53 bits), so that sums of them are whole numbers of it.
_UNIT_BITS = 1126


@dataclass(frozen=True, kw_only=True)
class Moments:
    """How many numbers, their exact sum and that of their squares (in units of 2**-1126), the smallest and the largest."""

    count: int = 0
    total: int = 0
    squares: int = 0
    smallest: float = np.inf
    largest: float = -np.inf

    def plus(self, other: "Moments") -> "Moments":
        return Moments(
            count=self.count + other.count,
            total=self.total + other.total,
            squares=self.squares + other.squares,
            smallest=min(self.smallest, other.smallest),
            largest=max(self.largest, other.largest),
        )


def quantile_edges(numbers: NDArray[np.float64], buckets: int) -> tuple[float, ...]:
    """At most `buckets` - 1 rising numbers that part these (NaN: missing) into parts of about the same size, none of them empty."""
    present = np.sort(numbers[~np.isnan(numbers)])
    places = np.arange(1, buckets) * len(present) // buckets
    edges = np.unique(present[places]) if len(present) else present
    return tuple(edges[edges > present[0]].tolist()) if len(present) else ()


def exact_sum(numbers: NDArray[np.float64]) -> int:
    """The sum of finite numbers in units of 2**-1126, without any rounding: the order of rows must not show in its last bits."""
    mantissas, exponents = np.frexp(numbers)
    whole = (mantissas * 2.0**53).astype(np.int64)
    order = np.argsort(exponents, kind="stable")
    sorted_exponents = exponents[order]
    starts = np.flatnonzero(np.diff(sorted_exponents, prepend=sorted_exponents[:1] - 1))
    if not len(starts):
        return 0
    # Halves, because 1024 mantissas of 53 bits would already overflow an int64.
    high, low = (np.add.reduceat(part[order], starts) for part in (whole >> 26, whole & (1 << 26) - 1))
    shifts = (sorted_exponents[starts] - 53 + _UNIT_BITS).tolist()
    return sum(((h << 26) + lo) << shift for h, lo, shift in zip(high.tolist(), low.tolist(), shifts, strict=True))


def moments_of(column: NDArray[np.float64]) -> Moments:
    numbers = column[~np.isnan(column)]
    if not len(numbers):
        return Moments()
    return Moments(
        count=len(numbers),
        total=exact_sum(numbers),
        squares=exact_sum(numbers * numbers),
        smallest=float(numbers.min()),
        largest=float(numbers.max()),
    )


def scaling_of(encoding: NumberEncoding, moments: Moments) -> tuple[float, float]:
    """Shift and scale; a column without any number, or with one number only, is not scaled."""
    if not moments.count:
        return 0.0, 1.0
    if encoding == "min_max":
        return moments.smallest, (moments.largest - moments.smallest) or 1.0
    mean = Fraction(moments.total, moments.count << _UNIT_BITS)
    variance = Fraction(moments.squares, moments.count << _UNIT_BITS) - mean * mean
    # Squares are rounded before they are summed, so that equal numbers may seem to vary by a hair, or by less than nothing.
    deviation = float(max(variance, Fraction(0))) ** 0.5
    return float(mean), deviation if deviation > 1e-7 * abs(float(mean)) else 1.0
