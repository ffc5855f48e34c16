"""The gate's rules as a table: evaluation and champion in, which rules fail out."""

import re
from dataclasses import replace
from typing import Any

import pytest

from components.errors import InvalidConfig
from components.evaluation import ChampionScore, Evaluation
from components.promote.gate import Candidate, InForce, Rule, gate

GOOD = Evaluation(
    rows=20_000,
    positives=5_000,
    click_rate=0.25,
    auc=0.78,
    auc_reason="",
    log_loss=0.47,
    log_loss_reason="",
    normalized_entropy=0.47 / 0.5623,
    constant_log_loss=0.5623,
    model_digest="a" * 64,
    data_digest="d" * 64,
    champion=None,
    warnings=(),
    roc=(),
    calibration=(),
)
CANDIDATE = Candidate(model_digest="a" * 64, ranks_agreed=True, world_size=2)
CHAMPION = InForce(version=3, model_digest="c" * 64)

SAME, AGREE, DECIDED, CONSTANT, FORCE, WORSE = (
    "evaluation of this model",
    "workers agree",
    "AUC decided",
    "better than a constant",
    "champion still in force",
    "not worse than the champion",
)


def against(auc: float | None, version: int = 3, reason: str = "") -> Evaluation:
    """The good evaluation, compared with a champion of this AUC."""
    difference = None if auc is None or GOOD.auc is None else GOOD.auc - auc
    return replace(
        GOOD, champion=ChampionScore(version=version, auc=auc, auc_reason=reason, log_loss=0.48, auc_difference=difference)
    )


def failed(rules: tuple[Rule, ...]) -> list[str]:
    return [rule.rule for rule in rules if not rule.passed]


@pytest.mark.parametrize(
    ("evaluation", "champion", "failures"),
    [
        pytest.param(GOOD, None, [], id="the first model"),
        pytest.param(against(0.77), CHAMPION, [], id="better than the champion"),
        pytest.param(against(0.78), CHAMPION, [], id="equal to the champion"),
        pytest.param(against(0.781), CHAMPION, [], id="worse within the margin"),
        pytest.param(against(0.782), CHAMPION, [], id="worse by exactly the margin"),
        pytest.param(against(0.7821), CHAMPION, [WORSE], id="worse beyond the margin"),
        pytest.param(against(None, reason="60 features"), CHAMPION, [WORSE], id="the champion cannot be measured"),
        pytest.param(replace(GOOD, model_digest="b" * 64), None, [SAME], id="evaluation of another model"),
        pytest.param(replace(GOOD, auc=None, auc_reason="one class"), None, [DECIDED, CONSTANT], id="AUC undefined"),
        pytest.param(replace(GOOD, auc=0.5), None, [CONSTANT], id="AUC of a coin"),
        pytest.param(replace(GOOD, auc=0.3), None, [CONSTANT], id="AUC below a coin"),
        pytest.param(replace(GOOD, log_loss=0.5623), None, [CONSTANT], id="log loss of a constant"),
        pytest.param(replace(GOOD, log_loss=0.9), None, [CONSTANT], id="log loss above a constant"),
        pytest.param(replace(GOOD, log_loss=None, log_loss_reason="none"), None, [CONSTANT], id="log loss undefined"),
        pytest.param(against(0.77, version=2), CHAMPION, [FORCE], id="another champion since"),
        pytest.param(GOOD, CHAMPION, [FORCE], id="a first champion since"),
        pytest.param(against(0.77), None, [FORCE], id="the champion is gone"),
        pytest.param(GOOD, InForce(version=4, model_digest="a" * 64), [], id="promoted already"),
    ],
)
def test_rules(evaluation: Evaluation, champion: InForce | None, failures: list[str]) -> None:
    rules = gate(CANDIDATE, evaluation, champion, margin=0.002)
    assert [rule.rule for rule in rules] == [SAME, AGREE, DECIDED, CONSTANT, FORCE, WORSE]
    assert failed(rules) == failures
    assert all(rule.sentence for rule in rules)


def test_workers_that_disagree_stop_it() -> None:
    rules = gate(replace(CANDIDATE, ranks_agreed=False), GOOD, None, margin=0.002)
    assert failed(rules) == [AGREE]
    assert "2 workers ended with different parameters" in rules[1].sentence


@pytest.mark.parametrize(
    ("evaluation", "champion", "rule", "words"),
    [
        (replace(GOOD, auc=None, auc_reason="no positive rows (0 of 50)"), None, 2, "cannot decide, .*no positive rows"),
        (
            against(0.79),
            CHAMPION,
            5,
            r"0\.7800 against 0\.7900 of version 3, a difference of -0\.0100; beyond the margin of 0\.002",
        ),
        (against(0.77, version=2), CHAMPION, 4, "compared with version 2, but version 3 is in force now; evaluate again"),
        (GOOD, CHAMPION, 4, "compared with no champion, but version 3"),
        (replace(GOOD, model_digest="b" * 64), None, 0, "of model bbbbbbbbbbbb, this one is aaaaaaaaaaaa; evaluate again"),
        (against(None, reason="60 features"), CHAMPION, 5, "cannot decide against version 3: 60 features"),
    ],
)
def test_sentences_carry_the_numbers(evaluation: Evaluation, champion: InForce | None, rule: int, words: str) -> None:
    assert re.search(words, gate(CANDIDATE, evaluation, champion, margin=0.002)[rule].sentence)


@pytest.mark.parametrize("margin", [-0.001, 0.6, float("nan"), float("inf")])
def test_a_margin_that_makes_no_sense_is_refused(margin: Any) -> None:
    with pytest.raises(InvalidConfig, match="margin"):
        gate(CANDIDATE, GOOD, None, margin)
