"""The paired comparison against its definition, written out pair by pair, and against what repeated draws show."""

from math import erfc, sqrt
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from components.evaluate.comparison import GROUPS, GroupedLosses, auc_difference, loss_difference
from components.evaluate.ranking import ranked

Numbers = NDArray[np.float64]


def rows(seed: int, size: int, noise: float, decimals: int = 7) -> tuple[Numbers, Numbers, Numbers]:
    """Labels, and the scores of two models that see the truth through noise of their own, float32 as scores are."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=size)
    labels = (random.random(size) < 1 / (1 + np.exp(1.0 - truth))).astype(np.float64)
    ours, theirs = (1 / (1 + np.exp(-truth - scale * random.normal(size=size))) for scale in (0.3, noise))
    return labels, *(scores.round(decimals).astype(np.float32).astype(np.float64) for scores in (ours, theirs))


def compared(labels: Numbers, ours: Numbers, theirs: Numbers, confidence: float = 0.95) -> Any:
    both = np.stack([ours, theirs]).astype(np.float32)
    clicks, others = both[:, labels > 0.5], both[:, labels <= 0.5]
    halves = [[(part[0, :50], part[1, :50]), (part[0, 50:], part[1, 50:])] for part in (clicks, others)]
    return auc_difference(ranked(labels, ours), ranked(labels, theirs), *halves, confidence)


def variance_pair_by_pair(labels: Numbers, ours: Numbers, theirs: Numbers) -> float:
    """DeLong's estimate by its definition: O(n^2), no ranks."""

    def placements(scores: Numbers) -> tuple[Numbers, Numbers]:
        clicks, others = scores[labels > 0.5], scores[labels <= 0.5]
        wins = (clicks[:, None] > others[None, :]) + 0.5 * (clicks[:, None] == others[None, :])
        return wins.mean(axis=1), wins.mean(axis=0)

    (v10, v01), (w10, w01) = placements(ours), placements(theirs)
    return float((v10 - w10).var(ddof=1) / len(v10) + (v01 - w01).var(ddof=1) / len(v01))


@pytest.mark.parametrize("decimals", [1, 2, 7], ids=["many ties", "some ties", "no ties"])
def test_the_interval_is_that_of_delong(decimals: int) -> None:
    labels, ours, theirs = rows(1, 700, 1.0, decimals)
    found = compared(labels, ours, theirs)
    assert found.value == pytest.approx(roc_auc_score(labels, ours) - roc_auc_score(labels, theirs), abs=1e-12)
    error = variance_pair_by_pair(labels, ours, theirs) ** 0.5
    # 1.959964 and 2.575829: the normal deviates of 95 % and 99 %, from any table.
    assert (found.low, found.high) == pytest.approx((found.value - 1.959964 * error, found.value + 1.959964 * error), abs=1e-8)
    wider = compared(labels, ours, theirs, 0.99)
    assert wider.high - wider.value == pytest.approx(2.575829 * error, abs=1e-8)


def test_p_is_the_tail_of_the_normal_distribution() -> None:
    labels, ours, theirs = rows(2, 700, 0.6)
    found = compared(labels, ours, theirs)
    # The error function gives the tail beyond z standard errors.
    z = found.value / ((found.high - found.value) / 1.959964)
    assert found.p_value == pytest.approx(0.5 * erfc(abs(z) / sqrt(2)), rel=1e-4)


def test_swapping_the_models_turns_the_difference_round() -> None:
    labels, ours, theirs = rows(3, 300, 1.0)
    one, other = compared(labels, ours, theirs), compared(labels, theirs, ours)
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))
    assert one.p_value == pytest.approx(other.p_value)


@pytest.mark.parametrize("clicks", [0, 1, 99, 100])
def test_fewer_than_two_rows_of_a_class_have_no_interval(clicks: int) -> None:
    labels, scores = (np.arange(100) < clicks).astype(np.float64), np.linspace(0.1, 0.9, 100)
    assert compared(labels, scores, scores[::-1]) is None


def test_of_intervals_with_95_percent_about_95_in_a_hundred_hold_the_true_difference() -> None:
    """Two models with the same noise are equally good: 400 draws; 95 % +- 3 standard errors of 1.1 %."""
    held = 0
    for seed in range(400):
        found = compared(*rows(1_000 + seed, 400, 0.3))
        held += found.low <= 0.0 <= found.high
    assert 0.917 <= held / 400 <= 0.983


def grouped(differences: Numbers, batch: int = 1_000) -> GroupedLosses:
    losses = GroupedLosses()
    for start in range(0, len(differences), batch):
        part = GroupedLosses()
        part.add(differences[start : start + batch], start)
        losses.merge(part)
    return losses


@pytest.mark.parametrize("size", [2_000, 4 * GROUPS], ids=["row by row", "in groups"])
def test_the_bootstrap_finds_the_standard_error_of_a_mean(size: int) -> None:
    differences = np.random.default_rng(6).normal(0.003, 0.05, size)
    found = loss_difference(grouped(differences), 0.95)
    assert found is not None
    assert found.value == pytest.approx(differences.mean(), abs=1e-9)
    error = differences.std() / size**0.5
    # Quantiles of 1,000 replicates are right within about 7 %.
    assert (found.low, found.high) == pytest.approx((found.value - 1.96 * error, found.value + 1.96 * error), abs=0.25 * error)


def test_the_bootstrap_is_the_same_whoever_had_which_rows() -> None:
    differences = np.random.default_rng(7).normal(size=3_000)
    found = [loss_difference(grouped(differences, batch), 0.9, seed=3) for batch in (3_000, 7, 1_024)]
    assert found[0] == found[1] == found[2]
    assert loss_difference(grouped(differences), 0.9, seed=4) != found[0]


def test_no_rows_have_no_difference() -> None:
    assert loss_difference(GroupedLosses(), 0.95) is None
