"""promote: let a model past the gate into the store, and put it in force."""

import logging
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from components.champion import Champion, check_name, read_champion, write_champion
from components.errors import NotPromotable
from components.evaluation import Evaluation, read_evaluation
from components.model_files import ModelCard, model_digest, read_model
from components.promote.gate import Candidate, InForce, Rule, check_margin, gate
from components.promote.model_store import add_version, locked, next_version
from components.reports import Page, write_report
from components.storage import write_json_atomic

log = logging.getLogger(__name__)
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PromoteConfig:
    """`name` of the model in the store; `margin` is the AUC it may lack to the champion; `run_id` is kept with the version.

    `require_promotion` makes a failed gate an error, for callers who train until they can promote.
    """

    name: str = "deepfm"
    margin: float = 0.002
    run_id: str = ""
    require_promotion: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        check_margin(self.margin)


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """promotion.json. `version` is the one that holds the model now, None when it was not promoted."""

    format_version: int = FORMAT_VERSION
    promoted: bool
    version: int | None
    reason: str
    rules: tuple[Rule, ...]
    champion_before: int | None


def promote(config: PromoteConfig, model: Path, evaluation: Path, store: Path, out: Path, report: Path) -> Promotion:
    """Decide by the gate; if it opens, copy the model into the store and make it the champion. Writes promotion.json and a page.

    The gate and the change of the store happen under one lock, so that two runs cannot both beat the same champion. Done twice
    with the same model, the second time changes nothing.

    Args:
        model: model folder, checked file by file before and after the copy.
        evaluation: the evaluation.json of this very model.
    Raises:
        NotPromotable: model or evaluation is missing or damaged, or the gate stayed shut and `require_promotion` is set.
    """
    card, found = read_model(model), read_evaluation(evaluation)
    candidate = Candidate(model_digest=model_digest(model), ranks_agreed=card.ranks_agreed, world_size=card.world_size)
    with locked(store, config.name):
        champion = read_champion(store, config.name)
        in_force = InForce(version=champion.version, model_digest=champion.model_digest) if champion else None
        rules = gate(candidate, found, in_force, config.margin)
        if in_force and in_force.model_digest == candidate.model_digest:
            promotion = decide(rules, in_force.version, in_force.version)
        else:
            promotion = decide(rules, next_version(store, config.name), in_force.version if in_force else None)
            if promotion.promoted:
                put_in_force(config, promotion, model, evaluation, found, candidate, store)
    write_json_atomic(out, asdict(promotion))
    write_report(report, promotion_page(config, promotion, found, card))
    log.info("%s: %s", "promoted" if promotion.promoted else "not promoted", promotion.reason)
    if config.require_promotion and not promotion.promoted:
        raise NotPromotable(f"{model}: {promotion.reason}")
    return promotion


def decide(rules: tuple[Rule, ...], version: int, champion_before: int | None) -> Promotion:
    """The outcome of the rules in one sentence: that of the first rule that failed, or why the model is the champion now."""
    failed = next((rule for rule in rules if not rule.passed), None)
    if failed is None:
        reason = f"version {version} is in force: {rules[-1].sentence}"
    elif champion_before is None:
        reason = f"{failed.sentence}; no model is in force"
    else:
        reason = f"{failed.sentence}; version {champion_before} stays in force"
    return Promotion(
        promoted=failed is None,
        version=version if failed is None else None,
        reason=reason,
        rules=rules,
        champion_before=champion_before,
    )


def put_in_force(
    config: PromoteConfig,
    promotion: Promotion,
    model: Path,
    evaluation: Path,
    found: Evaluation,
    candidate: Candidate,
    store: Path,
) -> None:
    """Copy, check the copy, then name it champion."""
    if promotion.version is None or found.auc is None or found.log_loss is None:
        raise ValueError("a model that the gate let pass has a version and metrics")
    copy = add_version(store, config.name, promotion.version, model, evaluation, asdict(promotion))
    read_model(copy)
    if model_digest(copy) != candidate.model_digest:
        raise NotPromotable(f"{model}: changed while it was copied to {copy}; promote again")
    write_champion(
        store,
        Champion(
            name=config.name,
            version=promotion.version,
            model_digest=candidate.model_digest,
            data_digest=found.data_digest,
            auc=found.auc,
            log_loss=found.log_loss,
            promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
            run_id=config.run_id,
        ),
    )


def promotion_page(config: PromoteConfig, promotion: Promotion, evaluation: Evaluation, card: ModelCard) -> Page:
    """Every rule with its numbers."""
    outcome = "Promoted" if promotion.promoted else "Not promoted"
    page = Page(f"Promotion of {config.name}", f"{outcome}: {promotion.reason}")
    for warning in evaluation.warnings:
        page.warning(warning)
    page.section("The gate")
    page.table(
        ["rule", "outcome", "why"], [[rule.rule, "passed" if rule.passed else "failed", rule.sentence] for rule in promotion.rules]
    )
    page.section("The model")
    page.table(
        ["what", "value"],
        [
            ["run", config.run_id or "not given"],
            ["strategy", f"{card.strategy}, {card.world_size} workers"],
            ["champion before", f"version {promotion.champion_before}" if promotion.champion_before else "none"],
            ["margin in AUC", f"{config.margin:g}"],
            ["model digest", evaluation.model_digest],
            ["data digest", evaluation.data_digest],
        ],
    )
    return page
