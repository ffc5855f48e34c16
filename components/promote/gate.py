"""The gate: rules that a model must pass before it replaces the champion. Pure; every rule gives a sentence with its numbers."""

import math
from dataclasses import dataclass

from components.errors import InvalidConfig
from components.evaluation import Evaluation

# Two AUCs are apart by the margin exactly when a person reads them so, whatever binary fractions say.
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule and its outcome."""

    rule: str
    passed: bool
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What the gate must know of the model beside its evaluation."""

    model_digest: str
    ranks_agreed: bool
    world_size: int


@dataclass(frozen=True, kw_only=True)
class InForce:
    """The champion as the store has it at this moment."""

    version: int
    model_digest: str


def gate(candidate: Candidate, evaluation: Evaluation, champion: InForce | None, margin: float) -> tuple[Rule, ...]:
    """All rules in the order in which they matter; the model is promoted when every one passed.

    Args:
        margin: AUC that the model may lack to the champion on the same rows.
    Raises:
        InvalidConfig: a margin outside 0..0.5.
    """
    check_margin(margin)
    return (
        _same_model(candidate, evaluation),
        _ranks_agreed(candidate),
        _auc_decided(evaluation),
        _better_than_constant(evaluation),
        _champion_in_force(candidate, evaluation, champion),
        _not_worse_than_champion(evaluation, margin),
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


def _ranks_agreed(candidate: Candidate) -> Rule:
    sentence = f"all {candidate.world_size} workers ended with the same parameters"
    if candidate.world_size == 1:
        sentence = "one worker trained it"
    if not candidate.ranks_agreed:
        sentence = f"the {candidate.world_size} workers ended with different parameters; train again"
    return Rule(rule="workers agree", passed=candidate.ranks_agreed, sentence=sentence)


def _auc_decided(evaluation: Evaluation) -> Rule:
    decided = evaluation.auc is not None
    sentence = f"AUC is {evaluation.auc:.4f} on {evaluation.rows:,} rows" if evaluation.auc is not None else ""
    if not decided:
        sentence = f"cannot decide, AUC is undefined: {evaluation.auc_reason or 'no reason given'}; evaluate on more rows"
    return Rule(rule="AUC decided", passed=decided, sentence=sentence)


def _better_than_constant(evaluation: Evaluation) -> Rule:
    auc, loss, constant = evaluation.auc, evaluation.log_loss, evaluation.constant_log_loss
    if auc is None or loss is None:
        reason = evaluation.auc_reason if auc is None else evaluation.log_loss_reason
        return Rule(rule="better than a constant", passed=False, sentence=f"cannot decide without AUC and log loss: {reason}")
    passed = auc > 0.5 and loss < constant
    words = "better than" if passed else "not better than"
    sentence = f"{words} a constant predictor: AUC {auc:.4f} against 0.5, log loss {loss:.5f} against {constant:.5f}"
    return Rule(rule="better than a constant", passed=passed, sentence=sentence)


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


def _not_worse_than_champion(evaluation: Evaluation, margin: float) -> Rule:
    name, champion = "not worse than the champion", evaluation.champion
    if champion is None:
        return Rule(rule=name, passed=True, sentence="there was no champion to compare with")
    if evaluation.auc is None or champion.auc is None:
        reason = champion.auc_reason if champion.auc is None else evaluation.auc_reason
        sentence = f"cannot decide against version {champion.version}: {reason}; promote it under another name to replace it"
        return Rule(rule=name, passed=False, sentence=sentence)
    difference = evaluation.auc - champion.auc
    passed = difference >= -margin - _ROUNDING
    sentence = (
        f"AUC {evaluation.auc:.4f} against {champion.auc:.4f} of version {champion.version}, a difference of {difference:+.4f}; "
        f"{'within' if passed else 'beyond'} the margin of {margin:g}"
    )
    return Rule(rule=name, passed=passed, sentence=sentence)
