"""The same metrics for parts of the rows: those in which a field has one value."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from components.errors import InvalidConfig, hint_for
from components.evaluate.metrics import Sums, auc_reason, exact_auc, sums_of
from components.evaluate.ranking import Counts, Ranking, Scores, sorted_scores
from components.evaluate.scoring import CLASSES, Class, Scoring, Task, numbers_in
from components.evaluation import Slice
from components.transforms import RowField

# The most frequent values of a field; all others are one slice.
VALUES = 20


def fields_to_slice(names: Sequence[str], fields: Sequence[RowField]) -> tuple[int, ...]:
    """The places of the fields with these names.

    Raises:
        InvalidConfig: there is no such field.
    """
    places = {field.name: place for place, field in enumerate(fields)}
    for name in names:
        if name not in places:
            raise InvalidConfig(f"slice by {name!r}: the rows have no such field; {hint_for(name, places)}")
    return tuple(dict.fromkeys(places[name] for name in names))


def slices_of(work: Scoring, tasks: Sequence[Task], place: int, field: RowField) -> tuple[Slice, ...]:
    """Metrics of the model on trial by value of a field, the most frequent values first; the last slice has what is left."""
    ids, counts = _counted(work, tasks, place)
    values = ids[np.lexsort((ids, -counts))][:VALUES]
    found = [_slice(work, tasks, place, field.name, field.value(int(value)), np.array([value])) for value in values]
    if len(ids) > len(values):
        found.append(_slice(work, tasks, place, field.name, "", values, among=False))
    return tuple(found)


def _counted(work: Scoring, tasks: Sequence[Task], place: int) -> tuple[Counts, Counts]:
    """The ids of a field, and how many rows have each."""
    ids, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for name in CLASSES:
        for part in numbers_in(work, tasks, f"field{place}", name):
            new, more = np.unique(part, return_counts=True)
            ids, at = np.unique(np.concatenate([ids, new.astype(np.int64)]), return_inverse=True)
            counts = np.bincount(at, np.concatenate([counts, more])).astype(np.int64)
    return ids, counts


def _slice(work: Scoring, tasks: Sequence[Task], place: int, name: str, value: str, ids: Counts, among: bool = True) -> Slice:
    """Rows whose id in the field is among those given, or is not."""
    sums = Sums()

    def scores(of_class: Class) -> Iterator[Scores]:
        nonlocal sums
        pairs = zip(numbers_in(work, tasks, 0, of_class), numbers_in(work, tasks, f"field{place}", of_class), strict=True)
        for part, of_field in pairs:
            chosen = part[np.isin(of_field, ids, invert=not among)]
            sums += sums_of(np.full(len(chosen), of_class == "clicks", np.float32), chosen)
            yield chosen

    files: dict[Class, Path] = {each: work.scratch / f"slice.{each}" for each in CLASSES}
    ranking = Ranking(
        positives=sorted_scores(scores("clicks"), files["clicks"]), negatives=sorted_scores(scores("others"), files["others"])
    )
    return Slice(
        field=name,
        value=value,
        rows=sums.rows,
        positives=sums.positives,
        click_rate=sums.click_rate,
        predicted=sums.mean_prediction,
        auc=exact_auc(ranking),
        auc_reason=auc_reason(sums.rows, sums.positives),
        log_loss=sums.log_loss,
    )
