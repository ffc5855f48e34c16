"""manifest.json: what is written is read again, and what a person or a fault made of it is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.errors import InvalidRecords
from components.manifest import MANIFEST, Manifest, Source, Split, Statistics, read_manifest, write_manifest
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
