"""A small dataset of which a test knows every row, and a local endpoint with what asks it for small jobs."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.clients import sagemaker_client
from components.manifest import Manifest, Source, Split, Statistics, write_manifest
from components.records import SUFFIXES, Batch, Encoding, Schema, write_shard
from components.training_jobs import TrainingJob
from pipelines.local.sagemaker import LocalSageMaker

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


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSageMaker]:
    """A local endpoint, which the environment names to whoever asks."""
    with LocalSageMaker(tmp_path / "jobs", stop_grace_s=2) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", running.url)
        yield running


@pytest.fixture
def client(endpoint: LocalSageMaker) -> Any:
    return sagemaker_client()


@pytest.fixture
def training_job(tmp_path: Path) -> Callable[..., TrainingJob]:
    """A training job that runs this Python program, with these changes."""

    def make(program: str = "", **changes: Any) -> TrainingJob:
        (tmp_path / "program.py").write_text(program)
        base = TrainingJob(
            base_name="deepfm-train",
            run_id="2f0c",
            task="train",
            image="example.com/ctrflow/training:1",
            entrypoint=("python3", str(tmp_path / "program.py")),
            role_arn="arn:aws:iam::000000000000:role/ctrflow",
            instance_type="ml.c5.xlarge",
            instance_count=1,
            max_runtime_s=60,
            output_uri=(tmp_path / "out").as_uri(),
        )
        return replace(base, **changes)

    return make


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    """Look until there is something, and return it."""

    def wait(look: Callable[[], Any], within_s: float = 20.0) -> Any:
        deadline = time.monotonic() + within_s
        while not (found := look()):
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)
        return found

    return wait
