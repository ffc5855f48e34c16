"""Drift against the champion's training data, and what stops a night before training."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.champion import Champion, champion_model, write_champion
from components.data_check import DataLimits, check_data, read_limits
from components.distributions import FieldCounts, TrainingData, training_data
from components.drift import Drift, drift_of, stability
from components.errors import InvalidConfig, InvalidRecords, NotPromotable
from components.evaluation import Evaluation, read_evaluation, write_evaluation
from components.manifest import Manifest, Split, Statistics, manifest_digest, write_manifest
from components.records import Batch, Schema, write_shard

FEATURES, ROWS = 100, 8_000
EVALUATION = Evaluation(
    rows=10,
    positives=5,
    click_rate=0.5,
    auc=0.7,
    auc_reason="",
    log_loss=0.6,
    log_loss_reason="",
    normalized_entropy=0.9,
    constant_log_loss=0.69,
    model_digest="m",
    data_digest="d",
    champion=None,
    warnings=(),
    roc=(),
    calibration=(),
)


def day(seed: int, rows: int = ROWS, click_rate: float = 0.2) -> Batch:
    """A number in field 0 (id 0), a category of 40 ids in field 1 (10..49), and one of 2 ids in field 2 (50, 51)."""
    random = np.random.default_rng(seed)
    ids = np.stack(
        [np.zeros(rows, np.int64), 10 + np.minimum(random.geometric(0.1, rows) - 1, 39), 50 + random.integers(0, 2, rows)], axis=1
    )
    values = np.ones((rows, 3), np.float32)
    values[:, 0] = random.gamma(2.0, 1.0, rows)
    return Batch(labels=(random.random(rows) < click_rate).astype(np.float32), ids=ids, values=values)


def write_day(dataset: Path, train: Batch, rate: float = 1.0, encodes: str = "") -> Manifest:
    for split in ("train", "validation"):
        (dataset / split).mkdir(parents=True)
    shards = [
        write_shard(dataset / "train" / f"part-0000{number}.tfrecord", train.rows(np.arange(number, len(train), 2)), "blocks")
        for number in range(2)
    ]
    held_out = write_shard(dataset / "validation" / "part-00000.tfrecord", train.rows(slice(0, 2)), "blocks")
    if encodes:
        columns = [{"name": name} for name in ("age", "city", "mobile")]
        document = {"encodes": encodes, "transform": {"numbers": columns, "categories": []}}
        (dataset / "transform.json").write_text(json.dumps(document))
    manifest = Manifest(
        encoding="blocks",
        schema=Schema(field_size=3, feature_size=FEATURES),
        train=Split(examples=len(train), positives=int(train.labels.sum()), shards=tuple(shards)),
        validation=Split(examples=2, positives=held_out.positives, shards=(held_out,)),
        statistics=Statistics(
            smallest_id=0,
            largest_id=FEATURES - 1,
            smallest_value=0.0,
            largest_value=9.0,
            missing=0,
            click_rate=0.2,
            distinct_ids_by_field=(1, 40, 2),
            validation_rows_in_train=0,
        ),
        sources=(),
        negative_sampling_rate=rate,
        versions={},
    )
    write_manifest(dataset, manifest)
    return manifest


CARD = {
    "format_version": 1,
    "strategy": "single",
    "rank": 0,
    "world_size": 1,
    "step": 10,
    "examples": 1000,
    "field_size": 3,
    "feature_size": FEATURES,
    "id_base": 0,
    "data_digest": "d" * 64,
    "config": {},
    "parameter_checksum": "c" * 64,
    "ranks_agreed": True,
    "metrics": {"final_loss": 0.5},
}


def put_in_force(store: Path, data: TrainingData | None) -> None:
    weights = b"the weights of a champion"
    listed = {"weights.npz": {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()}}
    card = json.dumps({**CARD, "files": listed})
    champion = Champion(
        name="deepfm",
        version=7,
        model_digest=hashlib.sha256(card.encode()).hexdigest(),
        data_digest="",
        auc=0.7,
        log_loss=0.6,
        promoted_at="2026-01-01T00:00:00+00:00",
        run_id="",
    )
    folder = champion_model(store, champion)
    folder.mkdir(parents=True)
    (folder / "weights.npz").write_bytes(weights)
    (folder / "model.json").write_text(card)
    write_evaluation(folder.parent / "evaluation.json", replace(EVALUATION, training_data=data))
    write_champion(store, champion)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose champion was trained on day 1."""
    folder = tmp_path_factory.mktemp("champion")
    put_in_force(folder / "models", training_data(folder / "day1", write_day(folder / "day1", day(1))))
    return folder / "models"


def drift(store: Path, dataset: Path, rows: Batch, **extra: Any) -> Drift:
    write_day(dataset, rows, **extra)
    anything = DataLimits(least_share=0.0, click_rate_factor=1e9, most_new_ids=1.0, most_shifted=1.0)
    found = check_data(anything, dataset, store, "deepfm")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        # (0.5 - 0.75) ln(0.5 / 0.75) + (0.5 - 0.25) ln(0.5 / 0.25) = 0.25 ln 3
        ((1_000_000, 1_000_000), (3_000_000, 1_000_000), 0.25 * np.log(3)),
        ((500_000, 500_000), (10, 10), 0.0),
        # From (0.1, 0.9) to (0.2, 0.8): 0.1 ln 2 + 0.1 ln(9/8)
        ((100_000, 900_000), (200_000, 800_000), 0.1 * np.log(2 * 9 / 8)),
    ],
)
def test_the_stability_index_worked_out_by_hand(before: tuple[int, ...], now: tuple[int, ...], expected: float) -> None:
    fields = [FieldCounts(name="x", ids=(1,), counts=counts, edges=(), value_counts=()) for counts in (before, now)]
    assert stability(*fields) == pytest.approx(expected, abs=1e-5)
    assert stability(*reversed(fields)) == pytest.approx(expected, abs=1e-5)


def test_a_day_like_the_champions_has_not_drifted(store: Path, tmp_path: Path) -> None:
    found = drift(store, tmp_path / "day2", day(2))
    assert (found.champion_version, found.rows, found.champion_rows) == (7, ROWS, ROWS)
    assert found.click_rate == pytest.approx(0.2, abs=0.02)
    assert found.new_id_rate == 0.0
    assert [field.field for field in found.fields] == ["field 0", "field 1", "field 2"]
    assert all(field.psi < 0.02 for field in found.fields)


def test_what_changed_is_named(store: Path, tmp_path: Path) -> None:
    rows = day(2)
    rows.values[:, 0] *= 2.0
    rows.ids[: ROWS // 2, 2] = 52
    found = drift(store, tmp_path / "day2", rows)
    numbers, city, mobile = found.fields
    assert numbers.psi > 0.25
    assert city.psi < 0.02
    assert mobile.new_ids == pytest.approx(0.5, abs=0.01)
    assert found.new_id_rate == pytest.approx(0.5 / 3, abs=0.01)
    assert {field.field for field in found.shifted} == {"field 0", "field 2"}


def test_places_that_were_filled_up_are_no_ids(store: Path, tmp_path: Path) -> None:
    rows = day(2)
    rows.ids[:, 2], rows.values[:, 2] = 99, 0.0
    assert drift(store, tmp_path / "day2", rows).new_id_rate == 0.0


def test_the_click_rate_is_that_of_the_whole_traffic(store: Path, tmp_path: Path) -> None:
    """Of 0.2 clicks, a quarter of the negative rows kept: 0.2 / (0.2 + 0.8 / 4) = 0.5 among the rows that train."""
    found = drift(store, tmp_path / "day2", day(3, click_rate=0.5), rate=0.25)
    assert found.click_rate == pytest.approx(0.2, abs=0.01)


def test_ids_of_another_transform_are_not_compared(store: Path, tmp_path: Path) -> None:
    found = drift(store, tmp_path / "day2", day(2), encodes="another")
    assert found.new_id_rate is None
    assert found.fields == ()
    assert found.reason == "another transform made the ids of the champion's rows"


def test_fields_of_a_transform_have_their_names(tmp_path: Path) -> None:
    data = training_data(tmp_path / "day", write_day(tmp_path / "day", day(1), encodes="a"))
    assert [field.name for field in data.fields] == ["age", "city", "mobile"]


def test_every_row_is_counted_as_known_and_the_largest_id_too(tmp_path: Path) -> None:
    rows = day(1, 1_000)
    rows.ids[999, 1] = FEATURES - 1
    data = training_data(tmp_path / "day", write_day(tmp_path / "day", rows))
    known = data.known(np.arange(FEATURES + 20))
    assert set(np.flatnonzero(known).tolist()) == set(rows.ids.ravel().tolist())


def test_what_is_kept_with_a_model_is_read_again(tmp_path: Path) -> None:
    manifest = write_day(tmp_path / "day", day(1))
    data = training_data(tmp_path / "day", manifest)
    evaluation = replace(EVALUATION, training_data=data, drift=drift_of(tmp_path / "day", manifest, 7, data))
    write_evaluation(tmp_path / "evaluation.json", evaluation)
    assert read_evaluation(tmp_path / "evaluation.json") == evaluation
    assert (tmp_path / "evaluation.json").stat().st_size < 20_000
    assert evaluation.data_digest != manifest_digest(manifest)


def shuffled_ids(rows: Batch) -> Batch:
    return replace(rows, ids=np.where(rows.ids < 50, rows.ids + 1, rows.ids + 7))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (day(2, ROWS // 2), "4,000 training rows, 50% of the champion's 8,000; 60% is the least"),
        (day(2, click_rate=0.8), r"a click rate of \d+\.\d+%, the champion's data had .*; a factor of 3 is the most"),
        (shuffled_ids(day(2)), r"\d+% of the ids are new to the champion; 50% is the most"),
        (replace(day(2), labels=np.zeros(ROWS, np.float32)), r"of one class \(0 clicks of 8,000\)"),
        (replace(day(2), values=day(2).values * 3, ids=day(2).ids[:, [0, 1, 1]]), r"2 of 3 fields have changed .*field 2 \d+"),
    ],
    ids=["half the file missing", "click rate", "ids shifted", "one class", "columns mixed up"],
)
def test_a_bad_day_stops_before_training_and_the_champion_stays(store: Path, tmp_path: Path, rows: Batch, sentence: str) -> None:
    write_day(tmp_path / "day2", rows)
    with pytest.raises(InvalidRecords, match=f"day2: .*{sentence}.*; champion version 7 stays; look at the day's files"):
        check_data(DataLimits(), tmp_path / "day2", store, "deepfm")


def test_without_a_champion_only_the_day_itself_is_looked_at(tmp_path: Path) -> None:
    write_day(tmp_path / "day1", day(1, 100))
    assert check_data(DataLimits(), tmp_path / "day1", tmp_path / "models", "deepfm") is None
    with pytest.raises(InvalidRecords, match="100 training rows, 1,000 are the least; look at"):
        check_data(DataLimits(least_rows=1_000), tmp_path / "day1", tmp_path / "models", "deepfm")
    assert not (tmp_path / "models").exists()


def test_a_champion_of_before_this_was_kept_stops_nothing(tmp_path: Path) -> None:
    put_in_force(tmp_path / "models", None)
    write_day(tmp_path / "day1", day(1, 100))
    assert check_data(DataLimits(), tmp_path / "day1", tmp_path / "models", "deepfm") is None


def test_a_damaged_champion_is_found_before_anything_is_trained(tmp_path: Path) -> None:
    put_in_force(tmp_path / "models", None)
    write_day(tmp_path / "day1", day(1, 100))
    (tmp_path / "models/deepfm/versions/7/model/weights.npz").write_bytes(b"The weights of a champion")
    with pytest.raises(
        NotPromotable, match=r"weights.npz: damaged, it differs from model.json; put a version in force: ctrflow models"
    ):
        check_data(DataLimits(), tmp_path / "day1", tmp_path / "models", "deepfm")


def test_limits_are_read_from_json() -> None:
    assert read_limits('{"least_share": 0.25}') == DataLimits(least_share=0.25)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not JSON"),
        ('{"least_shares": 1}', "did you mean least_share"),
        ('{"least_share": 2}', "least_share 2"),
        ('{"click_rate_factor": 0.5}', "click_rate_factor 0.5"),
        ('{"least_rows": -1}', "least_rows -1"),
        ('{"most_new_ids": "all"}', "most_new_ids 'all'"),
    ],
)
def test_wrong_limits_are_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        read_limits(text)
