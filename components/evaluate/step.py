"""evaluate: how good a model is on the whole validation split, and how good the champion is on the same rows."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.champion import Champion, champion_model, check_name, read_champion
from components.errors import InvalidConfig, InvalidRecords
from components.evaluate.metrics import Metrics, Scores, calibration, measure, roc_points
from components.evaluate.report import evaluation_page, headline
from components.evaluation import ChampionScore, Evaluation, write_evaluation
from components.manifest import Manifest, manifest_digest, read_manifest, read_split
from components.model_files import ModelCard, Scorer, load_scorer, model_digest, read_model, transform_problem
from components.records import Batch, concatenate
from components.reports import write_report
from components.transforms import encoding_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """`name` of the model in the store, whose champion is compared; rows scored at once."""

    name: str = "deepfm"
    batch_size: int = 8192

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.batch_size < 1:
            raise InvalidConfig(f"batch_size {self.batch_size}: at least 1 is needed")


def evaluate(config: EvaluateConfig, model: Path, dataset: Path, out: Path, report: Path, store: Path | None) -> Evaluation:
    """Score the validation split, write evaluation.json to `out` and the page to `report`.

    Args:
        model: model folder, checked file by file.
        dataset: the one the model was trained on; its validation split is read, its counts verified.
        store: model store with the champion to compare with; None compares with nothing.
    Raises:
        InvalidConfig: the model was trained on another dataset or table size, or has another transform.
        InvalidRecords: no validation rows, damaged shards, or scores that are no probabilities.
        NotPromotable: the model, or the champion's files, are incomplete or damaged.
    """
    manifest = read_manifest(dataset)
    card = read_model(model)
    check_same_data(card, manifest, model, dataset)
    champion = read_champion(store, config.name) if store else None
    scorers = [load_scorer(model)]
    why_not = ""
    if store and champion:
        champion_folder = champion_model(store, champion)
        why_not = why_not_comparable(read_model(champion_folder), manifest)
        why_not = why_not or why_not_encoded_alike(encoding_of(champion_folder), encoding_of(dataset))
        if not why_not:
            scorers.append(load_scorer(champion_folder))
    labels_B, scores = score_rows(scorers, manifest, dataset, config.batch_size)
    metrics = measure(labels_B, scores[0], f"{model} on the validation split of {dataset}")
    evaluation = Evaluation(
        rows=metrics.rows,
        positives=metrics.positives,
        click_rate=metrics.click_rate,
        auc=metrics.auc,
        auc_reason=metrics.auc_reason,
        log_loss=metrics.log_loss,
        log_loss_reason="",
        normalized_entropy=metrics.normalized_entropy,
        constant_log_loss=metrics.constant_log_loss,
        model_digest=model_digest(model),
        data_digest=card.data_digest,
        champion=score_champion(champion, why_not, labels_B, scores[1:], metrics) if champion else None,
        warnings=manifest.warnings,
        roc=roc_points(labels_B, scores[0]),
        calibration=calibration(labels_B, scores[0]),
    )
    write_evaluation(out, evaluation)
    write_report(report, evaluation_page(config.name, evaluation, card))
    log.info("evaluated %s: %s", model, headline(evaluation))
    return evaluation


def check_same_data(card: ModelCard, manifest: Manifest, model: Path, dataset: Path) -> None:
    """Refuse a model of another table or dataset: its ids would mean something else, or its validation rows be trained on."""
    schema = manifest.schema
    for name, of_model, of_data in (
        ("field_size", card.field_size, schema.field_size),
        ("feature_size", card.feature_size, schema.feature_size),
    ):
        if of_model != of_data:
            raise InvalidConfig(f"{model}: {name} {of_model}, {dataset} has {of_data}; evaluate it on data of the same encoding")
    if card.data_digest != (found := manifest_digest(manifest)):
        raise InvalidConfig(
            f"{model}: trained on dataset {card.data_digest[:12]}, but {dataset} is {found[:12]}; give the one it was trained on"
        )
    if problem := transform_problem(card, dataset):
        raise InvalidConfig(f"{model}: not with the transform of its dataset: {problem}; train again")


def why_not_comparable(champion: ModelCard, manifest: Manifest) -> str:
    """Why a champion cannot score these rows; an empty text when it can."""
    schema = manifest.schema
    shape, wanted = (champion.field_size, champion.feature_size), (schema.field_size, schema.feature_size)
    if shape == wanted:
        return ""
    return (
        f"the champion takes {shape[0]} fields of {shape[1]:,} features, the rows have {wanted[0]} of {wanted[1]:,}, "
        "so it cannot score them"
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
    return "another transform made the champion's ids, so it cannot score these rows; give the next day its transform (--transform)"


def score_rows(scorers: list[Scorer], manifest: Manifest, dataset: Path, batch_size: int) -> tuple[Scores, list[Scores]]:
    """Labels float64 [B] of the validation split, and what each scorer gives for the same rows."""
    labels: list[Scores] = [np.empty(0)]
    scores: list[list[Scores]] = [[np.empty(0)] for _ in scorers]
    for batch in _batches(manifest, dataset, batch_size):
        labels.append(batch.labels.astype(np.float64))
        for scorer, of_scorer in zip(scorers, scores, strict=True):
            of_scorer.append(scorer(batch.ids, batch.values))
    return np.concatenate(labels), [np.concatenate(of_scorer) for of_scorer in scores]


def _batches(manifest: Manifest, dataset: Path, batch_size: int) -> Iterator[Batch]:
    """The validation split in batches of `batch_size` rows, the last one smaller."""
    waiting: list[Batch] = []
    for batch in read_split(dataset, manifest, "validation"):
        waiting.append(batch)
        while sum(map(len, waiting)) >= batch_size:
            whole = concatenate(waiting, manifest.schema.field_size)
            yield whole.rows(slice(0, batch_size))
            waiting = [whole.rows(slice(batch_size, None))]
    rest = concatenate(waiting, manifest.schema.field_size)
    if len(rest):
        yield rest


def score_champion(champion: Champion, why_not: str, labels_B: Scores, scores: list[Scores], model: Metrics) -> ChampionScore:
    """The champion's entry. One whose scores are no probabilities is reported, not refused: it is not on trial here."""
    metrics = None
    if not why_not:
        try:
            metrics = measure(labels_B, scores[0], f"champion version {champion.version}")
        except InvalidRecords as error:
            why_not = str(error)
    if metrics is None:
        return ChampionScore(version=champion.version, auc=None, auc_reason=why_not, log_loss=None, auc_difference=None)
    return ChampionScore(
        version=champion.version,
        auc=metrics.auc,
        auc_reason=metrics.auc_reason,
        log_loss=metrics.log_loss,
        auc_difference=None if model.auc is None or metrics.auc is None else model.auc - metrics.auc,
    )
