"""Metrics against scikit-learn, values worked out by hand, and the cases that real users tripped over."""

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sklearn_metrics

from components.errors import InvalidRecords
from components.evaluate.metrics import (
    Metrics,
    Sums,
    average_precision,
    calibration,
    check_scores,
    exact_auc,
    measure,
    precision_recall_points,
    roc_points,
    score_histogram,
    sums_of,
)
from components.evaluate.ranking import Ranking, ranked, sorted_scores

Numbers = NDArray[np.float64]
CASES = Path(__file__).parents[4] / "shared" / "cases"
ONE_CLASS, TINY, MERGED = (
    CASES / name for name in ("17-auc-one-class", "18-auc-when-scores-are-tiny", "19-auc-merged-over-workers")
)
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="../shared/cases is not there")


def rows_of(path: Path) -> tuple[Numbers, Numbers]:
    table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def expected(case: Path) -> Any:
    return json.loads((case / "expected.json").read_text())


def array(*values: float) -> Numbers:
    return np.array(values, np.float64)


def measured(labels: Numbers, scores: Numbers) -> Metrics:
    return measure(ranked(labels, scores), sums_of(labels.astype(np.float32), scores))


def drawn(seed: int, rows: int, decimals: int) -> tuple[Numbers, Numbers]:
    """Labels, and scores that are float32 as those of a model, so that ours and scikit-learn's ties are the same."""
    random = np.random.default_rng(seed)
    scores = random.beta(1.0, 9.0, rows).round(decimals).astype(np.float32).astype(np.float64)
    return (random.random(rows) < 0.02 + 0.8 * scores).astype(np.float64), scores


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
def test_auc_worked_out_by_hand(labels: Numbers, scores: Numbers, auc: float | None) -> None:
    assert exact_auc(ranked(labels, scores)) == auc


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("decimals", [1, 2, 17], ids=["many ties", "some ties", "no ties"])
def test_metrics_equal_those_of_scikit_learn(seed: int, decimals: int) -> None:
    labels, scores = drawn(seed, 3_000, decimals)
    found = measured(labels, scores)
    assert found.auc == pytest.approx(sklearn_metrics.roc_auc_score(labels, scores), abs=1e-12)
    assert found.average_precision == pytest.approx(sklearn_metrics.average_precision_score(labels, scores), abs=1e-12)
    assert found.log_loss == pytest.approx(sklearn_metrics.log_loss(labels, scores), rel=1e-12)
    constant = np.full(3_000, labels.mean())
    assert found.constant_log_loss == pytest.approx(sklearn_metrics.log_loss(labels, constant), rel=1e-12)
    assert found.normalized_entropy == pytest.approx(found.log_loss / found.constant_log_loss)
    assert found.calibration_ratio == pytest.approx(scores.mean() / labels.mean(), rel=1e-12)


def test_certain_and_wrong_scores_cost_much_but_not_infinity() -> None:
    labels, scores = array(1, 0, 1, 0), array(0.0, 1.0, 1.0, 0.0)
    assert measured(labels, scores).log_loss == pytest.approx(sklearn_metrics.log_loss(labels, scores), rel=1e-9)


def test_the_roc_lies_on_that_of_scikit_learn() -> None:
    random = np.random.default_rng(1)
    scores = random.beta(1.0, 30.0, 20_000).astype(np.float32)
    labels = (random.random(20_000) < scores).astype(np.float64)
    curve = roc_points(ranked(labels, scores))
    points = [(x, y) for x, y, _ in curve]
    fpr, tpr, _ = sklearn_metrics.roc_curve(labels, scores, drop_intermediate=False)
    exact = set(zip(fpr.tolist(), tpr.tolist(), strict=True))
    assert len(points) <= 200
    assert points[0] == (0.0, 0.0)
    assert points[-1] == (1.0, 1.0)
    assert points == sorted(points)
    x, y, threshold = curve[100]
    assert (x, y) == ((scores[labels == 0] >= threshold).mean(), (scores[labels == 1] >= threshold).mean())
    assert all(min(abs(x - u) + abs(y - v) for u, v in exact) < 1e-12 for x, y in points[::20])
    assert sklearn_metrics.auc(*zip(*points, strict=True)) == pytest.approx(exact_auc(ranked(labels, scores)), abs=2e-3)


def test_precision_and_recall_are_those_of_scikit_learn() -> None:
    labels, scores = drawn(3, 5_000, 3)
    points = precision_recall_points(ranked(labels, scores))
    precision, recall, _ = sklearn_metrics.precision_recall_curve(labels, scores)
    exact = set(zip(recall.round(12).tolist(), precision.round(12).tolist(), strict=True))
    assert 50 < len(points) <= 200
    assert points[-1][0] == 1.0
    assert {(round(x, 12), round(y, 12)) for x, y in points} <= exact


def test_curves_of_one_class_are_empty() -> None:
    assert roc_points(ranked(array(0, 0), array(0.1, 0.2))) == ()
    assert precision_recall_points(ranked(array(0, 0), array(0.1, 0.2))) == ()
    assert average_precision(ranked(array(0, 0), array(0.1, 0.2))) is None


def test_calibration_by_tenths() -> None:
    scores = np.arange(100)[::-1] / 100
    labels = (scores >= 0.95).astype(np.float64)
    bins = calibration(ranked(labels, scores))
    assert [part.rows for part in bins] == [10] * 10
    assert bins[0].predicted == pytest.approx(0.045)
    assert bins[9].predicted == pytest.approx(0.945)
    assert [part.observed for part in bins] == [0.0] * 9 + [0.5]


def test_calibration_of_few_rows_has_as_many_bins() -> None:
    assert [part.rows for part in calibration(ranked(array(0, 1, 0), array(0.1, 0.2, 0.3)))] == [1, 1, 1]


def test_calibration_never_parts_rows_of_one_score() -> None:
    scores = np.repeat([0.1, 0.2], [70, 30])
    labels = np.concatenate([np.ones(7), np.zeros(63), np.ones(3), np.zeros(27)])
    bins = calibration(ranked(labels, scores))
    assert [(round(part.predicted, 6), part.observed, part.rows) for part in bins] == [(0.1, 0.1, 70), (0.2, 0.1, 30)]


def test_the_histogram_has_every_row_once() -> None:
    labels, scores = drawn(4, 2_000, 17)
    bins = score_histogram(ranked(labels, scores))
    assert sum(part.positives for part in bins) == labels.sum()
    assert sum(part.negatives for part in bins) == 2_000 - labels.sum()
    inside = [int(((scores >= part.low) & (scores < part.high)).sum()) for part in bins[:-1]]
    assert [part.positives + part.negatives for part in bins[:-1]] == inside
    assert bins[-1].high == scores.max()


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        (array(0, 1, 0), array(0.1, float("nan"), 0.3), "preds.csv, row 2: score is NaN"),
        (array(0, 1), array(0.1, 1.5), "preds.csv, row 2: score is 1.5"),
        (array(0, 1), array(0.1, float("-inf")), "preds.csv, row 2: score is -inf"),
        (array(-1, 1), array(0.1, 0.2), "preds.csv, row 1: label -1"),
        (array(0, 1), array(0.1), "preds.csv: "),
    ],
)
def test_what_cannot_be_measured_is_refused_by_row(labels: Numbers, scores: Numbers, message: str) -> None:
    with pytest.raises(InvalidRecords, match=message):
        check_scores(labels.astype(np.float32), scores.astype(np.float32), "preds.csv")


def everything(labels: Numbers, scores: Numbers, ranking: Ranking, sums: Sums) -> Sequence[object]:
    return measure(ranking, sums), roc_points(ranking), calibration(ranking), score_histogram(ranking)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 400),
    decimals=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    workers=st.integers(1, 7),
    rows_at_once=st.sampled_from([1, 3, 17, 10_000]),
    order=st.randoms(use_true_random=False),
)
def test_any_number_of_workers_in_any_order_finds_the_same_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: int, decimals: int, seed: int, workers: int, rows_at_once: int, order: Any
) -> None:
    labels, scores = drawn(seed, rows, decimals)
    whole = everything(labels, scores, ranked(labels, scores), sums_of(labels.astype(np.float32), scores))
    parts = [(labels[worker::workers], scores[worker::workers].astype(np.float32)) for worker in range(workers)]
    order.shuffle(parts)
    sums = sum((sums_of(of.astype(np.float32), found) for of, found in parts), Sums())
    folder = tmp_path_factory.mktemp("scores")
    ranking = Ranking(
        positives=sorted_scores((found[of > 0.5] for of, found in parts), folder / "clicks", rows_at_once),
        negatives=sorted_scores((found[of <= 0.5] for of, found in parts), folder / "others", rows_at_once),
    )
    assert everything(labels, scores, ranking, sums) == whole


def test_a_million_scores_are_sorted_and_measured_in_a_bounded_part_of_their_memory(tmp_path: Path) -> None:
    """The exact AUC of scores i / 2^20, each click one step above a negative row, is known; an array of them would take 4 MiB."""
    rows, part = 1 << 20, 1 << 14
    numbers = np.random.default_rng(5).permutation(rows).astype(np.uint32)  # before anything is measured
    tracemalloc.start()
    halves = [
        sorted_scores(
            (
                numbers[start : start + part][numbers[start : start + part] % 2 == odd].astype(np.float32) / np.float32(rows)
                for start in range(0, rows, part)
            ),
            tmp_path / f"{odd}",
            part,
        )
        for odd in (1, 0)
    ]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = exact_auc(Ranking(positives=halves[0], negatives=halves[1]))
    # Click k of n lies above k + 1 negative rows: sum k + 1 = n (n + 1) / 2.
    assert found == (rows // 2 + 1) / rows
    assert peak < 1 << 20


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
    found, wanted = measured(*rows_of(ONE_CLASS / name)), expected(ONE_CLASS)[name]
    assert found.auc == wanted["auc"]
    assert found.auc_reason == reason
    assert found.log_loss == pytest.approx(wanted["logloss"], rel=1e-9)


@needs_cases
def test_case_17_nan() -> None:
    labels, scores = rows_of(ONE_CLASS / "preds_nan.csv")
    with pytest.raises(InvalidRecords, match=r"preds_nan.csv, row 2: score is NaN"):
        check_scores(labels.astype(np.float32), scores.astype(np.float32), "preds_nan.csv")


@needs_cases
def test_case_18_tiny_scores() -> None:
    wanted = expected(TINY)
    labels, scores = rows_of(TINY / "preds.csv")
    found = measured(labels, scores)
    assert (len(labels), labels.sum()) == (wanted["rows"], wanted["positives"])
    assert found.auc == pytest.approx(wanted["auc_rank"], abs=1e-12)
    assert found.log_loss == pytest.approx(wanted["logloss"], abs=1e-9)


@needs_cases
def test_case_19_workers_are_merged_and_not_averaged() -> None:
    wanted = expected(MERGED)
    parts = [rows_of(MERGED / f"rank{rank}.csv") for rank in range(3)]
    assert [exact_auc(ranked(*part)) for part in parts] == pytest.approx(wanted["auc_each"], abs=1e-12)
    labels, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    sums = sum((sums_of(of.astype(np.float32), found) for of, found in parts), Sums())
    found = measure(ranked(labels, scores), sums)
    assert found.auc == pytest.approx(wanted["auc_all"], abs=1e-12)
    assert found.log_loss == pytest.approx(wanted["logloss_all"], abs=1e-9)
