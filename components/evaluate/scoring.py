"""The validation split through the models: scores in files by class, and sums that merge exactly.

    <scratch>/<task>.<model>.clicks    scores of positive rows by that model, float32, in the order of rows
                     <model>.others    of negative rows
                     field<f>.clicks   ids of field f of the same rows, int32

A task is a shard, or every n-th batch of one where there are more workers than shards; batches are cut the same in each case. No
array is larger than a batch.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.evaluate.comparison import GroupedLosses
from components.evaluate.metrics import Sums, check_scores, losses_of, sums_of
from components.evaluate.ranking import Scores, mapped
from components.evaluation import SampledRow
from components.manifest import Manifest, read_one
from components.model_files import Scorer, load_scorer
from components.records import Batch, concatenate
from components.transforms import OlderTable
from components.workers import Crew

log = logging.getLogger(__name__)

Class = Literal["clicks", "others"]
Files = dict[tuple[int | str, Class], BinaryIO]
CLASSES: tuple[Class, ...] = ("clicks", "others")
# What promote scores again.
SAMPLED_ROWS = 64
_PROGRESS_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ModelRows:
    """A model and the dataset whose ids are its own. An id from `feature_size` on is unknown to it, and its value counts as 0.

    Where the dataset's transform grew from the model's, `older` gives the ids that the model's own would have given.
    """

    name: str
    model: Path
    dataset: Path
    manifest: Manifest
    feature_size: int
    older: OlderTable | None = None


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The work: `models` on the same rows, the first of them on trial; ids of `fields` are kept beside the scores."""

    models: tuple[ModelRows, ...]
    fields: tuple[int, ...]
    batch_size: int
    scratch: Path


@dataclass(frozen=True, kw_only=True)
class Task:
    """Every `stripes`-th batch of a shard, from batch `stripe` on; `first_row` is the number of the shard's first row."""

    shard: int
    stripe: int
    stripes: int
    first_row: int
    sampled: int

    def path(self, scratch: Path, column: int | str, name: Class) -> Path:
        return scratch / f"{self.shard:05d}-{self.stripe}.{column}.{name}"


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What became of the rows of one task or of all: of each model its sums, and what is wrong with it, if anything is."""

    sums: tuple[Sums, ...]
    problems: tuple[str, ...]
    losses: GroupedLosses = field(default_factory=GroupedLosses)
    sample: tuple[SampledRow, ...] = ()


class ShardScorer:
    """A worker, which loads the models when it has the first rows for them."""

    def __init__(self, number: int, work: Scoring) -> None:
        self._work = work
        self._scorers: list[Scorer] = []

    def score(self, task: Task) -> Scored:
        work = self._work
        sums, problems = [Sums() for _ in work.models], [""] * len(work.models)
        losses, sample, said = GroupedLosses(), list[SampledRow](), time.monotonic()
        with ExitStack() as stack:
            columns = (*range(len(work.models)), *(f"field{number}" for number in work.fields))
            files: Files = {
                (column, name): stack.enter_context(task.path(work.scratch, column, name).open("wb"))
                for column in columns
                for name in CLASSES
            }
            for number, batches in enumerate(self._batches(task.shard)):
                first_row = task.first_row + number * work.batch_size
                if number % task.stripes != task.stripe:
                    continue
                self._scorers = self._scorers or [load_scorer(each.model) for each in work.models]
                labels, scores = batches[0].labels, self._scores(batches)
                for place, each in enumerate(work.models):
                    try:
                        shard = each.manifest.validation.shards[task.shard]
                        where = f"{each.name} on {each.dataset / shard.path}"
                        check_scores(labels, scores[place], where, number * work.batch_size)
                    except InvalidRecords as error:
                        problems[place] = problems[place] or str(error)
                    if not problems[place]:
                        sums[place] += sums_of(labels, scores[place])
                        _write(files, place, labels, scores[place])
                for of_field in work.fields:
                    _write(files, f"field{of_field}", labels, batches[0].ids[:, of_field].astype(np.int32))
                if len(scores) == 2 and not any(problems):
                    losses.add(losses_of(labels, scores[0]) - losses_of(labels, scores[1]), first_row)
                if number == 0 and not problems[0]:
                    sample = sampled_rows(batches[0].rows(slice(0, task.sampled)), scores[0])
                if time.monotonic() - said > _PROGRESS_S:
                    said = time.monotonic()
                    log.info("scored %s rows", f"{first_row + len(labels):,}")
        return Scored(sums=tuple(sums), problems=tuple(problems), losses=losses, sample=tuple(sample))

    def _batches(self, shard: int) -> Iterator[list[Batch]]:
        """The rows of a shard as each model has them."""
        models = self._work.models
        if all(each.dataset == models[0].dataset for each in models):
            for batch in batches_of(models[0], shard, self._work.batch_size):
                yield [batch] * len(models)
            return
        for both in zip(*(batches_of(each, shard, self._work.batch_size) for each in models), strict=True):
            for each, other in zip(models[1:], both[1:], strict=True):
                if not np.array_equal(both[0].labels, other.labels):
                    raise InvalidRecords(
                        f"{each.dataset}: its validation rows are not those of {models[0].dataset}; preprocess the same files with "
                        "the same settings, and --transform of the champion"
                    )
            yield list(both)

    def _scores(self, batches: Sequence[Batch]) -> list[Scores]:
        found = []
        for each, scorer, batch in zip(self._work.models, self._scorers, batches, strict=True):
            ids, values = batch.ids, batch.values
            if each.older:
                ids = each.older.ids(ids)
            elif each.feature_size < each.manifest.schema.feature_size:
                known = ids < each.feature_size
                ids, values = np.where(known, ids, 0), np.where(known, values, np.float32(0.0))
            # Minus zero would not be in the order of its bits.
            found.append(scorer(ids, values).astype(np.float32) + np.float32(0.0))
        return found


def _write(files: Files, column: int | str, labels_B: Scores, numbers_B: NDArray[Any]) -> None:
    # Not by `tofile`, whose error does not say that a disk is full.
    files[column, "clicks"].write(numbers_B[labels_B > 0.5].data)
    files[column, "others"].write(numbers_B[labels_B <= 0.5].data)


def sampled_rows(rows: Batch, scores_B: Scores) -> list[SampledRow]:
    """The first rows with their scores, every number as its own float32."""
    columns = zip(rows.ids.tolist(), rows.values.tolist(), scores_B[: len(rows)].tolist(), strict=True)
    return [SampledRow(ids=tuple(ids), values=tuple(values), score=score) for ids, values, score in columns]


def batches_of(rows: ModelRows, shard: int, batch_size: int) -> Iterator[Batch]:
    """A validation shard in batches of `batch_size` rows, the last one smaller."""
    field_size = rows.manifest.schema.field_size
    waiting: list[Batch] = []
    for batch in read_one(rows.dataset, rows.manifest, rows.manifest.validation.shards[shard]):
        waiting.append(batch)
        if sum(map(len, waiting)) >= batch_size:
            whole = concatenate(waiting, field_size)
            full = len(whole) - len(whole) % batch_size
            yield from (whole.rows(slice(start, start + batch_size)) for start in range(0, full, batch_size))
            waiting = [whole.rows(slice(full, None))]
    rest = concatenate(waiting, field_size)
    if len(rest):
        yield rest


def tasks_of(manifest: Manifest, processes: int) -> list[Task]:
    """The validation split as work for so many processes."""
    shards = manifest.validation.shards
    stripes = max(-(-processes // max(len(shards), 1)), 1)
    sampled = -(-SAMPLED_ROWS // max(len(shards), 1))
    tasks, first_row = [], 0
    for number, shard in enumerate(shards):
        tasks += [Task(shard=number, stripe=each, stripes=stripes, first_row=first_row, sampled=sampled) for each in range(stripes)]
        first_row += shard.examples
    return tasks


def score_split(work: Scoring, processes: int) -> tuple[Scored, tuple[Task, ...]]:
    """All rows of the validation split, whose scores are then in the files of the tasks.

    Raises:
        InvalidRecords: a shard is missing or damaged, or two datasets do not hold the same rows.
        NotPromotable: a model that cannot be loaded.
    """
    tasks = tasks_of(work.models[0].manifest, processes)
    losses, sums, problems, sample = GroupedLosses(), [Sums() for _ in work.models], [""] * len(work.models), list[SampledRow]()
    with Crew(partial(ShardScorer, work=work), max(min(processes, len(tasks)), 1)) as crew:
        for scored in crew.ordered("score", tasks):
            losses.merge(scored.losses)
            sums = [total + part for total, part in zip(sums, scored.sums, strict=True)]
            problems = [known or new for known, new in zip(problems, scored.problems, strict=True)]
            sample += scored.sample
    return (
        Scored(sums=tuple(sums), problems=tuple(problems), losses=losses, sample=tuple(sample[:SAMPLED_ROWS])),
        tuple(tasks),
    )


def numbers_in(
    work: Scoring, tasks: Sequence[Task], column: int | str, name: Class, rows_at_once: int = 1 << 20
) -> Iterator[NDArray[Any]]:
    """The numbers of one column and class of all tasks, part by part: the parts of all columns hold the same rows."""
    for task in tasks:
        whole = mapped(task.path(work.scratch, column, name), np.float32 if isinstance(column, int) else np.int32)
        yield from (whole[start : start + rows_at_once] for start in range(0, len(whole), rows_at_once))
