"""The champion as the model's rival: whether it can score the same rows, by which dataset, and how the two compare."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from components.champion import Champion, champion_copy
from components.errors import InvalidConfig
from components.evaluate.comparison import auc_difference, loss_difference
from components.evaluate.metrics import measure
from components.evaluate.ranking import Ranking
from components.evaluate.scoring import CLASSES, ModelRows, Scored, Scoring, Task, numbers_in
from components.evaluation import ChampionScore
from components.manifest import Manifest, read_manifest
from components.model_files import ModelCard, read_model
from components.transforms import encoding_of, older_table


def rival_of(
    store: Path | str, champion: Champion, rows: ModelRows, champion_dataset: Path | None, scratch: Path
) -> tuple[ModelRows | None, str]:
    """The champion and the rows that it can score; or why it can score none. From a store in S3 it is fetched into `scratch`.

    Raises:
        InvalidConfig: `champion_dataset` is not by the champion's transform.
        NotPromotable: its files are damaged.
    """
    folder = champion_copy(store, champion, scratch)
    card, name = read_model(folder), f"champion version {champion.version}"
    theirs = encoding_of(folder)
    if older := older_table(rows.dataset, theirs):
        if why_not := why_not_comparable(card, rows.manifest):
            return None, why_not
        return replace(rows, name=name, model=folder, feature_size=card.feature_size, older=older), ""
    if theirs == encoding_of(rows.dataset) or champion_dataset is None:
        why_not = why_not_encoded_alike(theirs, encoding_of(rows.dataset)) or why_not_comparable(card, rows.manifest)
        if why_not:
            return None, why_not
        return replace(rows, name=name, model=folder, feature_size=card.feature_size), ""
    manifest = read_manifest(champion_dataset)
    if theirs != encoding_of(champion_dataset) or why_not_comparable(card, manifest):
        raise InvalidConfig(
            f"{champion_dataset}: not by the transform of {name}; preprocess with --transform {folder}/transform.json"
        )
    shards = [[shard.examples for shard in each.validation.shards] for each in (manifest, rows.manifest)]
    if shards[0] != shards[1]:
        raise InvalidConfig(f"{champion_dataset}: its validation split is not that of {rows.dataset}; preprocess with its settings")
    return replace(rows, name=name, model=folder, dataset=champion_dataset, manifest=manifest, feature_size=card.feature_size), ""


def why_not_comparable(champion: ModelCard, manifest: Manifest) -> str:
    """Why a champion cannot score these rows; an empty text when it can. A table may have grown since, but not shrunk."""
    schema = manifest.schema
    if champion.field_size == schema.field_size and champion.feature_size <= schema.feature_size:
        return ""
    return (
        f"the champion takes {champion.field_size} fields of {champion.feature_size:,} features, the rows have {schema.field_size} "
        f"of {schema.feature_size:,}, so it cannot score them"
    )


def why_not_encoded_alike(champion: str | None, rows: str | None) -> str:
    """Why ids of these rows mean something else to a champion; an empty text when they mean the same.

    Args:
        champion, rows: what the transform of each encodes; None where raw rows hold ids.
    """
    if champion == rows:
        return ""
    if champion is None:
        return "the champion has no transform, a transform made the ids of these rows, so it cannot score them"
    if rows is None:
        return "a transform made the champion's ids, these rows came with ids, so it cannot score them"
    return (
        "another transform made the champion's ids, so it cannot score these rows; give the next day its transform (--transform), "
        "or evaluate the same rows by the champion's as well (--champion-dataset)"
    )


def compare(
    champion: Champion,
    why_not: str,
    work: Scoring,
    tasks: Sequence[Task],
    scored: Scored,
    rankings: Sequence[Ranking],
    ours: float | None,
    confidence: float,
    seed: int,
) -> ChampionScore:
    """The champion's entry. One whose scores are no probabilities is reported, not refused: it is not on trial here.

    Args:
        ours: AUC of the model on trial.
    """
    place = len(work.models) - 1
    why_not = why_not or scored.problems[place] or ("" if rankings[place].rows else "0 rows in the validation split")
    if why_not:
        return ChampionScore(version=champion.version, auc=None, auc_reason=why_not, log_loss=None, auc_difference=None)
    theirs = measure(rankings[1], scored.sums[1])
    entry = ChampionScore(
        version=champion.version, auc=theirs.auc, auc_reason=theirs.auc_reason, log_loss=theirs.log_loss, auc_difference=None
    )
    if scored.problems[0]:
        return entry
    clicks, others = (zip(numbers_in(work, tasks, 0, name), numbers_in(work, tasks, 1, name), strict=True) for name in CLASSES)
    auc = auc_difference(rankings[0], rankings[1], clicks, others, confidence)
    loss = loss_difference(scored.losses, confidence, seed)
    return replace(
        entry,
        auc_difference=None if ours is None or theirs.auc is None else ours - theirs.auc,
        auc_low=auc.low if auc else None,
        auc_high=auc.high if auc else None,
        p_value=auc.p_value if auc else None,
        log_loss_difference=loss.value if loss else None,
        log_loss_low=loss.low if loss else None,
        log_loss_high=loss.high if loss else None,
    )
