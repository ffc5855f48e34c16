"""How far one day's training rows are from those that the champion was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from components.distributions import FieldCounts, TrainingData, counted_as, sampled_rows, traffic_click_rate
from components.manifest import Manifest
from components.transforms import encoding_of, older_table

# The usual reading of the index: below 0.1 little has changed, above 0.25 much.
SHIFTED = 0.25


@dataclass(frozen=True, kw_only=True)
class FieldDrift:
    """`psi` is the population stability index of a field, `new_ids` the share of rows whose id the champion never saw."""

    field: str
    psi: float
    new_ids: float


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One day's training rows against those of the champion. Click rates are of the whole traffic.

    `new_id_rate` is the share of all ids in the rows that the champion never saw. It is None, and `fields` are empty, where ids
    mean something else to the champion; `reason` says so.
    """

    champion_version: int
    rows: int
    champion_rows: int
    click_rate: float
    champion_click_rate: float
    new_id_rate: float | None
    fields: tuple[FieldDrift, ...]
    reason: str = ""

    @property
    def shifted(self) -> tuple[FieldDrift, ...]:
        """Fields that changed much, the most changed first."""
        return tuple(sorted((field for field in self.fields if field.psi > SHIFTED), key=lambda field: -field.psi))


def drift_of(dataset: Path, manifest: Manifest, champion_version: int, champion: TrainingData) -> Drift:
    """The drift of a dataset's training rows, from a sample of them.

    Raises:
        InvalidRecords: a shard is missing or damaged.
    """
    bare = Drift(
        champion_version=champion_version,
        rows=manifest.train.examples,
        champion_rows=champion.rows,
        click_rate=traffic_click_rate(manifest),
        champion_click_rate=champion.click_rate,
        new_id_rate=None,
        fields=(),
        reason="another transform made the ids of the champion's rows",
    )
    older = older_table(dataset, champion.encodes)
    alike = encoding_of(dataset) == champion.encodes or older is not None
    if not alike or manifest.schema.field_size != len(champion.fields):
        return bare
    sample = sampled_rows(dataset, manifest)
    if older:
        sample = replace(sample, ids=older.ids(sample.ids))
    used = sample.values != 0.0
    new = used & ~champion.known(sample.ids)
    fields = tuple(
        FieldDrift(
            field=field.name,
            psi=stability(field, counted_as(field, sample.ids[:, place], sample.values[:, place])),
            new_ids=float(new[:, place].mean()),
        )
        for place, field in enumerate(champion.fields)
    )
    return Drift(**{**vars(bare), "new_id_rate": float(new.sum() / max(int(used.sum()), 1)), "fields": fields, "reason": ""})


def stability(before: FieldCounts, now: FieldCounts) -> float:
    """Population stability index: the sum over bins of (p - q) ln(p / q), 0 where both are alike.

    Every bin has half a row more on both sides, so that one that is empty on one side counts much, but not infinitely.
    Source: Siddiqi 2006, Credit Risk Scorecards; also the symmetrized Kullback-Leibler divergence, Jeffreys 1946.
    """
    p, q = (np.array(_bins(counts), np.float64) + 0.5 for counts in (before, now))
    p, q = p / p.sum(), q / q.sum()
    return float(((p - q) * np.log(p / q)).sum())


def _bins(field: FieldCounts) -> Sequence[int]:
    # The id of a number stands for all its values, so those count in its place.
    return (*field.value_counts, *field.counts[1:]) if field.value_counts else field.counts
