"""manifest.json: what is written is read again, and what a person or a fault made of it is refused by name."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.errors import InvalidRecords
from components.manifest import (
    MANIFEST,
    ColumnStatistics,
    HeldOut,
    Manifest,
    Source,
    Split,
    Statistics,
    read_manifest,
    write_manifest,
)
from components.records import Schema, Shard


def manifest(**changes: Any) -> Manifest:
    shard = Shard(path="train/part-00000.tfrecord", examples=2, positives=1, bytes=100, sha256="0" * 64)
    held = Shard(path="validation/part-00000.tfrecord", examples=1, positives=0, bytes=50, sha256="1" * 64)
    return Manifest(
        **{
            "encoding": "blocks",
            "schema": Schema(field_size=2, feature_size=10),
            "train": Split(examples=2, positives=1, shards=(shard,)),
            "validation": Split(examples=1, positives=0, shards=(held,)),
            "statistics": Statistics(
                smallest_id=0,
                largest_id=9,
                smallest_value=0.0,
                largest_value=1.0,
                missing=0,
                click_rate=1 / 3,
                distinct_ids_by_field=(2, 3),
                validation_rows_in_train=0,
            ),
            "sources": (Source(path="day1.tsv", bytes=10, sha256="2" * 64, rows=3),),
            "versions": {"ctrflow": "0.1.0"},
            **changes,
        }
    )


def test_a_source_counts_the_rows_that_were_skipped_by_reason(tmp_path: Path) -> None:
    skipped = Source(path="day1.tsv", bytes=10, sha256="2" * 64, rows=3, rejected={"label": 2, "width": 1})
    write_manifest(tmp_path, manifest(sources=(skipped,)))
    assert read_manifest(tmp_path).sources == (skipped,)
    write_manifest(tmp_path, manifest())
    assert read_manifest(tmp_path).sources[0].rejected == {}


def test_how_rows_were_divided_and_what_columns_hold_is_read_again(tmp_path: Path) -> None:
    columns = (ColumnStatistics(name="price", missing=3), ColumnStatistics(name="ad", missing=0, distinct=9, collision_rate=0.02))
    whole = manifest()
    written = replace(
        whole,
        held_out=HeldOut(by="time", column="at", boundary="2026-12-02"),
        negative_sampling_rate=0.1,
        statistics=replace(whole.statistics, columns=columns),
    )
    write_manifest(tmp_path, written)
    assert read_manifest(tmp_path) == written


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("negative_sampling_rate", 0.0, "negative_sampling_rate 0.0 is no share"),
        ("negative_sampling_rate", 1.5, "negative_sampling_rate 1.5 is no share"),
        ("negative_sampling_rate", "0.1", "negative_sampling_rate '0.1' is not float"),
        ("held_out", {"by": "time"}, "held_out: missing or unknown keys: boundary, column, fraction"),
        ("held_out", {"by": "luck", "fraction": 0.1, "column": None, "boundary": None}, "by 'luck' is not"),
    ],
)
def test_a_split_or_a_rate_that_is_none_is_refused(tmp_path: Path, key: str, value: Any, says: str) -> None:
    write_manifest(tmp_path, manifest())
    document = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**document, key: value}))
    with pytest.raises(InvalidRecords) as caught:
        read_manifest(tmp_path)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("rejected", "says"),
    [
        ({"label": "2"}, "rejected.label '2' is not int"),
        ({"label": True}, "rejected.label True is not int"),
        ([1], "rejected [1] is not an object"),
        (None, "rejected None is not an object"),
    ],
)
def test_counts_of_skipped_rows_that_are_none_are_refused(tmp_path: Path, rejected: Any, says: str) -> None:
    write_manifest(tmp_path, manifest())
    document = json.loads((tmp_path / MANIFEST).read_text())
    document["sources"][0]["rejected"] = rejected
    (tmp_path / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(InvalidRecords) as caught:
        read_manifest(tmp_path)
    assert says in str(caught.value)
