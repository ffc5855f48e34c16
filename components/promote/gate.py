"""The gate: rules that a model must pass before it replaces the champion. Pure; every rule gives a sentence with its numbers.

First the technical rules, without which no figure of the model means anything, then those of the policy.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from components.errors import InvalidConfig
from components.evaluation import ChampionScore, Evaluation
from components.promote.inspection import Candidate
from components.promote.policy import Policy

# Two AUCs are apart by the margin exactly when a person reads them so, whatever binary fractions say.
_ROUNDING = 1e-9
# Scores depend on which rows are computed together: 3e-7 of the score was seen.
_SAME_SCORE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule and its outcome."""

    rule: str
    passed: bool
    sentence: str


@dataclass(frozen=True, kw_only=True)
class InForce:
    """The champion as the store has it at this moment."""

    version: int
    model_digest: str


def gate(candidate: Candidate, evaluation: Evaluation, champion: InForce | None, margin: float, policy: Policy) -> tuple[Rule, ...]:
    """All rules in the order in which they matter; the model is promoted when every one passed.

    Args:
        margin: AUC that the model may lack to the champion on the same rows.
    Raises:
        InvalidConfig: a margin outside 0..0.5.
    """
    check_margin(margin)
    return (
        _same_model(candidate, evaluation),
        _same_data(candidate, evaluation),
        _of_rank_0(candidate),
        _ranks_agreed(candidate),
        _finite(candidate),
        _same_scores(candidate),
        _small_enough(candidate, policy),
        _fast_enough("latency of 1 row", candidate.one_row_ms, policy.one_row_ms),
        _fast_enough("latency of 1,000 rows", candidate.thousand_rows_ms, policy.thousand_rows_ms),
        _enough_rows(evaluation, policy),
        _auc_decided(evaluation),
        _better_than_constant(evaluation, policy),
        _calibrated(evaluation, policy),
        _like_the_champions_data(evaluation, policy),
        _champion_in_force(candidate, evaluation, champion),
        _not_worse_than_champion(evaluation, margin, policy.confidence),
    )


def check_margin(margin: float) -> None:
    if not (math.isfinite(margin) and 0.0 <= margin <= 0.5):
        raise InvalidConfig(f"margin {margin}: an AUC difference in 0..0.5 is expected")


def _same_model(candidate: Candidate, evaluation: Evaluation) -> Rule:
    same = evaluation.model_digest == candidate.model_digest
    sentence = f"the evaluation is of this model ({candidate.model_digest[:12]})"
    if not same:
        sentence = (
            f"the evaluation is of model {evaluation.model_digest[:12]}, this one is {candidate.model_digest[:12]}; evaluate again"
        )
    return Rule(rule="evaluation of this model", passed=same, sentence=sentence)


def _same_data(candidate: Candidate, evaluation: Evaluation) -> Rule:
    """Evaluate refuses a model with another transform than its dataset's, so that equal digests mean equal transforms, too."""
    sentence = f"evaluated on the dataset that it was trained on ({candidate.data_digest[:12]}), with the transform of that"
    same = evaluation.data_digest == candidate.data_digest
    if not same:
        sentence = f"trained on dataset {candidate.data_digest[:12]}, evaluated on {evaluation.data_digest[:12]}; evaluate again"
    elif candidate.transform:
        sentence = f"not with the transform of its dataset: {candidate.transform}; train again"
    return Rule(rule="data and transform", passed=same and not candidate.transform, sentence=sentence)


def _of_rank_0(candidate: Candidate) -> Rule:
    passed = candidate.rank == 0
    sentence = "written by rank 0, complete, all digests match"
    if not passed:
        sentence = f"written by rank {candidate.rank}, only rank 0 may write the model; train again"
    return Rule(rule="rank 0's model", passed=passed, sentence=sentence)


def _ranks_agreed(candidate: Candidate) -> Rule:
    stated, found = candidate.stated_checksum, candidate.found_checksum
    sentence = f"all {candidate.world_size} workers ended with the same parameters ({stated[:12]})"
    if candidate.world_size == 1:
        sentence = f"one worker trained it; its weights are those that it stated ({stated[:12]})"
    if not candidate.ranks_agreed:
        sentence = f"the {candidate.world_size} workers ended with different parameters; train again"
    elif stated != found:
        sentence = f"the weights have checksum {found[:12]}, the training stated {stated[:12]}; train again"
    return Rule(rule="workers agree", passed=candidate.ranks_agreed and stated == found, sentence=sentence)


def _finite(candidate: Candidate) -> Rule:
    sentence = "no NaN or infinity in the weights"
    if candidate.not_finite:
        sentence = f"NaN or infinity in {', '.join(candidate.not_finite[:5])}; train again with a lower learning rate"
    return Rule(rule="weights are finite", passed=not candidate.not_finite, sentence=sentence)


def _same_scores(candidate: Candidate) -> Rule:
    name, apart = "SavedModel scores as evaluated", candidate.score_difference
    if not candidate.sampled:
        return Rule(rule=name, passed=False, sentence="the evaluation kept no rows to compare with; evaluate again")
    passed = apart <= _SAME_SCORE
    sentence = f"the SavedModel gives the evaluation's scores on {candidate.sampled} rows, to {apart:.1e} of the score"
    if not passed:
        sentence = f"the SavedModel's scores of {candidate.sampled} rows are up to {apart:.1e} off the evaluation's; evaluate again"
    return Rule(rule=name, passed=passed, sentence=sentence)


def _small_enough(candidate: Candidate, policy: Policy) -> Rule:
    passed = candidate.bytes <= policy.size_gb * 1e9
    sentence = f"{candidate.bytes / 1e6:,.1f} MB; {'within' if passed else 'beyond'} {policy.size_gb:g} GB"
    return Rule(rule="size", passed=passed, sentence=sentence)


def _fast_enough(name: str, found_ms: float, limit_ms: float) -> Rule:
    passed = found_ms <= limit_ms
    sentence = f"{found_ms:,.2f} ms a call (median); {'within' if passed else 'beyond'} {limit_ms:g} ms"
    return Rule(rule=name, passed=passed, sentence=sentence)


def _enough_rows(evaluation: Evaluation, policy: Policy) -> Rule:
    passed = evaluation.rows >= policy.minimum_rows
    sentence = f"evaluated on {evaluation.rows:,} rows, at least {policy.minimum_rows:,} are needed"
    return Rule(rule="enough rows", passed=passed, sentence=sentence if passed else f"{sentence}; evaluate on more")


def _auc_decided(evaluation: Evaluation) -> Rule:
    decided = evaluation.auc is not None
    sentence = f"AUC is {evaluation.auc:.4f} on {evaluation.rows:,} rows" if evaluation.auc is not None else ""
    if not decided:
        sentence = f"cannot decide, AUC is undefined: {evaluation.auc_reason or 'no reason given'}; evaluate on more rows"
    return Rule(rule="AUC decided", passed=decided, sentence=sentence)


def _better_than_constant(evaluation: Evaluation, policy: Policy) -> Rule:
    auc, loss, constant = evaluation.auc, evaluation.log_loss, evaluation.constant_log_loss
    if auc is None or loss is None:
        reason = evaluation.auc_reason if auc is None else evaluation.log_loss_reason
        return Rule(rule="better than a constant", passed=False, sentence=f"cannot decide without AUC and log loss: {reason}")
    better, lift = auc > 0.5 and loss < constant, 1.0 - loss / constant if constant else 0.0
    passed = better and lift >= policy.minimum_lift - _ROUNDING
    words = "better than" if better else "not better than"
    sentence = f"{words} a constant predictor: AUC {auc:.4f} against 0.5, log loss {loss:.5f} against {constant:.5f}"
    if policy.minimum_lift:
        sentence += f", lower by {lift:.2%}; at least {policy.minimum_lift:.2%} is asked for"
    return Rule(rule="better than a constant", passed=passed, sentence=sentence)


def _calibrated(evaluation: Evaluation, policy: Policy) -> Rule:
    name, ratio = "calibrated", evaluation.calibration_ratio
    if ratio is None:
        return Rule(rule=name, passed=False, sentence="cannot decide, calibration is undefined; evaluate on rows with clicks")
    passed = policy.calibration_low <= ratio <= policy.calibration_high
    sentence = (
        f"predicts {ratio:.3f} times the click rate; {'within' if passed else 'outside'} "
        f"{policy.calibration_low:g}..{policy.calibration_high:g}"
    )
    return Rule(rule=name, passed=passed, sentence=sentence)


def _like_the_champions_data(evaluation: Evaluation, policy: Policy) -> Rule:
    """The check before training stops a day that is broken; this one is for whoever wants a person to look at less."""
    name, drift = "data like the champion's", evaluation.drift
    asked = min(policy.most_new_ids, policy.most_shifted) < 1.0
    if evaluation.champion is None:
        return Rule(rule=name, passed=True, sentence="there was no champion whose training data to compare with")
    if drift is None or drift.new_id_rate is None:
        reason = drift.reason if drift else "the champion's evaluation does not say what it was trained on"
        return Rule(
            rule=name, passed=not asked, sentence=f"drift is not known: {reason}" + ("; loosen the policy" if asked else "")
        )
    shifted = len(drift.shifted) / max(len(drift.fields), 1)
    passed = drift.new_id_rate <= policy.most_new_ids and shifted <= policy.most_shifted
    sentence = (
        f"{drift.new_id_rate:.2%} of the ids are new to version {drift.champion_version}, {policy.most_new_ids:.0%} at most; "
        f"{shifted:.0%} of the fields have changed much, {policy.most_shifted:.0%} at most"
    )
    return Rule(rule=name, passed=passed, sentence=sentence)


def _champion_in_force(candidate: Candidate, evaluation: Evaluation, champion: InForce | None) -> Rule:
    evaluated = evaluation.champion.version if evaluation.champion else None
    current = champion.version if champion else None
    name = "champion still in force"
    if champion and champion.model_digest == candidate.model_digest:
        return Rule(rule=name, passed=True, sentence=f"this model is version {champion.version} and in force already")
    if evaluated == current:
        sentence = f"compared with version {current}, which is in force" if current else "there is no champion yet"
        return Rule(rule=name, passed=True, sentence=sentence)
    before, now = (f"version {version}" if version else "no champion" for version in (evaluated, current))
    return Rule(rule=name, passed=False, sentence=f"compared with {before}, but {now} is in force now; evaluate again")


def _not_worse_than_champion(evaluation: Evaluation, margin: float, confidence: float) -> Rule:
    """A test of non-inferiority: the model must show that it is not worse by the margin, it is not enough that nobody knows.

    Were it worse by just the margin, the lower bound would be above -margin with a chance of 1 - confidence.
    """
    name, champion = "not worse than the champion", evaluation.champion
    if champion is None:
        return Rule(rule=name, passed=True, sentence="there was no champion to compare with")
    if evaluation.auc is None or champion.auc is None:
        reason = champion.auc_reason if champion.auc is None else evaluation.auc_reason
        sentence = f"cannot decide against version {champion.version}: {reason}; promote it under another name to replace it"
        return Rule(rule=name, passed=False, sentence=sentence)
    difference = evaluation.auc - champion.auc
    compared = (
        f"AUC {evaluation.auc:.4f} against {champion.auc:.4f} of version {champion.version}, a difference of {difference:+.4f}"
    )
    low = lower_bound(champion, difference, evaluation.confidence, confidence)
    if low is None:
        sentence = f"{compared}, and the evaluation does not say how sure that is; evaluate again"
        return Rule(rule=name, passed=False, sentence=sentence)
    passed = low >= -margin - _ROUNDING
    words = "within" if passed else "beyond"
    sentence = f"{compared}, at least {low:+.4f} with confidence {confidence:g}; {words} the margin of {margin:g}"
    if not passed and difference >= -margin - _ROUNDING:
        sentence += ", so too few rows to tell; evaluate on more, or allow more margin"
    return Rule(rule=name, passed=passed, sentence=sentence)


def lower_bound(champion: ChampionScore, difference: float, evaluated: float, confidence: float) -> float | None:
    """What the difference in AUC is at least, with `confidence`; None where the evaluation gives no interval.

    Args:
        evaluated: confidence of the evaluation's interval, which has two ends and is DeLong's: normal around the difference.
    """
    if champion.auc_low is None or champion.auc_high is None:
        return None
    normal = NormalDist()
    deviation = (champion.auc_high - champion.auc_low) / 2.0 / normal.inv_cdf((1.0 + evaluated) / 2.0)
    return difference - normal.inv_cdf(confidence) * deviation
