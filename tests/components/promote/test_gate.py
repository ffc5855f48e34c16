"""The gate's rules as a table: evaluation and champion in, which rules fail out."""

import re
from dataclasses import replace
from typing import Any

import pytest

from components.drift import Drift, FieldDrift
from components.errors import InvalidConfig
from components.evaluation import ChampionScore, Evaluation
from components.promote.gate import InForce, Rule, gate
from components.promote.inspection import Candidate
from components.promote.policy import Policy, policy_of

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
    calibration_ratio=1.0,
)
CANDIDATE = Candidate(
    model_digest="a" * 64,
    data_digest="d" * 64,
    rank=0,
    world_size=2,
    ranks_agreed=True,
    stated_checksum="5" * 64,
    found_checksum="5" * 64,
    not_finite=(),
    sampled=64,
    score_difference=3e-7,
    transform="",
    bytes=1_000_000,
    one_row_ms=1.0,
    thousand_rows_ms=5.0,
)
CHAMPION = InForce(version=3, model_digest="c" * 64)

NAMES = (
    "evaluation of this model",
    "data and transform",
    "rank 0's model",
    "workers agree",
    "weights are finite",
    "SavedModel scores as evaluated",
    "size",
    "latency of 1 row",
    "latency of 1,000 rows",
    "enough rows",
    "AUC decided",
    "better than a constant",
    "calibrated",
    "data like the champion's",
    "champion still in force",
    "not worse than the champion",
)
SAME, DATA, RANK, AGREE, FINITE, SCORES, SIZE, ONE, THOUSAND, ROWS, DECIDED, CONSTANT, CALIBRATED, LIKE, FORCE, WORSE = NAMES


def against(auc: float | None, version: int = 3, reason: str = "", half_width: float | None = 0.0) -> Evaluation:
    """The good evaluation, compared with a champion of this AUC; the interval of the difference at 95 % has this half width."""
    low = high = difference = None
    if auc is not None and GOOD.auc is not None:
        difference = GOOD.auc - auc
        if half_width is not None:
            low, high = difference - half_width, difference + half_width
    score = ChampionScore(
        version=version,
        auc=auc,
        auc_reason=reason,
        log_loss=0.48,
        auc_difference=difference,
        auc_low=low,
        auc_high=high,
    )
    return replace(GOOD, champion=score)


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
        # One-sided at 95 %: the difference less 1.645/1.960 of the half width must reach -0.002.
        pytest.param(against(0.78, half_width=0.0023), CHAMPION, [], id="equal, and known well enough"),
        pytest.param(against(0.78, half_width=0.0025), CHAMPION, [WORSE], id="equal, and not known well enough"),
        pytest.param(against(0.77, half_width=0.014), CHAMPION, [], id="better, and known well enough"),
        pytest.param(against(0.77, half_width=0.0145), CHAMPION, [WORSE], id="better, and not known well enough"),
        pytest.param(against(0.77, half_width=None), CHAMPION, [WORSE], id="nobody says how sure the difference is"),
        pytest.param(replace(GOOD, rows=99), None, [ROWS], id="too few rows"),
        pytest.param(replace(GOOD, calibration_ratio=0.8), None, [], id="predicts too low within the bound"),
        pytest.param(replace(GOOD, calibration_ratio=0.79), None, [CALIBRATED], id="predicts too low"),
        pytest.param(replace(GOOD, calibration_ratio=1.26), None, [CALIBRATED], id="predicts too high"),
        pytest.param(replace(GOOD, calibration_ratio=None), None, [CALIBRATED], id="calibration undefined"),
        pytest.param(replace(GOOD, data_digest="e" * 64), None, [DATA], id="evaluated on another dataset"),
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
    rules = gate(CANDIDATE, evaluation, champion, margin=0.002, policy=Policy())
    assert tuple(rule.rule for rule in rules) == NAMES
    assert failed(rules) == failures
    assert all(rule.sentence for rule in rules)


FIELDS = tuple(FieldDrift(field=f"C{number}", psi=psi, new_ids=0.1) for number, psi in enumerate((0.0, 0.1, 0.26, 0.9)))
DRIFT = Drift(champion_version=3, rows=9, champion_rows=9, click_rate=0.2, champion_click_rate=0.2, new_id_rate=0.1, fields=FIELDS)


@pytest.mark.parametrize(
    ("drift", "limits", "passed", "words"),
    [
        (DRIFT, {}, True, "10.00% of the ids are new to version 3, 100% at most; 50% of the fields have changed much, 100%"),
        (DRIFT, {"most_new_ids": 0.1, "most_shifted": 0.5}, True, "10.00% of the ids"),
        (DRIFT, {"most_new_ids": 0.09}, False, "10.00% of the ids are new to version 3, 9% at most"),
        (DRIFT, {"most_shifted": 0.4}, False, "50% of the fields have changed much, 40% at most"),
        (None, {}, True, "drift is not known"),
        (None, {"most_shifted": 0.4}, False, "drift is not known: the champion's evaluation does not say"),
        (replace(DRIFT, new_id_rate=None, fields=(), reason="another"), {"most_new_ids": 0.4}, False, "not known: another"),
    ],
)
def test_the_policy_may_ask_for_data_like_the_champions(
    drift: Drift | None, limits: dict[str, float], passed: bool, words: str
) -> None:
    rules = gate(CANDIDATE, replace(against(0.77), drift=drift), CHAMPION, margin=0.002, policy=Policy(**limits))  # type: ignore[arg-type]
    assert failed(rules) == ([] if passed else [LIKE])
    assert words in next(rule.sentence for rule in rules if rule.rule == LIKE)


@pytest.mark.parametrize(
    ("changes", "rule", "words"),
    [
        ({"ranks_agreed": False}, AGREE, "2 workers ended with different parameters; train again"),
        ({"found_checksum": "6" * 64}, AGREE, "the weights have checksum 666666666666, the training stated 555555555555"),
        ({"rank": 1}, RANK, "written by rank 1, only rank 0 may write the model"),
        ({"not_finite": ("table", "dense_3")}, FINITE, "NaN or infinity in table, dense_3; train again"),
        ({"score_difference": 0.01}, SCORES, r"scores of 64 rows are up to 1\.0e-02 off the evaluation's; evaluate again"),
        ({"sampled": 0}, SCORES, "the evaluation kept no rows to compare with; evaluate again"),
        ({"transform": "it has none"}, DATA, "not with the transform of its dataset: it has none; train again"),
        ({"bytes": 50_000_000_001}, SIZE, "50,000.0 MB; beyond 50 GB"),
        ({"one_row_ms": 100.1}, ONE, r"100\.10 ms a call \(median\); beyond 100 ms"),
        ({"thousand_rows_ms": 1000.1}, THOUSAND, r"1,000\.10 ms a call \(median\); beyond 1000 ms"),
    ],
)
def test_technical_rules(changes: dict[str, Any], rule: str, words: str) -> None:
    rules = gate(replace(CANDIDATE, **changes), GOOD, None, margin=0.002, policy=Policy())
    assert failed(rules) == [rule]
    assert re.search(words, rules[NAMES.index(rule)].sentence)


def test_the_policy_may_ask_for_more() -> None:
    strict = Policy(
        minimum_rows=20_001, minimum_lift=0.165, calibration_high=1.0, calibration_low=1.0, size_gb=0.0009, one_row_ms=0.9
    )
    assert failed(gate(CANDIDATE, GOOD, None, margin=0.002, policy=strict)) == [SIZE, ONE, ROWS, CONSTANT]
    # 1 - 0.47 / 0.5623 = 0.16415
    rules = gate(CANDIDATE, GOOD, None, margin=0.002, policy=Policy(minimum_lift=0.164))
    assert failed(rules) == []
    assert "lower by 16.41%; at least 16.40% is asked for" in rules[NAMES.index(CONSTANT)].sentence
    # At 50 % the difference alone counts.
    coin = Policy(confidence=0.5)
    assert failed(gate(CANDIDATE, against(0.782, half_width=0.05), CHAMPION, margin=0.002, policy=coin)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "policy '{': not JSON"),
        ("[]", "policy: an object is expected"),
        ('{"minimum_row": 5}', "policy: 'minimum_row' is unknown; did you mean minimum_rows?"),
        ('{"minimum_rows": "5"}', "policy: minimum_rows '5' is not int"),
        ('{"minimum_rows": 0}', "policy: minimum_rows 0: at least 1 is expected"),
        ('{"minimum_lift": 1.0}', "policy: minimum_lift 1.0"),
        ('{"confidence": 1.0}', "policy: confidence 1.0"),
        ('{"calibration_low": 1.1}', "policy: calibration_low 1.1"),
        ('{"calibration_high": 0.9}', "policy: calibration_high 0.9"),
        ('{"one_row_ms": 0}', "policy: one_row_ms 0"),
        ('{"most_shifted": 1.1}', "policy: most_shifted 1.1"),
        ('{"size_gb": -1}', "policy: size_gb -1"),
        ('{"registry_approval": "Rejected"}', "policy: registry_approval 'Rejected'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        policy_of(text)


def test_what_a_policy_leaves_out_has_its_default() -> None:
    assert policy_of("") == policy_of("{}") == Policy()
    assert policy_of('{"minimum_rows": 5}') == Policy(minimum_rows=5)


@pytest.mark.parametrize(
    ("evaluation", "champion", "rule", "words"),
    [
        (replace(GOOD, auc=None, auc_reason="no positive rows (0 of 50)"), None, DECIDED, "cannot decide, .*no positive rows"),
        (
            against(0.79),
            CHAMPION,
            WORSE,
            r"0\.7800 against 0\.7900 of version 3, a difference of -0\.0100, at least -0\.0100 with confidence 0\.95; beyond",
        ),
        (against(0.781, half_width=0.01), CHAMPION, WORSE, "so too few rows to tell; evaluate on more, or allow more margin"),
        (against(0.77, version=2), CHAMPION, FORCE, "compared with version 2, but version 3 is in force now; evaluate again"),
        (GOOD, CHAMPION, FORCE, "compared with no champion, but version 3"),
        (replace(GOOD, model_digest="b" * 64), None, SAME, "of model bbbbbbbbbbbb, this one is aaaaaaaaaaaa; evaluate again"),
        (against(None, reason="60 features"), CHAMPION, WORSE, "cannot decide against version 3: 60 features"),
    ],
)
def test_sentences_carry_the_numbers(evaluation: Evaluation, champion: InForce | None, rule: str, words: str) -> None:
    rules = gate(CANDIDATE, evaluation, champion, margin=0.002, policy=Policy())
    assert re.search(words, rules[NAMES.index(rule)].sentence)


@pytest.mark.parametrize("margin", [-0.001, 0.6, float("nan"), float("inf")])
def test_a_margin_that_makes_no_sense_is_refused(margin: Any) -> None:
    with pytest.raises(InvalidConfig, match="margin"):
        gate(CANDIDATE, GOOD, None, margin, Policy())
