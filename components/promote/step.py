"""promote: let a model past the gate into the store, and put it in force."""

import hashlib
import logging
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from components.champion import Change, Standing, check_name, read_standing
from components.errors import InvalidRecords, NotPromotable, StorageConflict
from components.evaluation import Evaluation, read_evaluation
from components.model_files import ModelCard, read_model
from components.promote.gate import InForce, Rule, check_margin, gate
from components.promote.inspection import Candidate, inspect_model
from components.promote.lineage import Lineage, lineage, who
from components.promote.model_store import Version, add_version, now, opened, put_in_force, read_version
from components.promote.policy import Policy
from components.promote.registry import Mirror, mirror
from components.reports import Page, write_report
from components.storage import Storage, open_storage, write_json_atomic

log = logging.getLogger(__name__)
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PromoteConfig:
    """`name` of the model in the store; `margin` is the AUC it may lack to the champion; `run_id` is kept with the version.

    `require_promotion` makes a failed gate an error, for callers who train until they can promote.
    """

    name: str = "deepfm"
    margin: float = 0.002
    policy: Policy = field(default_factory=Policy)
    run_id: str = ""
    require_promotion: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        check_margin(self.margin)


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """promotion.json. `version` is the one that holds the model now, None when it was not promoted.

    `mirror` is None where no registry was asked for, or nothing was promoted.
    """

    format_version: int = FORMAT_VERSION
    promoted: bool
    version: int | None
    reason: str
    rules: tuple[Rule, ...]
    champion_before: int | None
    policy: Policy
    lineage: Lineage
    mirror: Mirror | None = None


def promote(
    config: PromoteConfig,
    model: Path,
    evaluation: Path,
    store: Path | str,
    out: Path,
    report: Path,
    training: Path | None = None,
    dataset: Path | None = None,
) -> Promotion:
    """Decide by the gate; if it opens, copy the model into the store and make it the champion. Writes promotion.json and a page.

    The champion is changed only if it still is the one that was decided by. Who loses that race decides again, against the new
    champion, with which the evaluation did not compare. Done twice with the same model, the second time changes nothing.

    Args:
        model: model folder, checked file by file before and after the copy.
        evaluation: the evaluation.json of this very model.
        store: local folder or s3://bucket/folder.
        training: training.json, for the lineage. dataset: the one it was trained on, to compare the transform once more.
    Raises:
        NotPromotable: model, evaluation or store is missing or damaged, or the gate stayed shut and `require_promotion` is set.
    """
    card, found = read_model(model), read_evaluation(evaluation)
    storage = open_storage(store)
    origin = lineage(training, card.data_digest, config.run_id)
    candidate: Candidate | None = None
    while True:
        standing = read_standing(storage, config.name)
        # After the store was read, which may be refused, because TensorFlow takes seconds to load.
        candidate = candidate or inspect_model(model, card, found, dataset)
        promotion = decide(config, candidate, found, standing, origin)
        if not promotion.promoted:
            break
        try:
            promotion = bring_into_force(config, promotion, candidate, model, evaluation, found, storage, standing)
        except StorageConflict:
            log.warning("another model of %s came into force meanwhile; deciding again", config.name)
            continue
        break
    write_json_atomic(out, asdict(promotion))
    write_report(report, promotion_page(config, promotion, found, card))
    log.info("%s: %s", "promoted" if promotion.promoted else "not promoted", promotion.reason)
    if config.require_promotion and not promotion.promoted:
        raise NotPromotable(f"{model}: {promotion.reason}")
    return promotion


def figures(promotion: Promotion) -> dict[str, float | None]:
    """What KFP shows of a promotion: `promoted` 1 or 0, the version in force before it and the model's own."""
    rules = {"rules": len(promotion.rules), "rules_passed": sum(rule.passed for rule in promotion.rules)}
    return {"promoted": promotion.promoted, "version": promotion.version, "champion_before": promotion.champion_before, **rules}


def decide(config: PromoteConfig, candidate: Candidate, found: Evaluation, standing: Standing, origin: Lineage) -> Promotion:
    """The outcome of the rules in one sentence: that of the first rule that failed, or why the model may be the champion."""
    champion = standing.champion
    in_force = InForce(version=champion.version, model_digest=champion.model_digest) if champion else None
    rules = gate(candidate, found, in_force, config.margin, config.policy)
    failed = next((rule for rule in rules if not rule.passed), None)
    if failed is None:
        reason = rules[-1].sentence
    elif champion is None:
        reason = f"{failed.sentence}; no model is in force"
    else:
        reason = f"{failed.sentence}; version {champion.version} stays in force"
    return Promotion(
        promoted=failed is None,
        version=None,
        reason=reason,
        rules=rules,
        champion_before=champion.version if champion else None,
        policy=config.policy,
        lineage=origin,
    )


def bring_into_force(
    config: PromoteConfig,
    decided: Promotion,
    candidate: Candidate,
    model: Path,
    evaluation: Path,
    found: Evaluation,
    storage: Storage,
    standing: Standing,
) -> Promotion:
    """Put the model into the store and in force, unless it is; then mirror it where that is asked for.

    Raises:
        StorageConflict: the champion is another one by now.
        NotPromotable: the model changed while it was copied.
    """
    champion = standing.champion
    if champion and champion.model_digest == candidate.model_digest:
        version = read_version(storage, config.name, champion.version)
    else:
        if found.auc is None or found.log_loss is None:
            raise ValueError("a model that the gate let pass has metrics")
        used = max((change.version for change in champion.history), default=champion.version) if champion else 0
        version = Version(
            name=config.name,
            version=used + 1,
            model_digest=candidate.model_digest,
            evaluation_digest=hashlib.sha256(evaluation.read_bytes()).hexdigest(),
            bytes=candidate.bytes,
            auc=found.auc,
            log_loss=found.log_loss,
            champion_before=decided.champion_before,
            lineage=decided.lineage,
            rules=decided.rules,
            created_at=now(),
            created_by=who(),
        )
        standing = opened(storage, config.name, standing)
        try:
            version = add_version(storage, version, model, evaluation)
        except (InvalidRecords, FileNotFoundError) as error:
            raise NotPromotable(f"{model}: could not be copied as it was evaluated ({error})") from error
        change = Change(
            version=version.version,
            model_digest=version.model_digest,
            action="promoted",
            at=now(),
            by=who(),
            run_id=config.run_id,
            reason=decided.reason,
        )
        put_in_force(storage, standing, version, change)
    return replace(
        decided,
        version=version.version,
        reason=f"version {version.version} is in force: {decided.reason}",
        mirror=_mirrored(config.policy, storage, version),
    )


def _mirrored(policy: Policy, storage: Storage, version: Version) -> Mirror | None:
    if not policy.registry_group:
        return None
    result = mirror(storage.uri, version, policy.registry_group, policy.registry_approval)
    if result.problem:
        retry = f"ctrflow models mirror {storage.uri} --name {version.name} --version {version.version} --group {result.group}"
        retry += " --approved" if policy.registry_approval == "Approved" else ""
        log.warning("version %d is in force, but not in %s (%s); retry: %s", version.version, result.group, result.problem, retry)
    return result


def promotion_page(config: PromoteConfig, promotion: Promotion, evaluation: Evaluation, card: ModelCard) -> Page:
    """Every rule with its numbers."""
    outcome = "Promoted" if promotion.promoted else "Not promoted"
    page = Page(f"Promotion of {config.name}", f"{outcome}: {promotion.reason}")
    for warning in evaluation.warnings:
        page.warning(warning)
    if promotion.mirror and promotion.mirror.problem:
        group, problem = promotion.mirror.group, promotion.mirror.problem
        page.warning(f"not in model package group {group}: {problem}; ctrflow models mirror tries again")
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
            ["code", promotion.lineage.code],
            ["training job", promotion.lineage.job_arn or promotion.lineage.job_name or "not given"],
            ["image", promotion.lineage.image or "not given"],
        ],
    )
    return page
