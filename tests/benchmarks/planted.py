"""Criteo-shaped rows whose labels come from a planted model, and datasets of them, for what benchmarks compare."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.manifest import Manifest, Split, Statistics, write_manifest
from components.records import Batch, Schema, write_shard

FIELDS, COUNTS = 39, 13
CLICK_RATE = 0.25
# Numbers of distinct values of the 26 categorical columns of the Criteo display-advertising data (public figures).
CRITEO = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652, 2173, 4,
    7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
HIDDEN = 6
CHUNK_ROWS = 50_000


class Planted:
    """A world of `ids` ids: 13 numeric fields with an id each, 26 categorical ones of power-law popularity, low ids the popular.

    The click probability is a logistic function of linear terms and of all pairs of hidden vectors, the first with 70 % of the
    variance; effects of rare ids are smaller. Always the same world for the same `ids`.
    """

    def __init__(self, ids: int) -> None:
        cap = next(c for c in range(max(CRITEO), 0, -1) if COUNTS + sum(min(c, size) for size in CRITEO) <= ids)
        sizes = [min(cap, size) for size in CRITEO]
        draw = np.random.default_rng(ids)
        self._starts = COUNTS + np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._popularity = []
        for size in sizes:
            share = (np.arange(size) + 2.0) ** -draw.uniform(0.95, 1.35)
            self._popularity.append(np.cumsum(share) / share.sum())
        fading = np.concatenate([np.full(COUNTS, 1.5), *[np.full(size, 1 / np.sqrt(1 + np.log10(size))) for size in sizes]])
        self._weights = draw.normal(size=len(fading)) * fading
        self._hidden = (draw.normal(size=(len(fading), HIDDEN)) * fading[:, np.newaxis]).astype(np.float32)
        self._means, self._scales = np.zeros(2), np.ones(2)
        cells, values = self._cells(draw, CHUNK_ROWS)
        parts = self._parts(cells, values)
        self._means, self._scales = parts.mean(axis=0), parts.std(axis=0)
        score = np.sort(self._score(cells, values))
        # Found by bisection; a slope of 1.6 gives a best reachable AUC of about 0.80.
        low, high = -20.0, 20.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if (1 / (1 + np.exp(-score - middle))).mean() < CLICK_RATE else (low, middle)
        self._bias = low

    def rows(self, count: int, seed: int) -> Batch:
        """Rows with labels."""
        draw = np.random.default_rng(seed)
        cells, values = self._cells(draw, count)
        labels = np.empty(count, np.float32)
        for start in range(0, count, CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            chance = 1 / (1 + np.exp(-self._score(cells[part], values[part]) - self._bias))
            labels[part] = draw.random(len(chance)) < chance
        return Batch(labels=labels, ids=cells, values=values)

    def _cells(self, draw: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        cells = np.empty((count, FIELDS), np.int64)
        values = np.ones((count, FIELDS), np.float32)
        cells[:, :COUNTS] = np.arange(COUNTS)
        values[:, :COUNTS] = draw.beta(1.2, 4.0, (count, COUNTS))
        for number, popularity in enumerate(self._popularity):
            rank = np.searchsorted(popularity, draw.random(count))
            cells[:, COUNTS + number] = self._starts[number] + np.minimum(rank, len(popularity) - 1)
        return cells, values

    def _score(self, cells: NDArray[np.int64], values: NDArray[np.float32]) -> NDArray[np.float64]:
        score: NDArray[np.float64] = 1.6 * ((self._parts(cells, values) - self._means) / self._scales) @ np.sqrt([0.7, 0.3])
        return score

    def _parts(self, cells: NDArray[np.int64], values: NDArray[np.float32]) -> NDArray[np.float64]:
        """Linear terms and pairs, float64 [B, 2]."""
        hidden = self._hidden[cells] * values[:, :, np.newaxis]
        pairs = 0.5 * (np.square(hidden.sum(axis=1)) - np.square(hidden).sum(axis=1)).sum(axis=1)
        return np.stack([(self._weights[cells] * values).sum(axis=1), pairs], axis=1)


def write_dataset(folder: Path, train: Batch, validation: Batch, ids: int, shards: int = 16) -> Path:
    """A dataset of `blocks`."""
    splits = {}
    for name, rows, parts in (("train", train, shards), ("validation", validation, 1)):
        (folder / name).mkdir(parents=True)
        edges = np.linspace(0, len(rows), parts + 1).astype(int)
        written = tuple(
            write_shard(folder / name / f"part-{index:05d}.tfrecord", rows.rows(slice(edges[index], edges[index + 1])), "blocks")
            for index in range(parts)
        )
        splits[name] = Split(examples=len(rows), positives=int(rows.labels.sum()), shards=written)
    statistics = Statistics(
        smallest_id=0,
        largest_id=ids - 1,
        smallest_value=0.0,
        largest_value=1.0,
        missing=0,
        click_rate=CLICK_RATE,
        distinct_ids_by_field=(ids,) * FIELDS,
        validation_rows_in_train=0,
    )
    schema = Schema(field_size=FIELDS, feature_size=ids)
    write_manifest(
        folder,
        Manifest(encoding="blocks", schema=schema, statistics=statistics, sources=(), versions={}, **splits),  # type: ignore[arg-type]
    )
    return folder
