"""Verification: a sound dataset has no problems, and every damage is named by file and record."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.errors import InvalidRecords
from components.framing import frame
from components.manifest import MANIFEST, Manifest
from components.records import ENCODINGS, SUFFIXES, Batch, Encoding, Schema, encode_block
from components.verification import verify_dataset

SCHEMA = Schema(field_size=3, feature_size=40)
Small = Callable[[Encoding], Path]
FRAMED: tuple[Encoding, ...] = ("blocks", "examples")


@pytest.fixture
def small(tmp_path: Path, dataset_of: Callable[..., Manifest], rows_of: Callable[..., Batch]) -> Callable[[Encoding], Path]:
    """Train shards of 6 and 5 rows, one validation shard of 2."""

    def make(encoding: Encoding) -> Path:
        parts = [rows_of(count, SCHEMA, seed) for seed, count in enumerate((6, 5, 2))]
        dataset_of(tmp_path / "set", encoding, parts[:2], parts[2:], SCHEMA)
        return tmp_path / "set"

    return make


def problems(dataset: Path, processes: int = 1) -> list[str]:
    """What is said after the name of the dataset's folder."""
    found = verify_dataset(dataset, processes)[1]
    assert found.count == len(found.named)
    assert all(sentence.startswith(f"{dataset}/") for sentence in found.named)
    return [sentence.removeprefix(f"{dataset}/") for sentence in found.named]


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_sound_dataset_has_no_problems(small: Small, encoding: Encoding, processes: int) -> None:
    assert problems(small(encoding), processes) == []


def test_everything_wrong_is_named_in_the_order_of_the_manifest(small: Small) -> None:
    dataset = small("examples")
    first, second = dataset / "train/part-00000.tfrecord", dataset / "train/part-00001.tfrecord"
    size = first.stat().st_size
    record = size // 6  # rows of equal size
    damaged = bytearray(first.read_bytes())
    damaged[record + 20] ^= 1
    damaged[3 * record + 20] ^= 1
    damaged[5 * record] ^= 1
    first.write_bytes(damaged)
    second.unlink()
    (dataset / "validation/notes.txt").write_text("mine")
    expected = [
        "validation/notes.txt: not listed by the manifest; remove it, or preprocess again",
        "train/part-00000.tfrecord, record 1: damaged payload (checksum differs)",
        "train/part-00000.tfrecord, record 3: damaged payload (checksum differs)",
        "train/part-00000.tfrecord, record 5: damaged length (checksum differs); 5 whole records before it",
        "train/part-00001.tfrecord: missing; the manifest lists it with 5 rows",
    ]
    assert problems(dataset) == expected
    assert problems(dataset, processes=2) == expected


@pytest.mark.parametrize("encoding", FRAMED)
def test_a_cut_file_and_an_appended_one(small: Small, encoding: Encoding) -> None:
    dataset = small(encoding)
    path = dataset / "validation/part-00000.tfrecord"
    whole = path.read_bytes()
    last = 0 if encoding == "blocks" else 1
    path.write_bytes(whole[:-1])
    assert problems(dataset) == [
        f"validation/part-00000.tfrecord, record {last}: the file ends inside the record; {last} whole records before it",
        f"validation/part-00000.tfrecord: {len(whole) - 1} bytes, the manifest says {len(whole)}",
    ]
    path.write_bytes(whole + whole)
    assert problems(dataset) == [
        f"validation/part-00000.tfrecord: {2 * len(whole)} bytes, the manifest says {len(whole)}",
        "validation/part-00000.tfrecord: 4 rows found, 2 of them positive; the manifest says 2 and 1",
    ]


def test_rows_that_no_model_can_train_on_are_each_named(small: Small) -> None:
    """Checksums are right: such a file was written wrong."""
    dataset = small("blocks")
    ids = np.array([[0, 1, 2], [0, 40, 2], [3, 3, 3], [-1, 0, 0]])
    values = np.float32([[1, 1, 1], [1, 1, 1], [1, np.nan, 1], [1, 1, 1]])
    batch = Batch(labels=np.float32([1, 0, 0, 2]), ids=ids, values=values)
    narrow = Batch(labels=batch.labels, ids=ids[:, :2], values=values[:, :2])
    path = dataset / "train/part-00001.tfrecord"
    path.write_bytes(frame(encode_block(batch)) + frame(encode_block(narrow)) + frame(b"no block at all!"))
    before = os.path.getsize(path)
    edit(dataset / MANIFEST, lambda document: document["train"]["shards"][1].update(bytes=before))
    assert problems(dataset) == [
        "train/part-00001.tfrecord, record 0, row 1: id 40 is outside 0..39; raise --feature-size",
        "train/part-00001.tfrecord, record 0, row 2: value nan of id 3 is not finite",
        "train/part-00001.tfrecord, record 0, row 3: label 2 is neither 0 nor 1",
        "train/part-00001.tfrecord, record 1: 2 fields, the schema says 3",
        "train/part-00001.tfrecord, record 2: not a block of version 1",
    ]


def test_wrong_lines_and_changed_ones(small: Small) -> None:
    dataset = small("libsvm")
    path = dataset / "train/part-00000.libsvm"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "x" + lines[1][1:], lines[2], "2" + lines[3][1:], *lines[4:]]))
    found = problems(dataset)
    assert found[0].startswith("train/part-00000.libsvm, line 2: not label id:value id:value ...; starts with b'x ")
    assert found[1:] == ["train/part-00000.libsvm, line 4, row 0: label 2 is neither 0 nor 1"]
    # As good a row as any: only the digest knows.
    path.write_text("".join(["1" + lines[0][1:], "0" + lines[1][1:], *lines[2:]]))
    assert problems(dataset) == [
        "train/part-00000.libsvm: its SHA-256 differs from the manifest's; it was changed, or is the file of another dataset"
    ]


def test_a_shard_of_another_dataset_is_noticed(small: Small, tmp_path: Path, dataset_of: Any, rows_of: Any) -> None:
    dataset = small("blocks")
    dataset_of(tmp_path / "other", "blocks", [rows_of(6, SCHEMA, seed=77)], [rows_of(2, SCHEMA)], SCHEMA)
    (tmp_path / "other/train/part-00000.tfrecord").rename(dataset / "train/part-00000.tfrecord")
    assert problems(dataset) == [
        "train/part-00000.tfrecord: its SHA-256 differs from the manifest's; it was changed, or is the file of another dataset"
    ]


def test_a_manifest_of_shards_that_no_reader_would_find(small: Small) -> None:
    dataset = small("blocks")

    def change(document: Any) -> None:
        document["train"]["shards"][1] = document["train"]["shards"][0]
        document["train"]["examples"], document["train"]["positives"] = 12, 6
        document["validation"]["shards"][0]["path"] = "train/../validation/part-00000.tfrecord"

    edit(dataset / MANIFEST, change)
    assert problems(dataset) == [
        "manifest.json: lists train/part-00000.tfrecord 2 times",
        "manifest.json: lists train/../validation/part-00000.tfrecord for the validation split; "
        "a shard lies in the folder validation",
        "train/part-00001.tfrecord: not listed by the manifest; remove it, or preprocess again",
        "validation/part-00000.tfrecord: not listed by the manifest; remove it, or preprocess again",
    ]


def test_no_manifest_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecords, match=r"no manifest\.json there"):
        verify_dataset(tmp_path, 1)


def test_of_many_problems_the_first_are_named_and_all_counted(tmp_path: Path, dataset_of: Any, rows_of: Any) -> None:
    wrong = rows_of(50, Schema(field_size=3, feature_size=2))
    dataset_of(tmp_path / "set", "examples", [wrong, wrong], [rows_of(2, SCHEMA)], Schema(field_size=3, feature_size=1))
    bad = int((wrong.ids == 1).any(axis=1).sum())
    held = int((rows_of(2, SCHEMA).ids > 0).any(axis=1).sum())
    found = verify_dataset(tmp_path / "set", 1, most=4)[1]
    assert (len(found.named), found.count) == (4 + 4 + held, 2 * bad + held)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_any_single_changed_byte_is_found(encoding: Encoding, dataset_of: Any, rows_of: Any) -> None:
    with TemporaryDirectory() as folder:
        dataset = Path(folder) / "set"
        dataset_of(dataset, encoding, [rows_of(3, SCHEMA)], [rows_of(1, SCHEMA)], SCHEMA)
        path = dataset / f"train/part-00000{SUFFIXES[encoding]}"
        sound = path.read_bytes()

        @settings(max_examples=300, deadline=None)
        @given(position=st.integers(0, len(sound) - 1), mask=st.integers(1, 255))
        def check(position: int, mask: int) -> None:
            path.write_bytes(sound[:position] + bytes([sound[position] ^ mask]) + sound[position + 1 :])
            found = problems(dataset)
            assert found
            assert all(sentence.startswith(f"train/{path.name}") for sentence in found)

        check()
