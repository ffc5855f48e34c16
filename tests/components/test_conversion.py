"""Conversion: the same rows in the same order, whatever the encoding and the number of shards; nothing of a damaged dataset."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from components.conversion import convert_dataset, divide, even_sizes
from components.errors import InvalidConfig, InvalidRecords
from components.manifest import Manifest, SplitName, read_manifest, read_split
from components.records import ENCODINGS, SUFFIXES, Batch, Encoding, Schema, Shard, concatenate
from components.verification import verify_dataset

SCHEMA = Schema(field_size=3, feature_size=40)
DatasetOf = Callable[..., Manifest]
RowsOf = Callable[..., Batch]


def files(dataset: Path) -> dict[str, bytes]:
    return {str(path.relative_to(dataset)): path.read_bytes() for path in sorted(dataset.rglob("*")) if path.is_file()}


def split_rows(dataset: Path, name: SplitName) -> Batch:
    manifest = read_manifest(dataset)
    return concatenate(read_split(dataset, manifest, name), manifest.schema.field_size)


def assert_same_bits(found: Batch, expected: Batch) -> None:
    """Also -0.0 and subnormal numbers."""
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.values.view(np.uint32), expected.values.view(np.uint32))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, Batch]:
    """Any valid rows: ids up to the largest, every finite float32."""
    fields, count = draw(st.integers(1, 4)), draw(st.integers(0, 12))
    feature_size = draw(st.sampled_from([1, 2, 1000, 2**31 - 1]))
    ids = draw(hnp.arrays(np.int64, (count, fields), elements=st.integers(0, feature_size - 1)))
    values = draw(hnp.arrays(np.float32, (count, fields), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
    labels = draw(hnp.arrays(np.float32, count, elements=st.sampled_from([0.0, 1.0])))
    return Schema(field_size=fields, feature_size=feature_size), Batch(labels=labels, ids=ids, values=values)


@settings(max_examples=60, deadline=None)
@given(table=tables(), cut=st.integers(0, 12), shards=st.integers(0, 4))
def test_any_table_survives_every_encoding_and_every_conversion(
    dataset_of: DatasetOf, table: tuple[Schema, Batch], cut: int, shards: int
) -> None:
    schema, batch = table
    parts = [batch.rows(slice(0, cut)), batch.rows(slice(cut, None))]
    for before in ENCODINGS:
        with TemporaryDirectory() as name:
            folder = Path(name)
            dataset_of(folder / before, before, parts, [batch], schema)
            for after in ENCODINGS:
                convert_dataset(folder / before, folder / f"to-{after}", after, 1, shards)
                for split in ("train", "validation"):
                    assert_same_bits(split_rows(folder / f"to-{after}", split), batch)
                assert verify_dataset(folder / f"to-{after}", 1)[1].named == ()
            if not shards:
                # There and back again: not a byte differs, of the manifest neither.
                convert_dataset(folder / f"to-{ENCODINGS[0]}", folder / "back", before, 1)
                assert files(folder / "back") == files(folder / before)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_converted_dataset_is_byte_for_byte_what_preprocess_writes(tmp_path: Path, encoding: Encoding) -> None:
    from components.preprocess.config import PreprocessConfig
    from components.preprocess.step import preprocess

    (tmp_path / "in.libsvm").write_text("".join(f"{n % 2} {n}:1 {50 + n % 7}:{n / 4}\n" for n in range(60)))
    for written in ENCODINGS:
        config = PreprocessConfig(format="libsvm", encoding=written)
        preprocess(config, [str(tmp_path / "in.libsvm")], tmp_path / written, tmp_path / "report.html")
    convert_dataset(tmp_path / "blocks", tmp_path / "out", encoding, 2)
    assert files(tmp_path / "out") == files(tmp_path / encoding)


def test_everything_else_is_carried_over(
    tmp_path: Path, dataset_of: Callable[..., Manifest], rows_of: Callable[..., Batch]
) -> None:
    before = dataset_of(tmp_path / "set", "blocks", [rows_of(9, SCHEMA)], [rows_of(3, SCHEMA)], SCHEMA, negative_sampling_rate=0.5)
    (tmp_path / "set/transform.json").write_text("{}")
    after = convert_dataset(tmp_path / "set", tmp_path / "out", "libsvm", 1, shards=4)
    assert after == read_manifest(tmp_path / "out")
    assert (after.encoding, after.negative_sampling_rate) == ("libsvm", 0.5)
    for name in ("schema", "statistics", "sources", "warnings", "versions"):
        assert getattr(after, name) == getattr(before, name)
    assert [shard.examples for shard in after.train.shards] == [2, 2, 2, 3]
    assert [shard.examples for shard in after.validation.shards] == [3]
    assert (tmp_path / "out/transform.json").read_text() == "{}"
    assert {path.suffix for path in (tmp_path / "out/train").iterdir()} == {".libsvm"}


def test_a_damaged_dataset_gives_no_other(
    tmp_path: Path, dataset_of: Callable[..., Manifest], rows_of: Callable[..., Batch]
) -> None:
    for encoding in ENCODINGS:
        dataset = tmp_path / encoding
        dataset_of(dataset, encoding, [rows_of(9, SCHEMA), rows_of(8, SCHEMA)], [rows_of(3, SCHEMA)], SCHEMA)
        path = dataset / f"train/part-00001{SUFFIXES[encoding]}"
        sound = path.read_bytes()
        # In text a digit for a digit: only the digest can know, which is compared at the end.
        path.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
        for processes in (1, 2):
            with pytest.raises(InvalidRecords, match=re.escape(str(path))):
                convert_dataset(dataset, tmp_path / "out", "blocks", processes)
            assert sorted(each.name for each in tmp_path.iterdir()) == sorted(ENCODINGS[: ENCODINGS.index(encoding) + 1])


def test_a_dataset_is_not_converted_into_itself(
    tmp_path: Path, dataset_of: Callable[..., Manifest], rows_of: Callable[..., Batch]
) -> None:
    dataset = tmp_path / "sets/set"
    dataset_of(dataset, "blocks", [rows_of(9, SCHEMA)], [rows_of(3, SCHEMA)], SCHEMA)
    before = files(tmp_path)
    (tmp_path / "link").symlink_to(dataset)
    for out in (dataset, dataset / "new", tmp_path / "sets", tmp_path / "link", dataset / "../set"):
        with pytest.raises(InvalidConfig, match=f"{re.escape(str(out))}: is, holds or lies in the dataset"):
            convert_dataset(dataset, out, "examples", 1)
    (tmp_path / "link").unlink()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.txt").touch()
    with pytest.raises(InvalidConfig, match="exists and is not an earlier output"):
        convert_dataset(dataset, tmp_path / "thesis", "examples", 1)
    (tmp_path / "thesis/thesis.txt").unlink()
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([5, 5], [5, 5], [([5], [5]), ([5], [5])]),
        ([5, 5], [10], [([5, 5], [10])]),
        ([4, 4, 4, 4], [8, 8], [([4, 4], [8]), ([4, 4], [8])]),
        ([8, 8], [4, 4, 4, 4], [([8], [4, 4]), ([8], [4, 4])]),
        ([6, 4], [5, 5], [([6, 4], [5, 5])]),
        ([0, 3, 0], [1, 2], [([0, 3, 0], [1, 2])]),
        ([3, 0, 2], [3, 2], [([3, 0], [3]), ([2], [2])]),
    ],
)
def test_work_is_cut_where_old_and_new_shards_end(old: list[int], new: list[int], expected: list[Any]) -> None:
    shards: Sequence[Shard] = [
        Shard(path=f"train/{index}", examples=rows, positives=0, bytes=0, sha256="") for index, rows in enumerate(old)
    ]
    parts = divide("train", shards, new, "blocks")
    assert [([shard.examples for shard in part.old], [rows for _, rows in part.new]) for part in parts] == expected
    assert [name for part in parts for name, _ in part.new] == [f"part-{index:05d}.tfrecord" for index in range(len(new))]


@pytest.mark.parametrize(("rows", "shards", "sizes"), [(10, 4, [2, 3, 2, 3]), (3, 8, [1, 1, 1]), (0, 3, [0]), (7, 1, [7])])
def test_new_shards_are_of_even_size(rows: int, shards: int, sizes: list[int]) -> None:
    assert even_sizes(rows, shards) == sizes
