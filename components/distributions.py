"""What training rows look like, small enough to be kept with the model that was trained on them: what later days are compared with.

Counts are of a sample of at most SAMPLED_ROWS rows, the first ones of each shard, for shards hold the rows in random order; which
ids stand there at all is of every row.

Array suffixes: B rows, F fields.
"""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.manifest import Manifest, read_one, read_split
from components.records import Batch, concatenate
from components.transforms import encoding_of, row_fields

SAMPLED_ROWS = 200_000
# Values of a field that are counted by themselves; all others together are one more.
IDS_KEPT = 30
VALUE_BINS = 10
# Of ids that stand in the rows, one bit each is kept; those of larger tables share bits, so that some new ids look known.
_MOST_BITS = 1 << 23
_MOST_COUNTERS = 1 << 22


@dataclass(frozen=True, kw_only=True)
class FieldCounts:
    """Sampled rows by the id in one field: those of `ids`, the most frequent first, then of all others together.

    Where the first id comes with many values, as that of a number does, `value_counts` are its rows by value: below the first of
    `edges`, from there below the second, and so on.
    """

    name: str
    ids: tuple[int, ...]
    counts: tuple[int, ...]
    edges: tuple[float, ...]
    value_counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Training rows: how many, and their click rate in the whole traffic; what their ids encode (transforms.py); what stands there.

    `seen` has a bit for each id, set where it stands in any row: packed, zlib, base64.
    """

    rows: int
    click_rate: float
    encodes: str | None
    sampled: int
    fields: tuple[FieldCounts, ...]
    seen: str

    def known(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these ids stand in the training rows."""
        bits = np.unpackbits(np.frombuffer(zlib.decompress(base64.b64decode(self.seen)), np.uint8)).astype(bool)
        if len(bits) == _MOST_BITS:
            return np.asarray(bits[ids % _MOST_BITS])
        return np.asarray((ids < len(bits)) & bits[np.minimum(ids, len(bits) - 1)])


def traffic_click_rate(manifest: Manifest) -> float:
    """The click rate of the training rows if no negative row had been left out."""
    split = manifest.train
    return split.positives / max(split.positives + (split.examples - split.positives) / manifest.negative_sampling_rate, 1.0)


def training_data(dataset: Path, manifest: Manifest) -> TrainingData:
    """All of it, from one pass over the training rows.

    Raises:
        InvalidRecords: a shard is missing or damaged.
    """
    sample, schema = sampled_rows(dataset, manifest), manifest.schema
    names = [field.name for field in row_fields(dataset, schema.field_size)]
    # Whole bytes of bits, of which the last are of no id.
    seen = np.zeros(min(-(-schema.feature_size // 8) * 8, _MOST_BITS), bool)
    for batch in read_split(dataset, manifest, "train"):
        seen[batch.ids[batch.values != 0.0] % len(seen)] = True
    return TrainingData(
        rows=manifest.train.examples,
        click_rate=traffic_click_rate(manifest),
        encodes=encoding_of(dataset),
        sampled=len(sample),
        fields=tuple(_field(name, sample.ids[:, place].copy(), sample.values[:, place].copy()) for place, name in enumerate(names)),
        seen=base64.b64encode(zlib.compress(np.packbits(seen).tobytes())).decode(),
    )


def sampled_rows(dataset: Path, manifest: Manifest, rows: int = SAMPLED_ROWS) -> Batch:
    """At most `rows` training rows, as many of each shard as its size asks for."""
    parts: list[Batch] = []
    share = min(rows / max(manifest.train.examples, 1), 1.0)
    for shard in manifest.train.shards:
        missing = int(shard.examples * share)
        for batch in read_one(dataset, manifest, shard):
            parts.append(batch.rows(slice(0, missing)))
            missing -= len(parts[-1])
            if not missing:
                break
    return concatenate(parts, manifest.schema.field_size)


def counted_as(field: FieldCounts, ids_B: NDArray[np.int64], values_B: NDArray[np.float32]) -> FieldCounts:
    """Other rows, counted by the ids and edges of this field."""
    kept = np.array(field.ids, np.int64)
    # The field's ids in ascending order, and the last place for all others.
    order = np.argsort(kept)
    at_B = np.searchsorted(kept[order], ids_B).clip(max=max(len(kept) - 1, 0))
    hits = np.bincount(at_B[kept[order][at_B] == ids_B] if len(kept) else at_B[:0], minlength=len(kept))
    counts = hits[np.argsort(order)].tolist()
    values = _value_counts(values_B[ids_B == kept[0]], field.edges) if field.edges else ()
    return FieldCounts(
        name=field.name, ids=field.ids, counts=(*counts, len(ids_B) - sum(counts)), edges=field.edges, value_counts=values
    )


def _field(name: str, ids_B: NDArray[np.int64], values_B: NDArray[np.float32]) -> FieldCounts:
    ids, counts = _counted(ids_B)
    kept = ids[np.lexsort((ids, -counts))][:IDS_KEPT]
    edges: tuple[float, ...] = ()
    if len(kept) and len(values := values_B[ids_B == kept[0]]):
        edges = tuple(np.unique(np.quantile(values, np.arange(1, VALUE_BINS) / VALUE_BINS)).tolist())
        edges = edges if values.min() < values.max() else ()
    bare = FieldCounts(name=name, ids=tuple(kept.tolist()), counts=(), edges=edges, value_counts=())
    return counted_as(bare, ids_B, values_B)


def _counted(ids_B: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids, ascending, and how many rows have each."""
    low = int(ids_B.min()) if len(ids_B) else 0
    if len(ids_B) and int(ids_B.max()) - low < _MOST_COUNTERS:
        # Counted in place where ids lie close together: sorting takes ten times as long.
        counts = np.bincount(ids_B - low)
        ids = np.flatnonzero(counts)
        return ids + low, counts[ids]
    return np.unique(ids_B, return_counts=True)


def _value_counts(values_B: NDArray[np.float32], edges: Sequence[float]) -> tuple[int, ...]:
    places = np.searchsorted(np.array(edges), values_B, side="right")
    return tuple(np.bincount(places, minlength=len(edges) + 1).tolist())
