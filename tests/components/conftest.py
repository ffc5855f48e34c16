"""A small dataset, written shard by shard, so that a test knows every row of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.manifest import Manifest, Source, Split, Statistics, write_manifest
from components.records import SUFFIXES, Batch, Encoding, Schema, write_shard

DatasetOf = Callable[..., Manifest]


def write_dataset(
    folder: Path, encoding: Encoding, train: Sequence[Batch], validation: Sequence[Batch], schema: Schema, **changes: Any
) -> Manifest:
    splits = {}
    for name, batches in (("train", train), ("validation", validation)):
        (folder / name).mkdir(parents=True)
        paths = [folder / name / f"part-{index:05d}{SUFFIXES[encoding]}" for index in range(len(batches))]
        shards = tuple(write_shard(path, batch, encoding) for path, batch in zip(paths, batches, strict=True))
        positives = sum(int(batch.labels.sum()) for batch in batches)
        splits[name] = Split(examples=sum(map(len, batches)), positives=positives, shards=shards)
    manifest = Manifest(
        **{
            "encoding": encoding,
            "schema": schema,
            **splits,
            "statistics": Statistics(
                smallest_id=0,
                largest_id=schema.feature_size - 1,
                smallest_value=-1.5,
                largest_value=2.0,
                missing=7,
                click_rate=0.5,
                distinct_ids_by_field=(3,) * schema.field_size,
                validation_rows_in_train=0,
            ),
            "sources": (Source(path="day1.tsv", bytes=1_000_000, sha256="2" * 64, rows=30, rejected={"label": 2}),),
            "warnings": ("the smallest id is 1",),
            "versions": {"ctrflow": "0.1.0"},
            **changes,
        }
    )
    write_manifest(folder, manifest)
    return manifest


def rows(count: int, schema: Schema, seed: int = 5) -> Batch:
    draw = np.random.default_rng(seed)
    shape = (count, schema.field_size)
    return Batch(
        labels=(np.arange(count) % 2).astype(np.float32),
        ids=draw.integers(0, schema.feature_size, shape),
        values=draw.normal(size=shape).astype(np.float32),
    )


@pytest.fixture(scope="session")
def dataset_of() -> DatasetOf:
    """Write a dataset of one batch a shard; returns its manifest."""
    return write_dataset


@pytest.fixture(scope="session")
def rows_of() -> Callable[..., Batch]:
    """Rows of a schema, every second a click."""
    return rows
