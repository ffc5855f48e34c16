"""What a saved model serves, where its training saw only a share of the negative rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from components.manifest import Manifest
from components.model_files import load_scorer, read_model
from components.records import Batch, Schema
from components.train.program.config import TrainConfig
from components.train.program.export import write_model
from components.train.program.model import make_model

SCHEMA = Schema(field_size=3, feature_size=40)
TRAINED = {"strategy": "single", "world_size": 1, "step": 1, "examples": 64, "ranks_agreed": True, "metrics": {"final_loss": 0.5}}


@pytest.fixture(scope="module")
def rows() -> Batch:
    draw = np.random.default_rng(3)
    return Batch(
        labels=(draw.random(2000) < 0.3).astype(np.float32),
        ids=draw.integers(0, 40, (2000, 3)),
        values=draw.normal(size=(2000, 3)).astype(np.float32),
    )


def saved(folder: Path, dataset_of: Callable[..., Manifest], rows: Batch, rate: float, bias: float | None = None) -> Any:
    """The probabilities of a model folder whose dataset kept this share of the negative rows."""
    manifest = dataset_of(folder / "data", "blocks", [rows], [rows], SCHEMA, negative_sampling_rate=rate)
    config = TrainConfig(embedding_size=4, deep_layers=(8,))
    model, draw = make_model(config, 3, 0.3), np.random.default_rng(9)
    table = draw.normal(scale=0.3, size=(40, model.row_width)).astype(np.float32)
    dense = model.initial_dense()
    if bias is not None:
        dense[0][:] = bias
        table[:], dense[1:] = 0.0, [np.zeros_like(each) for each in dense[1:]]
    (folder / "model").mkdir()
    card = write_model(folder / "model", config, manifest, model, table, dense, folder / "no transform.json", TRAINED)
    (folder / "model/model.json").write_text(json.dumps(card))
    assert read_model(folder / "model").negative_sampling_rate == rate
    return load_scorer(folder / "model")(rows.ids, rows.values)


def test_probabilities_are_corrected_and_keep_their_order(tmp_path: Path, dataset_of: Any, rows: Batch) -> None:
    plain, sampled = (saved(tmp_path / str(rate), dataset_of, rows, rate) for rate in (1.0, 0.1))
    # He et al. 2014, section 6.3.
    np.testing.assert_allclose(sampled, plain / (plain + (1 - plain) / 0.1), rtol=1e-5)
    assert roc_auc_score(rows.labels, sampled) == pytest.approx(roc_auc_score(rows.labels, plain), abs=1e-9)
    assert sampled.mean() < plain.mean()


@pytest.mark.parametrize(("seen", "rate"), [(1 / 2, 0.01), (1 / 11, 0.1), (1 / 101, 1.0)])
def test_one_click_in_101_rows_is_served_whatever_share_of_the_others_was_seen(
    tmp_path: Path, dataset_of: Any, rows: Batch, seen: float, rate: float
) -> None:
    found = saved(tmp_path / "x", dataset_of, rows, rate, bias=np.log(seen / (1 - seen)))
    assert found == pytest.approx(1 / 101, rel=1e-5)
