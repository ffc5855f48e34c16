"""False promotions stay under the declared rate where the true difference is planted; the full table is a benchmark."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "gate_power.py"
EVALUATIONS, CONFIDENCE = 150, 0.95
# 5 % and three standard errors of 1.8 %.
MOST_FALSE = 0.103


@pytest.fixture(scope="module")
def gate_power() -> Any:
    spec = importlib.util.spec_from_file_location("gate_power", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gate_power"] = module
    spec.loader.exec_module(module)
    return module


def test_the_planted_models_have_the_aucs_that_they_should(gate_power: Any) -> None:
    labels, ours, theirs = gate_power.Planted(rows=400_000, clicks=0.3, auc=0.75, difference=0.01).draw(np.random.default_rng(1))
    assert roc_auc_score(labels, theirs) == pytest.approx(0.75, abs=0.003)
    # Their noise is common, so the difference is much surer.
    assert roc_auc_score(labels, ours) - roc_auc_score(labels, theirs) == pytest.approx(0.01, abs=0.001)


@pytest.mark.parametrize("margin", [0.0, 0.002, 0.01])
def test_a_model_that_is_worse_by_the_margin_is_promoted_at_most_as_often_as_declared(gate_power: Any, margin: float) -> None:
    worse = gate_power.Planted(rows=3_000, clicks=0.3, difference=-margin)
    assert gate_power.promotions(worse, margin, EVALUATIONS, CONFIDENCE, seed=5) / EVALUATIONS <= MOST_FALSE


def test_the_planted_probabilities_are_calibrated(gate_power: Any) -> None:
    """Else the gate would refuse them for that, and its false promotions would be few for a wrong reason."""
    labels, ours, _ = gate_power.Planted(rows=400_000, clicks=0.1).draw(np.random.default_rng(2))
    for low, high in ((0.0, 0.05), (0.05, 0.1), (0.1, 0.2), (0.2, 1.0)):
        rows = (ours >= low) & (ours < high)
        assert ours[rows].mean() == pytest.approx(labels[rows].mean(), rel=0.05)


def test_a_model_that_is_clearly_better_is_promoted(gate_power: Any) -> None:
    better = gate_power.Planted(rows=20_000, difference=0.02)
    assert gate_power.promotions(better, 0.0, 20, CONFIDENCE, seed=6) == 20
