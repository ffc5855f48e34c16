"""The built-in sample: its shape, its reproducibility, and that what was planted can be found again."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from components.errors import InvalidConfig
from pipelines.sample import PlantedModel, write_sample

ROWS = 30_000
CATEGORY = re.compile(r"[0-9a-f]{8}|")
COUNT = re.compile(r"-?[0-9]+|")


@pytest.fixture(scope="module")
def sample_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "clicks.tsv"
    write_sample(path, ROWS, seed=3)
    return path


@pytest.fixture(scope="module")
def cells(sample_file: Path) -> list[list[str]]:
    return [line.split("\t") for line in sample_file.read_text().splitlines()]


def test_rows_look_like_criteo(cells: list[list[str]]) -> None:
    assert len(cells) == ROWS
    assert {len(row) for row in cells} == {40}
    assert {row[0] for row in cells} == {"0", "1"}
    assert all(COUNT.fullmatch(cell) for row in cells for cell in row[1:14])
    assert all(CATEGORY.fullmatch(cell) for row in cells for cell in row[14:])


def test_a_quarter_of_the_rows_are_clicks(cells: list[list[str]]) -> None:
    assert np.mean([row[0] == "1" for row in cells]) == pytest.approx(0.25, abs=0.015)


def test_counts_have_gaps_heavy_tails_and_a_negative_column(cells: list[list[str]]) -> None:
    for column in range(1, 14):
        found = np.array([int(row[column]) for row in cells if row[column]])
        assert found.max() > 10 * max(1.0, np.median(found))
        assert (found.min() < 0) == (column == 2)
    gaps = [np.mean([row[column] == "" for row in cells]) for column in range(1, 14)]
    assert gaps[1] == 0.0
    assert gaps[11] == pytest.approx(0.77, abs=0.01)


def test_categories_follow_a_power_law_from_few_to_thousands(cells: list[list[str]]) -> None:
    distinct = []
    for column in range(14, 40):
        tokens, rows = np.unique([row[column] for row in cells if row[column]], return_counts=True)
        distinct.append(len(tokens))
        if len(tokens) > 1000:
            ordered = np.sort(rows)[::-1]
            assert ordered[0] > 20 * ordered[100] > 0
            assert ordered[len(ordered) // 2] <= 5
    assert min(distinct) <= 4
    assert max(distinct) > 3000
    every = {token for row in cells for token in set(row[14:])} - {""}
    assert len(every) == sum(distinct)  # no token is shared by two columns


def test_the_facts_are_written_beside_and_hold(sample_file: Path, cells: list[list[str]]) -> None:
    facts = json.loads(sample_file.with_name("clicks.tsv.json").read_text())
    assert facts == {
        "rows": ROWS,
        "clicks": sum(row[0] == "1" for row in cells),
        "seed": 3,
        "best_auc": pytest.approx(0.80, abs=0.015),
    }


def test_equal_seeds_give_equal_bytes_and_others_do_not(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_sample(tmp_path / name, 500, seed)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_bytes() != (tmp_path / "c").read_bytes()


def test_the_planted_probabilities_are_calibrated() -> None:
    model, random = PlantedModel(), np.random.default_rng(5)
    probabilities = model.probabilities(model.draw(random, 50_000))
    assert probabilities.mean() == pytest.approx(0.25, abs=0.01)
    labels = random.random(50_000) < probabilities
    assert roc_auc_score(labels, probabilities) == pytest.approx(0.80, abs=0.01)


def test_a_plain_model_finds_most_of_the_signal_even_in_few_rows(cells: list[list[str]], sample_file: Path) -> None:
    """Logistic regression on log counts and smoothed click rates of categories, a sixth of the built-in sample's rows."""
    labels = np.array([row[0] == "1" for row in cells], np.float64)
    train = np.arange(ROWS) < 0.9 * ROWS
    columns = []
    for column in range(1, 14):
        counts = np.array([float(row[column]) if row[column] else np.nan for row in cells])
        columns += [np.nan_to_num(np.sign(counts) * np.log1p(np.abs(counts))), np.isnan(counts)]
    for column in range(14, 40):
        _, ids = np.unique([row[column] for row in cells], return_inverse=True)
        own = labels * train
        # A row's own label is left out of its category's rate.
        clicks = np.bincount(ids, own)[ids] - own
        rows = np.bincount(ids, train.astype(float))[ids] - train
        rate = (clicks + 20 * 0.25) / (rows + 20)
        columns.append(np.log(rate / (1 - rate)))
    features = np.stack(columns, axis=1).astype(np.float64)
    features = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-9)
    model = LogisticRegression(max_iter=300).fit(features[train], labels[train])
    auc = roc_auc_score(labels[~train], model.predict_proba(features[~train])[:, 1])
    best = json.loads(sample_file.with_name("clicks.tsv.json").read_text())["best_auc"]
    assert (auc - 0.5) / (best - 0.5) > 0.80


@pytest.mark.parametrize(("rows", "seed", "message"), [(99, 1, "rows 99"), (1000, -1, "seed -1")])
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, rows: int, seed: int, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        write_sample(tmp_path / "clicks.tsv", rows, seed)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="is a folder"):
        write_sample(tmp_path, 1000, 1)
