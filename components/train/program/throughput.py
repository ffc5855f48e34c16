"""How fast steps come, from the times at which they ended: where the warm-up is over, and how sure the rate after it is.

Warm-up: MSER-5 (White 1997, "An effective truncation heuristic for bias reduction in simulation output"; White, Cobb and Spratt
2000 for means of 5). What is cut off is what makes the standard error of the mean of the rest smallest.
Interval: non-overlapping batch means (Schmeiser 1982, "Batch size effects in the analysis of simulation output": 10 to 30 are
enough). Steps that follow each other are alike, means of many of them hardly are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Steps are looked at in means of so many.
GROUP = 5
MOST_BLOCKS, FEWEST_BLOCKS = 20, 5
# Two-sided 95 % points of Student's t with 1 to MOST_BLOCKS - 1 degrees of freedom. Source: NIST/SEMATECH handbook, 1.3.6.7.2.
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """A rate in rows a second, without the first `warmup_steps`.

    low to high: 95 % confidence interval, None with too few steps for one. steady: the warm-up ended before the end of what was
    searched. The interval rests on the mean seconds a step of equal blocks of `block_steps` steps that follow each other.
    """

    warmup_steps: int
    steady: bool
    rate: float
    low: float | None
    high: float | None
    block_steps: int
    block_s: tuple[float, ...]

    @property
    def half_width(self) -> float:
        """Of the interval, as a share of the rate; infinite without one."""
        if self.low is None or self.high is None:
            return math.inf
        return (self.high - self.low) / 2 / self.rate


def warm_up_groups(seconds: NDArray[np.float64], most: float) -> tuple[int, bool]:
    """How many groups of GROUP steps are warm-up, and whether that is less than the `most` (a share) that were looked at."""
    groups = len(seconds) // GROUP
    # One group of a few, where the first step builds the graph.
    limit = max(int(groups * most), 1)
    if groups < 2:
        return 0, False
    means = seconds[: groups * GROUP].reshape(groups, GROUP).mean(axis=1)
    means = means - means.mean()  # else the difference of two large sums is left
    left = groups - np.arange(groups)
    sums, squares = np.cumsum(means[::-1])[::-1], np.cumsum(means[::-1] ** 2)[::-1]
    error = ((squares - sums**2 / left) / left**2)[: limit + 1]
    cut = int(np.argmin(error))
    return cut, cut < limit


def blocks_of(seconds: NDArray[np.float64]) -> tuple[int, NDArray[np.float64]]:
    """Steps a block and the mean seconds a step of each block, of the latest steps; no blocks of too few steps."""
    count = min(MOST_BLOCKS, len(seconds) // 2)
    if count < FEWEST_BLOCKS:
        return 0, np.empty(0)
    size = len(seconds) // count
    return size, seconds[-count * size :].reshape(count, size).mean(axis=1)


def throughput(began: float, ended: Sequence[float], rows: float, most_warm_up: float = 0.5) -> Throughput:
    """The rate of steps of `rows` rows each, which ended at these times.

    Args:
        began: when the first one began, by the same clock. most_warm_up: at most this share of the steps.
    """
    seconds = np.diff(np.array([began, *ended]))
    cut, steady = warm_up_groups(seconds, most_warm_up)
    measured = seconds[cut * GROUP :]
    mean = max(float(measured.mean()), 1e-9)
    size, blocks = blocks_of(measured)
    low = high = None
    if len(blocks):
        half = T_95[len(blocks) - 2] * float(blocks.std(ddof=1)) / math.sqrt(len(blocks))
        # A mean that may as well be zero bounds no rate from above.
        low, high = (rows / (mean + half), rows / (mean - half)) if half < mean else (None, None)
    return Throughput(
        warmup_steps=cut * GROUP,
        steady=steady,
        rate=rows / mean,
        low=low,
        high=high,
        block_steps=size,
        block_s=tuple(float(each) for each in blocks),
    )
