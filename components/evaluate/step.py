"""evaluate: how good a model is on the whole validation split, and how good the champion is on the same rows."""

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from components.champion import check_name, read_champion
from components.data_check import champion_drift
from components.distributions import training_data
from components.errors import InvalidConfig
from components.evaluate.metrics import (
    calibration,
    constant_log_loss,
    measure,
    precision_recall_points,
    roc_points,
    score_histogram,
)
from components.evaluate.ranking import Ranking, sorted_scores
from components.evaluate.report import evaluation_page, headline
from components.evaluate.rival import compare, rival_of
from components.evaluate.scoring import CLASSES, ModelRows, Scored, Scoring, Task, numbers_in, score_split
from components.evaluate.slices import fields_to_slice, slices_of
from components.evaluation import Evaluation, write_evaluation
from components.manifest import Manifest, manifest_digest, read_manifest
from components.model_files import ModelCard, model_digest, read_model, transform_problem
from components.reports import write_report
from components.transforms import row_fields

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """`name` of the model in the store, whose champion is compared; `slices` are names of fields; rows scored at once.

    Intervals hold with `confidence`; `seed` is that of the bootstrap. TensorFlow uses all CPUs in each of the `processes`.
    """

    name: str = "deepfm"
    slices: tuple[str, ...] = ()
    confidence: float = 0.95
    batch_size: int = 8192
    processes: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 0.5 <= self.confidence < 1.0:
            raise InvalidConfig(f"confidence {self.confidence}: at least 0.5 and below 1 is expected, such as 0.95")
        if not 1 <= self.batch_size <= 1 << 20:
            raise InvalidConfig(f"batch_size {self.batch_size}: must be in 1..{1 << 20}")
        for name, least in (("processes", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise InvalidConfig(f"{name} {getattr(self, name)}: at least {least} is needed")


def names_of(text: str) -> tuple[str, ...]:
    """The names in a text that separates them by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def evaluate(
    config: EvaluateConfig,
    model: Path,
    dataset: Path,
    out: Path,
    report: Path,
    store: Path | str | None,
    champion_dataset: Path | None = None,
) -> Evaluation:
    """Score the validation split, write evaluation.json to `out` and the page to `report`.

    Args:
        model: model folder, checked file by file.
        dataset: the one the model was trained on; its validation split is read, its counts verified.
        store: model store, local or s3://bucket/folder, with the champion to compare with; None compares with nothing.
        champion_dataset: the same rows by the champion's transform, where it encodes otherwise.
    Raises:
        InvalidConfig: the model was trained on another dataset or table size, or has another transform; no such field to slice by.
        InvalidRecords: damaged shards, or a `champion_dataset` of other rows.
        NotPromotable: the model, or the champion's files, are incomplete or damaged.
    """
    manifest = read_manifest(dataset)
    card = read_model(model)
    check_same_data(card, manifest, model, dataset)
    fields = row_fields(dataset, manifest.schema.field_size)
    sliced = fields_to_slice(config.slices, fields)
    rows = ModelRows(name=str(model), model=model, dataset=dataset, manifest=manifest, feature_size=manifest.schema.feature_size)
    champion = read_champion(store, config.name) if store else None
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".evaluate.") as scratch:
        rival, why_not = rival_of(store, champion, rows, champion_dataset, Path(scratch)) if store and champion else (None, "")
        work = Scoring(
            models=(rows, rival) if rival else (rows,), fields=sliced, batch_size=config.batch_size, scratch=Path(scratch)
        )
        scored, tasks = score_split(work, config.processes)
        rankings = [ranking_of(work, tasks, place) for place in range(len(work.models))]
        found = _evaluation(scored, rankings, manifest, model_digest(model), config)
        if champion:
            compared = compare(champion, why_not, work, tasks, scored, rankings, found.auc, config.confidence, config.seed)
            found = replace(found, champion=compared)
        if sliced and not scored.problems[0]:
            found = replace(found, slices=tuple(each for place in sliced for each in slices_of(work, tasks, place, fields[place])))
    if rival and not rival.older and rival.feature_size < manifest.schema.feature_size:
        known = f"{rival.feature_size:,} of {manifest.schema.feature_size:,} features"
        found = replace(found, warnings=(*found.warnings, f"{rival.name} knows {known}; the others count as absent for it"))
    seen = rival or rows
    found = replace(
        found,
        training_data=training_data(dataset, manifest),
        # By rows whose ids the champion knows.
        drift=champion_drift(seen.dataset, seen.manifest, store, champion) if store and champion else None,
    )
    write_evaluation(out, found)
    write_report(report, evaluation_page(config.name, found, card))
    log.info("evaluated %s: %s", model, headline(found))
    return found


def figures(found: Evaluation) -> dict[str, float | None]:
    """What KFP shows of an evaluation; None is undefined."""
    names = ("auc", "log_loss", "normalized_entropy", "average_precision", "calibration_ratio")
    difference = found.champion.auc_difference if found.champion else None
    return {**{name: getattr(found, name) for name in names}, "auc_difference_to_champion": difference}


def _evaluation(scored: Scored, rankings: Sequence[Ranking], manifest: Manifest, digest: str, config: EvaluateConfig) -> Evaluation:
    """What is known of the model on trial without the champion. Scores that are no probabilities are null with the reason."""
    split = manifest.validation
    problem = scored.problems[0] or ("" if split.examples else "0 rows in the validation split")
    click_rate = split.positives / max(split.examples, 1)
    warnings = manifest.warnings
    empty = Evaluation(
        rows=split.examples,
        positives=split.positives,
        click_rate=click_rate,
        auc=None,
        auc_reason=problem,
        log_loss=None,
        log_loss_reason=problem,
        normalized_entropy=None,
        constant_log_loss=constant_log_loss(click_rate),
        model_digest=digest,
        data_digest=manifest_digest(manifest),
        champion=None,
        warnings=warnings,
        roc=(),
        calibration=(),
        confidence=config.confidence,
    )
    if problem:
        return empty
    ranking, metrics = rankings[0], measure(rankings[0], scored.sums[0])
    curve = roc_points(ranking)
    scores = ranking.at_rank(np.array([0, ranking.rows - 1]))
    if scores[0] == scores[1]:
        warnings = (*warnings, f"the model gives every row the same score, {scores[0]:.6g}: it tells no row from another")
    return replace(
        empty,
        auc=metrics.auc,
        auc_reason=metrics.auc_reason,
        log_loss=metrics.log_loss,
        normalized_entropy=metrics.normalized_entropy,
        warnings=warnings,
        roc=tuple((x, y) for x, y, _ in curve),
        roc_thresholds=tuple(threshold for _, _, threshold in curve),
        calibration=calibration(ranking),
        calibration_ratio=metrics.calibration_ratio,
        average_precision=metrics.average_precision,
        precision_recall=precision_recall_points(ranking),
        score_histogram=score_histogram(ranking),
        sample=scored.sample,
    )


def ranking_of(work: Scoring, tasks: Sequence[Task], place: int) -> Ranking:
    """All scores of one of the models, in order."""
    clicks, others = (
        sorted_scores(numbers_in(work, tasks, place, name), work.scratch / f"sorted.{place}.{name}") for name in CLASSES
    )
    return Ranking(positives=clicks, negatives=others)


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
