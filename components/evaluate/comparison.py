"""A model against the champion on the same rows: how far apart they are, and how sure that is.

Rows are drawn once for both models, so their scores go up and down together, and the difference is far surer than either figure.
Everything is added up in whole numbers: the same interval whoever scored which rows.

Array suffixes: B rows, G groups of rows, R replicates.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import factorial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from components.evaluate.metrics import twice_below
from components.evaluate.ranking import Counts, Ranking, Scores

# Rows go into groups by their number in the split, and groups are drawn: up to so many rows each row by itself.
GROUPS = 10_000
REPLICATES = 1_000
_UNITS = float(2**32)
# A Poisson draw of mean 1 for each 16 random bits: mean 1, variance 0.99997. numpy's own draws take twelve times as long.
_POISSON = np.searchsorted(
    np.rint(np.cumsum([np.exp(-1.0) / factorial(count) for count in range(9)]) * 65_536), np.arange(65_536), "right"
).astype(np.float64)
Pairs = Iterable[tuple[Scores, Scores]]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A model's figure minus the champion's, between `low` and `high` with the confidence that was asked for.

    `p_value` is how often two models that are equally good would be so far apart, in this direction.
    """

    value: float
    low: float
    high: float
    p_value: float


@dataclass(kw_only=True)
class GroupedLosses:
    """By group of rows: how many, and the sum of the model's losses minus the champion's, in units of 2^-32 nats."""

    rows_G: Counts = field(default_factory=lambda: np.zeros(GROUPS, np.int64))
    sums_G: Counts = field(default_factory=lambda: np.zeros(GROUPS, np.int64))

    def add(self, differences_B: NDArray[np.float64], first_row: int) -> None:
        """Rows that follow one another in the split, the first of which has this number."""
        groups_B = (first_row + np.arange(len(differences_B))) % GROUPS
        np.add.at(self.rows_G, groups_B, 1)
        np.add.at(self.sums_G, groups_B, np.rint(differences_B * _UNITS).astype(np.int64))

    def merge(self, other: "GroupedLosses") -> None:
        self.rows_G += other.rows_G
        self.sums_G += other.sums_G


def auc_difference(ours: Ranking, theirs: Ranking, clicks: Pairs, others: Pairs, confidence: float) -> Difference | None:
    """Of AUC. None where a class has fewer than two rows.

    Args:
        ours, theirs: the same rows as scored by model and champion.
        clicks, others: scores of both for the same rows, part by part, of positive and of negative rows.
    Source: DeLong, DeLong, Clarke-Pearson 1988; the variance is that of the rows' placement values, exact for ties, too.
    """
    positives, negatives = len(ours.positives), len(ours.negatives)
    if min(positives, negatives) < 2:
        return None
    spread = _Spread()
    for mine, other in clicks:
        spread.add(twice_below(ours.negatives, mine) - twice_below(theirs.negatives, other))
    variance = spread.variance() / (2 * negatives) ** 2 / positives
    # Twice the two statistics of Mann and Whitney, one less the other.
    value = spread.total / (2 * positives * negatives)
    spread = _Spread()
    for mine, other in others:
        spread.add(twice_below(ours.positives, mine) - twice_below(theirs.positives, other))
    variance += spread.variance() / (2 * positives) ** 2 / negatives
    error = float(np.sqrt(variance))
    half = NormalDist().inv_cdf(0.5 + confidence / 2) * error
    by_chance = NormalDist().cdf(-abs(value) / error) if error else (0.5 if value == 0.0 else 0.0)
    return Difference(value=value, low=value - half, high=value + half, p_value=by_chance)


def loss_difference(losses: GroupedLosses, confidence: float, seed: int = 0) -> Difference | None:
    """Of log loss, by a bootstrap: each group of rows stands in a replicate as often as a Poisson draw of mean 1 says. None without
    rows.

    Source: Hanley and MacGibbon 2006; Chamandy et al. 2012, Estimating uncertainty for massive data streams.
    """
    used = losses.rows_G > 0
    rows_G, sums_G = losses.rows_G[used].astype(np.float64), losses.sums_G[used] / _UNITS
    if not len(rows_G):
        return None
    random = np.random.default_rng(seed)
    means = []
    for _ in range(REPLICATES // 50):
        drawn_RG = _POISSON[random.integers(0, len(_POISSON), (50, len(rows_G)), np.uint16)]
        drawn_rows = drawn_RG @ rows_G
        means.append((drawn_RG @ sums_G)[drawn_rows > 0] / drawn_rows[drawn_rows > 0])
    means_R = np.concatenate(means)
    value = int(losses.sums_G.sum()) / _UNITS / int(losses.rows_G.sum())
    low, high = np.quantile(means_R, [0.5 - confidence / 2, 0.5 + confidence / 2])
    other_side = np.count_nonzero(means_R >= 0.0) if value < 0.0 else np.count_nonzero(means_R <= 0.0)
    return Difference(value=value, low=float(low), high=float(high), p_value=other_side / len(means_R))


class _Spread:
    """The variance of whole numbers below 2^32 either way, of any number of rows, from exact sums."""

    def __init__(self) -> None:
        self._rows = self.total = self._squares = 0

    def add(self, numbers_B: Counts) -> None:
        high_B, low_B = numbers_B >> 16, numbers_B & 0xFFFF
        squares = (int((high_B * high_B).sum()) << 32) + (int((high_B * low_B).sum()) << 17) + int((low_B * low_B).sum())
        self._rows += len(numbers_B)
        self.total += int(numbers_B.sum())
        self._squares += squares

    def variance(self) -> float:
        """With rows - 1 in the denominator."""
        return (self._rows * self._squares - self.total * self.total) / (self._rows * (self._rows - 1))
