"""evaluation.json: what is written is read again, and what somebody changed in it is named."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.errors import NotPromotable
from components.evaluation import (
    CalibrationBin,
    ChampionScore,
    Evaluation,
    SampledRow,
    ScoreBin,
    Slice,
    read_evaluation,
    write_evaluation,
)

BARE = Evaluation(
    rows=40,
    positives=10,
    click_rate=0.25,
    auc=0.78,
    auc_reason="",
    log_loss=0.47,
    log_loss_reason="",
    normalized_entropy=0.84,
    constant_log_loss=0.5623,
    model_digest="a" * 64,
    data_digest="d" * 64,
    champion=None,
    warnings=("3 rows rejected",),
    roc=((0.0, 0.0), (1.0, 1.0)),
    calibration=(CalibrationBin(predicted=0.2, observed=0.25, rows=40),),
)
FULL = replace(
    BARE,
    champion=ChampionScore(
        version=3,
        auc=0.77,
        auc_reason="",
        log_loss=0.48,
        auc_difference=0.01,
        auc_low=0.002,
        auc_high=0.018,
        p_value=0.007,
        log_loss_difference=-0.01,
        log_loss_low=-0.02,
        log_loss_high=0.001,
    ),
    calibration_ratio=0.8,
    average_precision=0.5,
    precision_recall=((0.0, 1.0), (1.0, 0.25)),
    score_histogram=(ScoreBin(low=0.0, high=1.0, positives=10, negatives=30),),
    slices=(
        Slice(
            field="country",
            value="DE",
            rows=40,
            positives=10,
            click_rate=0.25,
            predicted=0.2,
            auc=None,
            auc_reason="no negative rows (0 of 40)",
            log_loss=0.4,
        ),
    ),
    sample=(SampledRow(ids=(3, 4), values=(1.0, 0.5), score=0.125),),
)


@pytest.mark.parametrize("evaluation", [BARE, FULL], ids=["without a champion", "with all parts"])
def test_what_is_written_is_read(tmp_path: Path, evaluation: Evaluation) -> None:
    write_evaluation(tmp_path / "evaluation.json", evaluation)
    assert read_evaluation(tmp_path / "evaluation.json") == evaluation


def test_a_document_of_an_older_release_has_defaults_for_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    write_evaluation(path, replace(BARE, champion=FULL.champion))
    document = json.loads(path.read_text())
    for key in ("confidence", "calibration_ratio", "average_precision", "precision_recall", "score_histogram", "slices", "sample"):
        del document[key]
    for key in ("auc_low", "auc_high", "p_value", "log_loss_difference", "log_loss_low", "log_loss_high"):
        del document["champion"][key]
    path.write_text(json.dumps(document))
    found = read_evaluation(path)
    assert (found.auc, found.confidence, found.calibration_ratio, found.slices) == (0.78, 0.95, None, ())
    assert found.champion == ChampionScore(version=3, auc=0.77, auc_reason="", log_loss=0.48, auc_difference=0.01)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"auc": "0.78"}, "auc is '0.78', a number"),
        ({"rows": 40.5}, "rows 40.5"),
        ({"rows": True}, "rows is True"),
        ({"champion": {"version": 3}}, "champion: missing or unknown keys: auc, auc_difference, auc_reason, log_loss"),
        ({"slices": [{"rank": 1}]}, "slices: missing or unknown keys: .*rank"),
        ({"sample": [{"ids": [1], "values": [1.0], "score": None}]}, "score is None"),
        ({"roc": [[0.0]]}, "damaged"),
        ({"calibration": 3}, "calibration 3"),
        ({"surprise": 3}, "unknown keys: surprise"),
    ],
)
def test_a_changed_document_is_refused_by_name(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    path = tmp_path / "evaluation.json"
    write_evaluation(path, FULL)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(NotPromotable, match=f"{path}: .*{named}"):
        read_evaluation(path)
