"""Metrics against scikit-learn, values worked out by hand, and the cases that real users tripped over."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from components.errors import InvalidRecords
from components.evaluate.metrics import Scores, auc_reason, calibration, exact_auc, log_loss, measure, roc_points

CASES = Path(__file__).parents[4] / "shared" / "cases"
ONE_CLASS, TINY, MERGED = (
    CASES / name for name in ("17-auc-one-class", "18-auc-when-scores-are-tiny", "19-auc-merged-over-workers")
)
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="../shared/cases is not there")


def rows_of(path: Path) -> tuple[Scores, Scores]:
    table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def expected(case: Path) -> Any:
    return json.loads((case / "expected.json").read_text())


def array(*values: float) -> Scores:
    return np.array(values, np.float64)


@pytest.mark.parametrize(
    ("labels", "scores", "auc"),
    [
        (array(0, 1), array(0.1, 0.9), 1.0),
        (array(0, 1), array(0.9, 0.1), 0.0),
        (array(0, 1), array(0.5, 0.5), 0.5),
        (array(0, 0, 1, 1), array(0.1, 0.4, 0.35, 0.8), 0.75),  # 3 of 4 pairs in order
        (array(1, 0, 1, 0), array(0.3, 0.3, 0.3, 0.1), 0.75),  # 2 of 4 in order, 2 tied
        (array(1, 1), array(0.2, 0.4), None),
        (array(0, 0), array(0.2, 0.4), None),
    ],
)
def test_auc_worked_out_by_hand(labels: Scores, scores: Scores, auc: float | None) -> None:
    assert exact_auc(labels, scores) == auc


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("decimals", [1, 2, 17], ids=["many ties", "some ties", "no ties"])
def test_metrics_equal_those_of_scikit_learn(seed: int, decimals: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.beta(1.0, 9.0, 3_000).round(decimals)
    labels = (random.random(3_000) < 0.02 + 0.8 * scores).astype(np.float64)
    found = measure(labels, scores, "here")
    assert found.auc == pytest.approx(sklearn_metrics.roc_auc_score(labels, scores), abs=1e-12)
    assert found.log_loss == pytest.approx(sklearn_metrics.log_loss(labels, scores), rel=1e-12)
    constant = np.full(3_000, labels.mean())
    assert found.constant_log_loss == pytest.approx(sklearn_metrics.log_loss(labels, constant), rel=1e-12)
    assert found.normalized_entropy == pytest.approx(found.log_loss / found.constant_log_loss)
    assert (found.rows, found.positives) == (3_000, int(labels.sum()))


def test_certain_and_wrong_scores_cost_much_but_not_infinity() -> None:
    labels, scores = array(1, 0, 1, 0), array(0.0, 1.0, 1.0, 0.0)
    assert log_loss(labels, scores) == pytest.approx(sklearn_metrics.log_loss(labels, scores), rel=1e-9)


def test_the_roc_lies_on_that_of_scikit_learn() -> None:
    random = np.random.default_rng(1)
    scores = random.beta(1.0, 30.0, 20_000)
    labels = (random.random(20_000) < scores).astype(np.float64)
    points = roc_points(labels, scores)
    fpr, tpr, _ = sklearn_metrics.roc_curve(labels, scores, drop_intermediate=False)
    exact = set(zip(fpr.tolist(), tpr.tolist(), strict=True))
    assert len(points) <= 200
    assert points[0] == (0.0, 0.0)
    assert points[-1] == (1.0, 1.0)
    assert list(points) == sorted(points)
    assert all(min(abs(x - u) + abs(y - v) for u, v in exact) < 1e-12 for x, y in points[::20])
    assert sklearn_metrics.auc(*zip(*points, strict=True)) == pytest.approx(exact_auc(labels, scores), abs=2e-3)


def test_the_roc_of_one_class_is_empty() -> None:
    assert roc_points(array(0, 0), array(0.1, 0.2)) == ()


def test_calibration_by_tenths() -> None:
    scores = np.arange(100)[::-1] / 100
    labels = (scores >= 0.95).astype(np.float64)
    bins = calibration(labels, scores)
    assert [part.rows for part in bins] == [10] * 10
    assert bins[0].predicted == pytest.approx(0.045)
    assert bins[9].predicted == pytest.approx(0.945)
    assert [part.observed for part in bins] == [0.0] * 9 + [0.5]


def test_calibration_of_few_rows_has_as_many_bins() -> None:
    assert [part.rows for part in calibration(array(0, 1, 0), array(0.1, 0.2, 0.3))] == [1, 1, 1]


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        (array(), array(), "preds.csv: 0 rows"),
        (array(0, 1, 0), array(0.1, float("nan"), 0.3), "preds.csv, row 2: score is NaN"),
        (array(0, 1), array(0.1, 1.5), "preds.csv, row 2: score is 1.5"),
        (array(0, 1), array(0.1, float("-inf")), "preds.csv, row 2: score is -inf"),
        (array(-1, 1), array(0.1, 0.2), "preds.csv, row 1: label -1"),
        (array(0, 1), array(0.1), "preds.csv: "),
    ],
)
def test_what_cannot_be_measured_is_refused_by_row(labels: Scores, scores: Scores, message: str) -> None:
    with pytest.raises(InvalidRecords, match=message):
        measure(labels, scores, "preds.csv")


@needs_cases
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("preds.csv", "no positive rows (0 of 50)"),
        ("preds_all_positive.csv", "no negative rows (0 of 50)"),
        ("preds_constant.csv", ""),
    ],
)
def test_case_17_one_class_or_constant(name: str, reason: str) -> None:
    labels, scores = rows_of(ONE_CLASS / name)
    found, wanted = measure(labels, scores, name), expected(ONE_CLASS)[name]
    assert found.auc == wanted["auc"]
    assert found.auc_reason == auc_reason(labels) == reason
    assert found.log_loss == pytest.approx(wanted["logloss"], rel=1e-9)


@needs_cases
@pytest.mark.parametrize(("name", "message"), [("preds_empty.csv", "0 rows"), ("preds_nan.csv", "row 2: score is NaN")])
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_case_17_nothing_to_measure(name: str, message: str) -> None:
    labels, scores = rows_of(ONE_CLASS / name)
    with pytest.raises(InvalidRecords, match=f"{name}.*{message}"):
        measure(labels, scores, name)


@needs_cases
def test_case_18_tiny_scores() -> None:
    wanted = expected(TINY)
    found = measure(*rows_of(TINY / "preds.csv"), "preds.csv")
    assert (found.rows, found.positives) == (wanted["rows"], wanted["positives"])
    assert found.auc == pytest.approx(wanted["auc_rank"], abs=1e-12)
    assert found.log_loss == pytest.approx(wanted["logloss"], abs=1e-9)


@needs_cases
def test_case_19_workers_are_merged_by_concatenation() -> None:
    wanted = expected(MERGED)
    parts = [rows_of(MERGED / f"rank{rank}.csv") for rank in range(3)]
    assert [exact_auc(*part) for part in parts] == pytest.approx(wanted["auc_each"], abs=1e-12)
    labels, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    found = measure(labels, scores, "all ranks")
    assert found.auc == pytest.approx(wanted["auc_all"], abs=1e-12)
    assert found.log_loss == pytest.approx(wanted["logloss_all"], abs=1e-9)
