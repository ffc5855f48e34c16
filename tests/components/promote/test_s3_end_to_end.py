"""evaluate and promote with a store in S3: the champion that is compared comes from there, and its successor goes there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.champion import check_champion
from components.evaluate.step import EvaluateConfig, evaluate
from components.manifest import manifest_digest
from components.promote.step import PromoteConfig, promote
from components.records import Batch, Schema

STORE = "s3://clicks/models"
ROWS = 2000
# Those of the SavedModel in conftest.py.
WEIGHTS = np.random.default_rng(2).normal(size=50).astype(np.float32)


def rows() -> Batch:
    """Clicks with the probability that the model gives."""
    draw = np.random.default_rng(9)
    ids, values = draw.integers(0, 50, (ROWS, 3)), draw.uniform(0.5, 1.5, (ROWS, 3)).astype(np.float32)
    clicked = draw.random(ROWS) < 1.0 / (1.0 + np.exp(-(WEIGHTS[ids] * values).sum(axis=1)))
    return Batch(labels=clicked.astype(np.float32), ids=ids, values=values)


def test_each_night_is_compared_with_the_champion_in_s3(place: Any, dataset_of: Any, s3: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    manifest = dataset_of(data, "blocks", [rows()], [rows()], Schema(field_size=3, feature_size=50))
    found = None
    for night in (1, 2):
        model, _ = place.candidate(f"night{night}", data_digest=manifest_digest(manifest))
        measured = tmp_path / f"evaluation{night}.json"
        found = evaluate(EvaluateConfig(), model, data, measured, tmp_path / "evaluation.html", STORE)
        out = promote(PromoteConfig(), model, measured, STORE, tmp_path / "promotion.json", tmp_path / "page.html", dataset=data)
        assert (out.promoted, out.version, out.champion_before) == (True, night, night - 1 or None), out.reason
    assert found is not None
    assert found.champion is not None
    # The same SavedModel beside other weights.
    assert (found.champion.version, found.champion.auc) == (1, pytest.approx(found.auc, abs=1e-12))
    champion = check_champion(STORE, "deepfm")
    assert champion is not None
    assert champion.version == 2
