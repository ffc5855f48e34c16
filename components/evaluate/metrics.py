"""Exact metrics of click probabilities: AUC by ranks, log loss, ROC, calibration. Pure numpy.

There are no thresholds on a grid here: where most scores are tiny, such a grid sees one value (tf.keras.metrics.AUC reports
0.65 for a model of 0.77). Scores of several workers are merged by concatenation, then measured once; AUCs do not average.

Array suffixes: B rows, K distinct scores.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.evaluation import CalibrationBin

Scores = NDArray[np.float64]
ROC_POINTS = 200
CALIBRATION_BINS = 10


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """All metrics of one model. A value of None is undefined, and its reason says why; otherwise the reason is empty."""

    rows: int
    positives: int
    click_rate: float
    auc: float | None
    auc_reason: str
    log_loss: float
    constant_log_loss: float
    normalized_entropy: float | None


def check_scores(labels_B: Scores, scores_B: Scores, place: str) -> None:
    """Refuse what no metric is defined on. `place` names the file or model in the message; rows count from 1.

    Raises:
        InvalidRecords: no rows, labels other than 0 and 1, scores outside 0..1 or NaN.
    """
    if labels_B.shape != scores_B.shape or labels_B.ndim != 1:
        raise InvalidRecords(f"{place}: {labels_B.shape} labels and {scores_B.shape} scores; one of each a row is needed")
    if not len(labels_B):
        raise InvalidRecords(f"{place}: 0 rows, so there is nothing to measure; give it a validation split")
    wrong = ~np.isin(labels_B, (0.0, 1.0))
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidRecords(f"{place}, row {row + 1}: label {labels_B[row]:g} is neither 0 nor 1")
    wrong = ~((scores_B >= 0.0) & (scores_B <= 1.0))
    if wrong.any():
        row = int(wrong.argmax())
        found = "NaN" if np.isnan(scores_B[row]) else f"{scores_B[row]:g}"
        raise InvalidRecords(f"{place}, row {row + 1}: score is {found}, a probability in 0..1 is expected; train again")


def exact_auc(labels_B: Scores, scores_B: Scores) -> float | None:
    """Probability that a click scores above a non-click, ties counting half. None when one of the classes is missing.

    Source: Mann and Whitney 1947, the U statistic; equals the area under the ROC curve.
    """
    positives_K, rows_K = _counts_by_score(labels_B, scores_B)
    negatives_K = rows_K - positives_K
    positives, negatives = int(positives_K.sum()), int(negatives_K.sum())
    if not positives or not negatives:
        return None
    below_K = np.cumsum(negatives_K) - negatives_K
    # Twice the statistic is a whole number: exact in int64 up to 2e9 rows of each class.
    doubled = int((positives_K * (2 * below_K + negatives_K)).sum())
    return doubled / (2 * positives * negatives)


def auc_reason(labels_B: Scores) -> str:
    """Why AUC is undefined, or an empty text when it is defined."""
    rows, positives = len(labels_B), int(labels_B.sum())
    if not positives:
        return f"no positive rows (0 of {rows:,})"
    return f"no negative rows (0 of {rows:,})" if positives == rows else ""


def log_loss(labels_B: Scores, scores_B: Scores) -> float:
    """Mean negative log likelihood, in nats a row; scores are kept 2e-16 away from 0 and 1, as scikit-learn does."""
    tiny = float(np.finfo(np.float64).eps)
    clipped_B = np.clip(scores_B, tiny, 1.0 - tiny)
    return float(-np.where(labels_B > 0.5, np.log(clipped_B), np.log1p(-clipped_B)).mean())


def constant_log_loss(click_rate: float) -> float:
    """Log loss of always saying the click rate of these very rows, which no constant beats: their entropy, in nats."""
    return float(-sum(share * np.log(share) for share in (click_rate, 1.0 - click_rate) if share > 0.0)) or 0.0


def measure(labels_B: Scores, scores_B: Scores, place: str) -> Metrics:
    """All metrics of one model on these rows.

    Normalized entropy is log loss over that of the constant; below 1 is better than it. Source: He et al. 2014, Practical Lessons.

    Raises:
        InvalidRecords: as `check_scores`.
    """
    check_scores(labels_B, scores_B, place)
    click_rate, loss = float(labels_B.mean()), log_loss(labels_B, scores_B)
    constant = constant_log_loss(click_rate)
    return Metrics(
        rows=len(labels_B),
        positives=int(labels_B.sum()),
        click_rate=click_rate,
        auc=exact_auc(labels_B, scores_B),
        auc_reason=auc_reason(labels_B),
        log_loss=loss,
        constant_log_loss=constant,
        normalized_entropy=loss / constant if constant > 0.0 else None,
    )


def roc_points(labels_B: Scores, scores_B: Scores) -> tuple[tuple[float, float], ...]:
    """(false positive rate, true positive rate) from (0, 0) to (1, 1), at most ROC_POINTS spread evenly along the curve.

    Empty when a class is missing.
    """
    positives_K, rows_K = _counts_by_score(labels_B, scores_B)
    if exact_auc(labels_B, scores_B) is None:
        return ()
    negatives_K = rows_K - positives_K
    tpr = np.concatenate(([0.0], np.cumsum(positives_K[::-1]) / positives_K.sum()))
    fpr = np.concatenate(([0.0], np.cumsum(negatives_K[::-1]) / negatives_K.sum()))
    chosen = np.unique(np.searchsorted(tpr + fpr, np.linspace(0.0, 2.0, ROC_POINTS)).clip(max=len(tpr) - 1))
    return tuple(zip(fpr[chosen].tolist(), tpr[chosen].tolist(), strict=True))


def calibration(labels_B: Scores, scores_B: Scores) -> tuple[CalibrationBin, ...]:
    """Rows in order of score, cut into CALIBRATION_BINS equal parts: mean prediction against observed click rate of each."""
    order_B = np.argsort(scores_B, kind="stable")
    parts = [part for part in np.array_split(order_B, CALIBRATION_BINS) if len(part)]
    return tuple(
        CalibrationBin(predicted=float(scores_B[part].mean()), observed=float(labels_B[part].mean()), rows=len(part))
        for part in parts
    )


def _counts_by_score(labels_B: Scores, scores_B: Scores) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positives and rows of each distinct score, scores ascending: int64 [K] each."""
    order_B = np.argsort(scores_B, kind="stable")
    sorted_B = scores_B[order_B]
    starts_K = np.flatnonzero(np.concatenate(([True], sorted_B[1:] != sorted_B[:-1]))) if len(sorted_B) else np.empty(0, int)
    if not len(starts_K):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    positives_K = np.add.reduceat(labels_B[order_B].astype(np.int64), starts_K)
    return positives_K, np.diff(np.append(starts_K, len(sorted_B)))
