"""The evaluate step on real datasets and real SavedModels whose probabilities are known beforehand."""

import hashlib
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kfp import dsl
from sklearn.metrics import log_loss, roc_auc_score

from components.champion import Champion, champion_model, write_champion
from components.errors import InvalidConfig, NotPromotable
from components.evaluate.component import evaluate as component
from components.evaluate.step import EvaluateConfig, evaluate
from components.evaluation import read_evaluation
from components.manifest import Manifest, Split, Statistics, manifest_digest, write_manifest
from components.model_files import load_scorer, model_digest
from components.records import Batch, Schema, write_shard

FIELDS, FEATURES, ROWS = 3, 50, 10_000
# What evaluate reads of transform.json: what it encodes, and what the fields are.
ENCODES_A, ENCODES_B = (
    json.dumps({"encodes": name, "transform": {"numbers": [{"name": each} for each in "xyz"], "categories": []}}) for name in "ab"
)
TRUE_WEIGHTS = np.random.default_rng(7).normal(size=FEATURES).astype(np.float32)
WEAK_WEIGHTS = (TRUE_WEIGHTS + np.random.default_rng(8).normal(scale=2.0, size=FEATURES)).astype(np.float32)


def probabilities(weights: Any, batch: Batch) -> Any:
    """What the saved model computes, in numpy."""
    return 1.0 / (1.0 + np.exp(-(weights[batch.ids] * batch.values).sum(axis=1).astype(np.float64)))


def validation_rows(rows: int, one_class: bool = False) -> Batch:
    random = np.random.default_rng(11)
    batch = Batch(
        labels=np.zeros(rows, np.float32),
        ids=random.integers(0, FEATURES, (rows, FIELDS)),
        values=random.uniform(0.5, 1.5, (rows, FIELDS)).astype(np.float32),
    )
    if one_class:
        return batch
    return replace(batch, labels=(random.random(rows) < probabilities(TRUE_WEIGHTS, batch)).astype(np.float32))


def write_dataset(dataset: Path, validation: Batch, warnings: tuple[str, ...] = (), rate: float = 1.0) -> Manifest:
    """Two validation shards; the training split is never read here and stays empty."""
    (dataset / "validation").mkdir(parents=True)
    half = len(validation) // 3
    shards = tuple(
        write_shard(dataset / "validation" / f"part-0000{number}.tfrecord", validation.rows(chosen), "blocks")
        for number, chosen in enumerate((slice(0, half), slice(half, None)))
    )
    manifest = Manifest(
        encoding="blocks",
        schema=Schema(field_size=FIELDS, feature_size=FEATURES),
        train=Split(examples=0, positives=0, shards=()),
        validation=Split(examples=len(validation), positives=int(validation.labels.sum()), shards=shards),
        statistics=Statistics(
            smallest_id=0,
            largest_id=FEATURES - 1,
            smallest_value=0.5,
            largest_value=1.5,
            missing=0,
            click_rate=0.5,
            distinct_ids_by_field=(FEATURES,) * FIELDS,
            validation_rows_in_train=0,
        ),
        sources=(),
        negative_sampling_rate=rate,
        warnings=warnings,
        versions={},
    )
    write_manifest(dataset, manifest)
    return manifest


def write_model(model: Path, weights: Any, manifest: Manifest, transform: str = "", **changes: Any) -> Path:
    """A SavedModel of sigmoid(sum of weight x value) with its model.json."""
    import tensorflow as tf

    class Linear(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(weights)

        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int64, "ids"), tf.TensorSpec([None, None], tf.float32, "values")]
        )
        def serve(self, ids: Any, values: Any) -> Any:
            return {"probability": tf.sigmoid(tf.reduce_sum(tf.gather(self.weights, ids) * values, axis=1))}

    module = Linear()
    tf.saved_model.save(module, str(model / "saved_model"), signatures={"serving_default": module.serve})
    np.savez(model / "weights.npz", weights=weights)
    if transform:
        (model / "transform.json").write_text(transform)
    files = {
        path.relative_to(model).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(model.rglob("*"))
        if path.is_file()
    }
    card = {
        "format_version": 1,
        "strategy": "single",
        "rank": 0,
        "world_size": 1,
        "step": 10,
        "examples": 1000,
        "field_size": FIELDS,
        "feature_size": FEATURES,
        "id_base": 0,
        "data_digest": manifest_digest(manifest),
        "config": {},
        "parameter_checksum": "00",
        "ranks_agreed": True,
        "metrics": {"final_loss": 0.5},
        "files": files,
    }
    (model / "model.json").write_text(json.dumps({**card, **changes}))
    return model


def put_in_store(store: Path, version: int, weights: Any, manifest: Manifest, **changes: Any) -> None:
    champion = Champion(
        name="deepfm",
        version=version,
        model_digest="",
        data_digest="of another day",
        auc=0.9,
        log_loss=0.1,
        promoted_at="2026-01-01T00:00:00+00:00",
        run_id="",
    )
    write_model(champion_model(store, champion), weights, manifest, **changes)
    write_champion(store, champion)


class Folder:
    """A dataset, a good model trained on it, and the places of the outputs."""

    def __init__(self, root: Path, validation: Batch, **extra: Any) -> None:
        self.validation = validation
        self.dataset, self.out, self.report = root / "dataset", root / "out" / "evaluation.json", root / "out" / "report.html"
        self.store = root / "models"
        self.manifest = write_dataset(self.dataset, validation, **extra)
        self.model = write_model(root / "model", TRUE_WEIGHTS, self.manifest)

    def evaluate(self, store: Path | None = None, batch_size: int = 8192) -> Any:
        return evaluate(EvaluateConfig(batch_size=batch_size), self.model, self.dataset, self.out, self.report, store)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, validation_rows(ROWS), warnings=("3 rows rejected",))


def test_metrics_are_those_of_scikit_learn_on_every_row_and_are_written(folder: Folder) -> None:
    found = folder.evaluate()
    labels, scores = folder.validation.labels, probabilities(TRUE_WEIGHTS, folder.validation)
    assert found.rows == ROWS
    assert found.positives == labels.sum()
    assert found.auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-6)
    assert found.log_loss == pytest.approx(log_loss(labels, scores), abs=1e-6)
    assert found.model_digest == model_digest(folder.model)
    assert found.data_digest == manifest_digest(folder.manifest)
    assert found.champion is None
    assert found.warnings == ("3 rows rejected",)
    assert read_evaluation(folder.out) == found
    page = folder.report.read_text()
    assert f"{found.auc:.4f}" in page
    assert "3 rows rejected" in page
    assert page.count("<svg") == 4


@pytest.mark.parametrize("batch_size", [1_000, 4_096, 100_000])
def test_the_batch_size_changes_nothing(folder: Folder, batch_size: int) -> None:
    assert folder.evaluate(batch_size=batch_size).auc == pytest.approx(folder.evaluate().auc, abs=1e-9)


def test_an_empty_store_has_no_champion(folder: Folder) -> None:
    assert folder.evaluate(folder.store).champion is None
    assert not folder.store.exists()


def test_the_champion_is_scored_on_the_same_rows(folder: Folder) -> None:
    put_in_store(folder.store, 4, WEAK_WEIGHTS, folder.manifest, data_digest="of another day")
    found = folder.evaluate(folder.store)
    labels, weak = folder.validation.labels, probabilities(WEAK_WEIGHTS, folder.validation)
    assert found.champion.version == 4
    assert found.champion.auc == pytest.approx(roc_auc_score(labels, weak), abs=1e-6)
    assert found.champion.log_loss == pytest.approx(log_loss(labels, weak), abs=1e-6)
    assert found.champion.auc_difference == pytest.approx(found.auc - found.champion.auc)
    assert found.champion.auc_difference > 0


def write_sampled_model(model: Path, manifest: Manifest, rate: float) -> None:
    """What the training program saves of TRUE_WEIGHTS, as learned where this share of the negative rows was kept."""
    from components.train.program.config import TrainConfig
    from components.train.program.export import write_model as export
    from components.train.program.model import make_model

    config = TrainConfig(embedding_size=1, deep_layers=())
    table = np.stack([TRUE_WEIGHTS, np.zeros_like(TRUE_WEIGHTS)], axis=1)
    # Log-odds are ln 1/rate higher than in the traffic.
    bias = np.array([-np.log(rate)], np.float32)
    trained = {"strategy": "single", "world_size": 1, "step": 1, "examples": 64, "ranks_agreed": True, "metrics": {}}
    model.mkdir(parents=True)
    sampled = replace(manifest, negative_sampling_rate=rate)
    card = export(model, config, sampled, make_model(config, FIELDS, 0.3), table, [bias], model / "no transform.json", trained)
    (model / "model.json").write_text(json.dumps(card))


def test_models_of_any_sampling_rate_are_measured_on_the_traffic(tmp_path: Path) -> None:
    """The model saw a tenth of the negative rows, the champion half of them: as probabilities of the traffic both are right."""
    folder = Folder(tmp_path, validation_rows(ROWS), rate=0.1)
    folder.model = tmp_path / "sampled"
    write_sampled_model(folder.model, folder.manifest, 0.1)
    put_in_store(folder.store, 2, TRUE_WEIGHTS, folder.manifest)
    champion = folder.store / "deepfm/versions/2/model"
    shutil.rmtree(champion)
    write_sampled_model(champion, folder.manifest, 0.5)
    found = folder.evaluate(folder.store)
    labels, scores = folder.validation.labels, probabilities(TRUE_WEIGHTS, folder.validation)
    for measured in (found, found.champion):
        assert measured.auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-6)
        assert measured.log_loss == pytest.approx(log_loss(labels, scores), abs=1e-6)
    predicted = sum(part.predicted * part.rows for part in found.calibration) / found.rows
    assert predicted == pytest.approx(scores.mean(), abs=1e-6)
    assert "0.1 of them; its probabilities are corrected for it" in folder.report.read_text()


@pytest.mark.parametrize(("shape", "words"), [({"feature_size": 60}, "60 features"), ({"field_size": 4}, "4 fields")])
def test_a_champion_of_another_shape_is_listed_with_the_reason(folder: Folder, shape: dict[str, int], words: str) -> None:
    put_in_store(folder.store, 1, WEAK_WEIGHTS, folder.manifest, **shape)
    found = folder.evaluate(folder.store)
    assert found.auc is not None
    assert found.champion.auc is found.champion.log_loss is found.champion.auc_difference is None
    assert words in found.champion.auc_reason


def test_a_champion_that_gives_nan_is_listed_with_the_reason(folder: Folder) -> None:
    put_in_store(folder.store, 1, np.full(FEATURES, np.nan, np.float32), folder.manifest)
    found = folder.evaluate(folder.store)
    assert found.champion.auc is None
    assert "score is NaN" in found.champion.auc_reason


def test_one_class_gives_null_with_the_reason_in_valid_json(tmp_path: Path) -> None:
    folder = Folder(tmp_path, validation_rows(50, one_class=True))
    folder.evaluate()
    document = json.loads(folder.out.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert document["auc"] is None
    assert document["auc_reason"] == "no positive rows (0 of 50)"
    assert document["normalized_entropy"] is None
    assert document["log_loss"] > 0
    assert "undefined (no positive rows (0 of 50))" in folder.report.read_text()


def test_no_validation_rows_gives_null_with_the_reason(tmp_path: Path) -> None:
    folder = Folder(tmp_path, validation_rows(0))
    put_in_store(folder.store, 1, WEAK_WEIGHTS, folder.manifest)
    found = folder.evaluate(folder.store)
    assert found.auc is found.log_loss is found.champion.auc is None
    assert found.auc_reason == found.log_loss_reason == found.champion.auc_reason == "0 rows in the validation split"
    assert read_evaluation(folder.out) == found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"field_size": 4}, "field_size 4, .* has 3"),
        ({"feature_size": 60}, "feature_size 60, .* has 50"),
        ({"data_digest": "f" * 64}, "trained on dataset ffffffffffff"),
    ],
)
def test_a_model_of_other_data_is_refused(folder: Folder, changes: dict[str, Any], message: str) -> None:
    card = json.loads((folder.model / "model.json").read_text())
    (folder.model / "model.json").write_text(json.dumps({**card, **changes}))
    with pytest.raises(InvalidConfig, match=message):
        folder.evaluate()
    assert not folder.out.exists()


@pytest.mark.parametrize(
    ("kept", "given", "message"),
    [
        (ENCODES_A, "", "it has [0-9a-f]{12}, .*dataset has none"),
        ("", ENCODES_A, "it has none, .*transform.json is [0-9a-f]{12}"),
        (ENCODES_A, f"{ENCODES_A} ", "it has [0-9a-f]{12}, .*transform.json is [0-9a-f]{12}"),
    ],
)
def test_a_model_with_another_transform_than_its_dataset_is_refused(
    folder: Folder, tmp_path: Path, kept: str, given: str, message: str
) -> None:
    folder.model = write_model(tmp_path / "other", TRUE_WEIGHTS, folder.manifest, kept)
    if given:
        (folder.dataset / "transform.json").write_text(given)
    with pytest.raises(InvalidConfig, match=f"not with the transform of its dataset: {message}"):
        folder.evaluate()
    assert not folder.out.exists()


@pytest.mark.parametrize(
    ("of_champion", "reason"),
    [
        (f"{ENCODES_A} ", ""),
        (ENCODES_B, "another transform made the champion's ids"),
        ("", "the champion has no transform"),
    ],
)
def test_a_champion_is_compared_if_its_transform_encodes_alike(
    folder: Folder, tmp_path: Path, of_champion: str, reason: str
) -> None:
    ours = ENCODES_A
    (folder.dataset / "transform.json").write_text(ours)
    folder.model = write_model(tmp_path / "ours", TRUE_WEIGHTS, folder.manifest, ours)
    put_in_store(folder.store, 1, WEAK_WEIGHTS, folder.manifest, transform=of_champion)
    champion = folder.evaluate(folder.store).champion
    assert champion.auc_reason.startswith(reason)
    assert (champion.auc is None) is bool(reason)


def test_a_model_that_gives_nan_has_null_with_the_row_and_the_champion_its_figures(tmp_path: Path) -> None:
    folder = Folder(tmp_path, validation_rows(100))
    folder.model = write_model(tmp_path / "nan", np.full(FEATURES, np.nan, np.float32), folder.manifest)
    put_in_store(folder.store, 1, TRUE_WEIGHTS, folder.manifest)
    found = folder.evaluate(folder.store)
    assert found.auc is found.log_loss is found.normalized_entropy is None
    assert re.search(r"nan on .*/validation/part-00000.tfrecord, row 1: score is NaN", found.auc_reason)
    assert found.log_loss_reason == found.auc_reason
    assert found.champion.auc is not None
    assert found.champion.auc_difference is None
    assert found.sample == ()
    assert read_evaluation(folder.out) == found


def test_a_model_of_one_score_ranks_nothing_and_that_is_said(folder: Folder, tmp_path: Path) -> None:
    folder.model = write_model(tmp_path / "flat", np.zeros(FEATURES, np.float32), folder.manifest)
    found = folder.evaluate()
    assert found.auc == 0.5
    assert any("the same score, 0.5" in warning for warning in found.warnings)


@pytest.mark.parametrize("processes", [1, 3])
def test_workers_that_share_the_rows_find_the_same_to_the_last_bit(folder: Folder, tmp_path: Path, processes: int) -> None:
    put_in_store(folder.store, 1, WEAK_WEIGHTS, folder.manifest)
    alone = folder.evaluate(folder.store, batch_size=512)
    config = EvaluateConfig(batch_size=512, processes=processes)
    shared = evaluate(config, folder.model, folder.dataset, tmp_path / "other.json", folder.report, folder.store)
    assert shared == alone


def test_the_difference_to_the_champion_has_an_interval_that_holds_it(folder: Folder) -> None:
    put_in_store(folder.store, 4, WEAK_WEIGHTS, folder.manifest)
    found = folder.evaluate(folder.store).champion
    assert 0.0 < found.auc_low < found.auc_difference < found.auc_high
    assert found.p_value < 1e-6
    assert found.log_loss_low < found.log_loss_difference < found.log_loss_high < 0.0
    page = folder.report.read_text()
    assert f"better than champion version 4 by {found.auc_difference:.4f} ± {found.auc_high - found.auc_difference:.4f} AUC" in page
    assert "to say so would be wrong with p &lt; 0.0001" in page


def test_a_model_is_as_good_as_itself(folder: Folder) -> None:
    put_in_store(folder.store, 4, TRUE_WEIGHTS, folder.manifest)
    found = folder.evaluate(folder.store).champion
    assert (found.auc_low, found.auc_difference, found.auc_high, found.p_value) == (0.0, 0.0, 0.0, 0.5)
    assert (found.log_loss_low, found.log_loss_difference, found.log_loss_high) == (0.0, 0.0, 0.0)
    assert "as good as champion version 4" in folder.report.read_text()


def test_a_champion_of_a_smaller_table_scores_what_it_knows(folder: Folder) -> None:
    known = 40
    put_in_store(folder.store, 2, WEAK_WEIGHTS[:known], folder.manifest, feature_size=known)
    found = folder.evaluate(folder.store)
    rows = folder.validation
    seen = replace(rows, ids=np.where(rows.ids < known, rows.ids, 0), values=np.where(rows.ids < known, rows.values, 0))
    assert found.champion.auc == pytest.approx(roc_auc_score(rows.labels, probabilities(WEAK_WEIGHTS, seen)), abs=1e-6)
    assert any("knows 40 of 50 features" in warning for warning in found.warnings)


def test_a_champion_whose_vocabulary_grew_since_scores_by_its_own(folder: Folder, tmp_path: Path) -> None:
    """Ids from 40 on are tokens that were rare to the champion: 7 in the first field, 8 in the second; the third is of numbers."""
    known, rare = 40, np.array([0, 7, 8])
    columns = [{"name": name, "width": 1, "missing": 1, "rare": number} for name, number in (("y", 7), ("z", 8))]
    older = [{"encodes": "before all", "feature_size": 20}, {"encodes": "the champion's", "feature_size": known}]
    transform = {"numbers": [{"name": "x"}], "categories": columns, "older": older}
    ours = json.dumps({"encodes": "today's", "transform": transform})
    (folder.dataset / "transform.json").write_text(ours)
    folder.model = write_model(tmp_path / "ours", TRUE_WEIGHTS, folder.manifest, ours)
    theirs = json.dumps({"encodes": "the champion's"})
    put_in_store(folder.store, 2, WEAK_WEIGHTS[:known], folder.manifest, feature_size=known, transform=theirs)
    found = folder.evaluate(folder.store)
    rows = folder.validation
    seen = replace(rows, ids=np.where(rows.ids < known, rows.ids, rare))
    assert found.champion.auc == pytest.approx(roc_auc_score(rows.labels, probabilities(WEAK_WEIGHTS, seen)), abs=1e-6)
    assert found.auc == pytest.approx(roc_auc_score(rows.labels, probabilities(TRUE_WEIGHTS, rows)), abs=1e-6)
    assert not any("features" in warning for warning in found.warnings)


def test_slices_are_measured_as_rows_of_their_own(folder: Folder, tmp_path: Path) -> None:
    config = EvaluateConfig(slices=("field 1",))
    found = evaluate(config, folder.model, folder.dataset, folder.out, folder.report, None).slices
    rows, scores = folder.validation, probabilities(TRUE_WEIGHTS, folder.validation)
    assert len(found) == 21  # the 20 most frequent of 50 ids, and the others
    assert sum(part.rows for part in found) == ROWS
    assert [part.rows for part in found[:20]] == sorted((part.rows for part in found[:20]), reverse=True)
    named = [int(part.value.removeprefix("id ")) for part in found[:20]]
    assert found[20].value == ""
    for part, chosen in [
        (found[0], rows.ids[:, 1] == named[0]),
        (found[20], ~np.isin(rows.ids[:, 1], named)),
    ]:
        labels, own = rows.labels[chosen], scores[chosen]
        assert (part.field, part.rows, part.positives) == ("field 1", len(labels), labels.sum())
        assert part.auc == pytest.approx(roc_auc_score(labels, own), abs=1e-5)
        assert part.log_loss == pytest.approx(log_loss(labels, own), abs=1e-6)
        assert (part.click_rate, part.predicted) == pytest.approx((labels.mean(), own.mean()), abs=1e-6)
    assert "all other values" in folder.report.read_text()


def test_a_slice_by_an_unknown_field_is_refused(folder: Folder) -> None:
    with pytest.raises(InvalidConfig, match="slice by 'field 7': the rows have no such field; did you mean field"):
        evaluate(EvaluateConfig(slices=("field 7",)), folder.model, folder.dataset, folder.out, folder.report, None)
    assert not folder.out.exists()


def test_the_saved_model_gives_the_sampled_scores_again(folder: Folder) -> None:
    found = folder.evaluate()
    assert len(found.sample) == 64
    ids, values = (np.array([getattr(row, name) for row in found.sample]) for name in ("ids", "values"))
    assert [row.score for row in found.sample] == pytest.approx(load_scorer(folder.model)(ids, values).tolist(), abs=1e-6)


def test_kfp_gets_finite_metrics_and_a_curve_of_at_most_200_points(folder: Folder, tmp_path: Path) -> None:
    put_in_store(folder.store, 4, WEAK_WEIGHTS, folder.manifest)
    kinds = {"evaluation": dsl.Artifact, "metrics": dsl.Metrics, "classification": dsl.ClassificationMetrics, "report": dsl.HTML}
    outputs = {name: kind(name=name, uri=str(tmp_path / "kfp" / name)) for name, kind in kinds.items()}
    component.python_func(
        model=dsl.Model(uri=str(folder.model)),
        dataset=dsl.Dataset(uri=str(folder.dataset)),
        champion_dataset=dsl.Dataset(uri=str(tmp_path / "kfp" / "none")),
        store=str(folder.store),
        name="deepfm",
        slices=" field 0, field 2",
        **outputs,
    )
    found = read_evaluation(tmp_path / "kfp" / "evaluation")
    assert {part.field for part in found.slices} == {"field 0", "field 2"}
    logged = outputs["metrics"].metadata
    assert (logged["auc"], logged["auc_difference_to_champion"]) == (found.auc, found.champion.auc_difference)
    curve = outputs["classification"].metadata["confidenceMetrics"]
    assert 50 < len(curve) <= 200
    assert all(math.isfinite(number) for point in curve for number in point.values())
    assert (curve[0]["falsePositiveRate"], curve[-1]["recall"]) == (0.0, 1.0)


def test_scratch_files_are_gone(folder: Folder) -> None:
    folder.evaluate()
    assert sorted(path.name for path in folder.out.parent.iterdir()) == ["evaluation.json", "report.html"]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: damage(model / "saved_model" / "saved_model.pb"), "saved_model.pb: damaged"),
        (lambda model: (model / "weights.npz").unlink(), "weights.npz: missing"),
        (lambda model: (model / "weights.npz").write_bytes(b""), "weights.npz: 0 bytes"),
        (lambda model: (model / "stranger").touch(), "stranger: not listed"),
        (lambda model: (model / "model.json").unlink(), "no model.json"),
        (lambda model: (model / "model.json").write_text("{"), "not valid JSON"),
        (lambda model: (model / "model.json").write_text('{"format_version": 9}'), "format_version 1 is expected"),
        (lambda model: (model / "model.json").write_text('{"format_version": 1}'), "no strategy, rank"),
    ],
)
def test_a_damaged_model_is_refused_by_file(folder: Folder, change: Any, message: str) -> None:
    change(folder.model)
    with pytest.raises(NotPromotable, match=message):
        folder.evaluate()


def test_files_outside_the_model_folder_are_refused(folder: Folder) -> None:
    card = json.loads((folder.model / "model.json").read_text())
    card["files"]["../dataset/manifest.json"] = {"bytes": 1, "sha256": "0"}
    (folder.model / "model.json").write_text(json.dumps(card))
    with pytest.raises(NotPromotable, match="outside the model folder"):
        folder.evaluate()


@pytest.mark.parametrize(
    "settings", [{"name": "../x"}, {"name": ""}, {"batch_size": 0}, {"confidence": 95.0}, {"processes": 0}, {"seed": -1}]
)
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        EvaluateConfig(**settings)
