"""A store, local or in S3, and small real models that come to it one after another."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.champion import read_champion
from components.evaluation import ChampionScore, Evaluation, SampledRow, write_evaluation
from components.model_files import model_digest
from components.promote.step import PromoteConfig, Promotion, promote

FIELDS, FEATURES = 3, 50
WEIGHTS = np.random.default_rng(2).normal(size=FEATURES).astype(np.float32)
EVALUATION = Evaluation(
    rows=1000,
    positives=250,
    click_rate=0.25,
    auc=0.78,
    auc_reason="",
    log_loss=0.47,
    log_loss_reason="",
    normalized_entropy=0.84,
    constant_log_loss=0.5623,
    model_digest="",
    data_digest="d" * 64,
    champion=None,
    warnings=("3 rows rejected",),
    roc=(),
    calibration=(),
    calibration_ratio=1.02,
)


def sample(weights: Any = WEIGHTS) -> tuple[SampledRow, ...]:
    """Rows and their scores by numpy, as evaluation samples them."""
    draw = np.random.default_rng(5)
    rows = []
    for _ in range(8):
        ids, values = draw.integers(0, FEATURES, FIELDS), draw.uniform(0.5, 1.5, FIELDS).astype(np.float32)
        score = 1.0 / (1.0 + np.exp(-float((weights[ids] * values).sum())))
        rows.append(SampledRow(ids=tuple(ids.tolist()), values=tuple(values.tolist()), score=score))
    return tuple(rows)


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sigmoid(sum of weight x value), with the signature that training exports."""
    import tensorflow as tf

    class Linear(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(WEIGHTS)

        @tf.function(
            input_signature=[tf.TensorSpec([None, FIELDS], tf.int64, "ids"), tf.TensorSpec([None, FIELDS], tf.float32, "values")]
        )
        def serve(self, ids: Any, values: Any) -> Any:
            return {"probability": tf.sigmoid(tf.reduce_sum(tf.gather(self.weights, ids) * values, axis=1))}

    folder, module = tmp_path_factory.mktemp("saved") / "saved_model", Linear()
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve})
    return folder


def write_model(model: Path, saved_model: Path, seed: int, weights: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A model folder; models of different seeds have different weights beside the same SavedModel."""
    shutil.copytree(saved_model, model / "saved_model")
    draw = np.random.default_rng(seed)
    arrays = weights or {"table": draw.normal(size=(FEATURES, 4)).astype(np.float32), "dense_0": draw.normal(size=5)}
    np.savez(model / "weights.npz", **arrays)
    files = {
        path.relative_to(model).as_posix(): {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(model.rglob("*"))
        if path.is_file()
    }
    card = {
        "format_version": 1,
        "strategy": "horovod",
        "rank": 0,
        "world_size": 2,
        "step": 10,
        "examples": 1000,
        "field_size": FIELDS,
        "feature_size": FEATURES,
        "id_base": 0,
        "data_digest": "d" * 64,
        "config": {},
        "parameter_checksum": hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest(),
        "ranks_agreed": True,
        "metrics": {"final_loss": 0.5},
        "files": files,
    }
    (model / "model.json").write_text(json.dumps({**card, **changes}))
    return model


class Place:
    """A store, and models that come to it one after another."""

    def __init__(self, root: Path, store: Path | str, saved_model: Path) -> None:
        self.root, self.store, self._saved_model = root, store, saved_model
        self.out, self.report = root / "out" / "promotion.json", root / "out" / "report.html"
        self._made = 0

    def candidate(self, name: str, auc: float = 0.78, **changes: Any) -> tuple[Path, Path]:
        """A model and its evaluation against the champion in force now, which scores 0.78, give or take 0.001."""
        self._made += 1
        model = write_model(self.root / name, self._saved_model, self._made, **changes)
        champion, score = read_champion(self.store, "deepfm"), None
        if champion:
            score = ChampionScore(
                version=champion.version,
                auc=0.78,
                auc_reason="",
                log_loss=0.47,
                auc_difference=auc - 0.78,
                auc_low=auc - 0.781,
                auc_high=auc - 0.779,
            )
        evaluation = self.root / f"{name}.json"
        found = replace(EVALUATION, auc=auc, model_digest=model_digest(model), champion=score, sample=sample())
        write_evaluation(evaluation, found)
        return model, evaluation

    def promote(self, candidate: tuple[Path, Path], **settings: Any) -> Promotion:
        training = settings.pop("training", None)
        config = PromoteConfig(run_id="run-1", **settings)
        return promote(config, *candidate, self.store, self.out, self.report, training)


@pytest.fixture
def place(tmp_path: Path, saved_model: Path) -> Place:
    return Place(tmp_path, tmp_path / "models", saved_model)


@pytest.fixture(params=["local", "s3"])
def any_place(request: pytest.FixtureRequest, tmp_path: Path, saved_model: Path) -> Place:
    """One test for both kinds of store."""
    if request.param == "local":
        return Place(tmp_path, tmp_path / "models", saved_model)
    request.getfixturevalue("s3")
    return Place(tmp_path, "s3://clicks/models", saved_model)


@pytest.fixture(scope="session")
def content() -> Callable[[Path], dict[str, bytes]]:
    """Every file of a folder that is not another program's, by its name."""

    def read(folder: Path) -> dict[str, bytes]:
        found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}

    return read
