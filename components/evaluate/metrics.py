"""Exact metrics of click probabilities: AUC by ranks, average precision, log loss, curves, calibration. Pure numpy.

There are no thresholds on a grid here: where most scores are tiny, such a grid sees one value (tf.keras.metrics.AUC reports
0.65 for a model of 0.77). AUCs of several workers do not average; what merges is the order of all scores (ranking.py) and sums in
whole numbers, so that the figures are the same whoever scored which rows.

Array suffixes: B rows, K thresholds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.evaluate.ranking import ROWS_AT_ONCE, Counts, Ranking, Scores, largest_with
from components.evaluation import CalibrationBin, ScoreBin

Labels = NDArray[np.float32]
CURVE_POINTS = 200
CALIBRATION_BINS = 10
SCORE_BINS = 40
# Of the rows, those whose scores the bins of the histogram divide; the last bin has the rest as well.
_SCORES_SHOWN = 0.995
# Sums are whole numbers of 2^-60.
_HALF_BITS = 30


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Rows, clicks, and exact sums of losses in nats and of probabilities, in units of 2^-60: they add up the same in any order."""

    rows: int = 0
    positives: int = 0
    loss: int = 0
    predicted: int = 0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            rows=self.rows + other.rows,
            positives=self.positives + other.positives,
            loss=self.loss + other.loss,
            predicted=self.predicted + other.predicted,
        )

    @property
    def click_rate(self) -> float:
        return self.positives / self.rows

    @property
    def log_loss(self) -> float:
        """Mean negative log likelihood, in nats a row."""
        return _mean(self.loss, self.rows)

    @property
    def mean_prediction(self) -> float:
        return _mean(self.predicted, self.rows)


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """All metrics of one model. A value of None is undefined, and the reason says why; otherwise the reason is empty."""

    auc: float | None
    auc_reason: str
    average_precision: float | None
    log_loss: float
    constant_log_loss: float
    normalized_entropy: float | None
    calibration_ratio: float | None


def check_scores(labels_B: Labels, scores_B: Scores, place: str, first_row: int = 0) -> None:
    """Refuse what no metric is defined on. `place` names the file or model in the message; rows count from 1 after `first_row`.

    Raises:
        InvalidRecords: labels other than 0 and 1, scores outside 0..1 or NaN.
    """
    if labels_B.shape != scores_B.shape or labels_B.ndim != 1:
        raise InvalidRecords(f"{place}: {labels_B.shape} labels and {scores_B.shape} scores; one of each a row is needed")
    wrong = ~np.isin(labels_B, (0.0, 1.0))
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidRecords(f"{place}, row {first_row + row + 1}: label {labels_B[row]:g} is neither 0 nor 1")
    wrong = ~((scores_B >= 0.0) & (scores_B <= 1.0))
    if wrong.any():
        row = int(wrong.argmax())
        found = "NaN" if np.isnan(scores_B[row]) else f"{scores_B[row]:g}"
        raise InvalidRecords(
            f"{place}, row {first_row + row + 1}: score is {found}, a probability in 0..1 is expected; train again"
        )


def losses_of(labels_B: Labels, scores_B: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Negative log likelihood of each row, in nats; scores are kept 2e-16 away from 0 and 1, as scikit-learn does."""
    tiny = float(np.finfo(np.float64).eps)
    # Where a row's label is 0, its likelihood is 1 - score: one logarithm a row.
    right_B = np.where(labels_B > 0.5, scores_B, 1.0 - scores_B.astype(np.float64))
    return np.asarray(-np.log(np.clip(right_B, tiny, 1.0 - tiny)))


def sums_of(labels_B: Labels, scores_B: NDArray[np.floating[Any]]) -> Sums:
    """The sums of some rows, a million at most."""
    return Sums(
        rows=len(labels_B),
        positives=int(np.count_nonzero(labels_B)),
        loss=_exact_sum(losses_of(labels_B, scores_B)),
        predicted=_exact_sum(scores_B.astype(np.float64)),
    )


def exact_auc(ranking: Ranking) -> float | None:
    """Probability that a click scores above another row, ties counting half. None when one of the classes is missing.

    Source: Mann and Whitney 1947, the U statistic; equals the area under the ROC curve.
    """
    positives, negatives = len(ranking.positives), len(ranking.negatives)
    if not positives or not negatives:
        return None
    # Twice the statistic is a whole number.
    doubled = sum(int(twice_below(ranking.negatives, part).sum()) for part in _parts(ranking.positives))
    return doubled / (2 * positives * negatives)


def twice_below(sorted_scores: Scores, scores_B: Scores) -> Counts:
    """Twice how many of the sorted scores lie below each score, equal ones counting half: int64 [B]."""
    found: Counts = np.searchsorted(sorted_scores, scores_B, "left") + np.searchsorted(sorted_scores, scores_B, "right")
    return found


def average_precision(ranking: Ranking) -> float | None:
    """Mean over the clicks of the precision at their scores; None without a click.

    Source: scikit-learn's average_precision_score, the step-wise area under the precision-recall curve.
    """
    if not len(ranking.positives):
        return None
    total = 0
    for part in _parts(ranking.positives):
        clicks = len(ranking.positives) - np.searchsorted(ranking.positives, part, "left")
        others = len(ranking.negatives) - np.searchsorted(ranking.negatives, part, "left")
        total += sum(_exact_sum(piece) for piece in _parts(clicks / (clicks + others), 1 << 20))
    return _mean(total, len(ranking.positives))


def auc_reason(rows: int, positives: int) -> str:
    """Why AUC is undefined, or an empty text when it is defined."""
    if not positives:
        return f"no positive rows (0 of {rows:,})"
    return f"no negative rows (0 of {rows:,})" if positives == rows else ""


def constant_log_loss(click_rate: float) -> float:
    """Log loss of always saying the click rate of these very rows, which no constant beats: their entropy, in nats."""
    return float(-sum(share * np.log(share) for share in (click_rate, 1.0 - click_rate) if share > 0.0)) or 0.0


def measure(ranking: Ranking, sums: Sums) -> Metrics:
    """All metrics of one model on these rows, at least one.

    Normalized entropy is log loss over that of the constant; below 1 is better than it. Source: He et al. 2014, Practical Lessons.
    """
    constant = constant_log_loss(sums.click_rate)
    return Metrics(
        auc=exact_auc(ranking),
        auc_reason=auc_reason(sums.rows, sums.positives),
        average_precision=average_precision(ranking),
        log_loss=sums.log_loss,
        constant_log_loss=constant,
        normalized_entropy=sums.log_loss / constant if constant > 0.0 else None,
        calibration_ratio=sums.mean_prediction / sums.click_rate if sums.positives else None,
    )


def roc_points(ranking: Ranking) -> tuple[tuple[float, float, float], ...]:
    """(false positive rate, true positive rate, score from which on a row counts as a click), at most CURVE_POINTS spread evenly.

    From (0, 0) to (1, 1); empty when a class is missing.
    """
    clicks, others = len(ranking.positives), len(ranking.negatives)
    if not clicks or not others:
        return ()

    def rates(scores_K: Scores) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        above = len(ranking.negatives) - np.searchsorted(ranking.negatives, scores_K)
        return above / others, (clicks - np.searchsorted(ranking.positives, scores_K)) / clicks

    along_K = np.linspace(0.0, 2.0, CURVE_POINTS)[1:]
    chosen = np.unique(largest_with(lambda scores_K: np.add(*rates(scores_K)) >= along_K, len(along_K)))[::-1]
    fpr, tpr = rates(chosen)
    # No score is above 1, so that none is a click from just above it on; a threshold of infinity, which others give, is no number.
    return ((0.0, 0.0, 1.0), *zip(fpr.tolist(), tpr.tolist(), chosen.tolist(), strict=True))


def precision_recall_points(ranking: Ranking) -> tuple[tuple[float, float], ...]:
    """(recall, precision) from the highest score downwards, at most CURVE_POINTS at even steps of recall; empty without a click."""
    clicks = len(ranking.positives)
    if not clicks:
        return ()
    places = np.unique(np.ceil(np.linspace(0.0, 1.0, CURVE_POINTS + 1)[1:] * clicks).astype(np.int64))
    thresholds_K = np.unique(ranking.positives[clicks - places])[::-1]
    found_K = clicks - np.searchsorted(ranking.positives, thresholds_K)
    others_K = len(ranking.negatives) - np.searchsorted(ranking.negatives, thresholds_K)
    return _points(found_K / clicks, found_K / (found_K + others_K))


def calibration(ranking: Ranking) -> tuple[CalibrationBin, ...]:
    """Rows in order of score, cut into about CALIBRATION_BINS equal parts: mean prediction against observed click rate of each.

    Rows of one score are never parted, for which of them would be chance.
    """
    inner = np.unique(np.arange(1, CALIBRATION_BINS) * ranking.rows // CALIBRATION_BINS)
    edges = np.unique(ranking.at_rank(inner[inner > 0]))
    found = []
    for clicks, others in _between(ranking, edges):
        if rows := len(clicks) + len(others):
            predicted = _mean(sum(_exact_sum(piece) for part in (clicks, others) for piece in _parts(part, 1 << 20)), rows)
            found.append(CalibrationBin(predicted=predicted, observed=len(clicks) / rows, rows=rows))
    return tuple(found)


def score_histogram(ranking: Ranking) -> tuple[ScoreBin, ...]:
    """Scores of both classes in SCORE_BINS bins of equal width from 0 on; empty without rows."""
    if not ranking.rows:
        return ()
    last = np.array([int(_SCORES_SHOWN * (ranking.rows - 1))])
    width = float(ranking.at_rank(last)[0]) / SCORE_BINS or 1.0 / SCORE_BINS
    edges = np.arange(1, SCORE_BINS) * width
    largest = max((float(part[-1]) for part in (ranking.positives, ranking.negatives) if len(part)), default=0.0)
    bins = zip([0.0, *edges.tolist()], [*edges.tolist(), max(largest, SCORE_BINS * width)], strict=True)
    between = _between(ranking, edges.astype(np.float32))
    return tuple(
        ScoreBin(low=low, high=high, positives=len(clicks), negatives=len(others))
        for (low, high), (clicks, others) in zip(bins, between, strict=True)
    )


def _between(ranking: Ranking, edges: Scores) -> Iterator[tuple[Scores, Scores]]:
    """Scores of both classes below the first edge, from there below the second, and so on."""
    cuts = [[0, *np.searchsorted(part, edges).tolist(), len(part)] for part in (ranking.positives, ranking.negatives)]
    for place in range(len(edges) + 1):
        yield (
            ranking.positives[cuts[0][place] : cuts[0][place + 1]],
            ranking.negatives[cuts[1][place] : cuts[1][place + 1]],
        )


def _points(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[tuple[float, float], ...]:
    return tuple(zip(x.tolist(), y.tolist(), strict=True))


def _parts(numbers: NDArray[Any], rows: int = ROWS_AT_ONCE) -> Iterator[NDArray[Any]]:
    return (numbers[start : start + rows] for start in range(0, len(numbers), rows))


def _exact_sum(numbers: NDArray[Any]) -> int:
    """The sum of at most 2^20 numbers below 64, in units of 2^-60; each is rounded to such a unit, and nothing else is."""
    scaled = np.ldexp(numbers.astype(np.float64), _HALF_BITS)
    whole = np.rint(scaled)
    rest = np.rint(np.ldexp(scaled - whole, _HALF_BITS))
    return (int(whole.astype(np.int64).sum()) << _HALF_BITS) + int(rest.astype(np.int64).sum())


def _mean(total: int, rows: int) -> float:
    # Whole numbers are divided exactly and rounded once.
    return total / (rows << (2 * _HALF_BITS))
