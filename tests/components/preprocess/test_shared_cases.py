"""Inputs that real users tripped over, and real public data; skipped where ../shared is not there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.errors import InvalidRecords
from components.manifest import Manifest, read_manifest, read_split
from components.preprocess.chunks import text_chunks
from components.preprocess.config import PreprocessConfig
from components.preprocess.criteo import CRITEO
from components.preprocess.delimited import Delimited
from components.preprocess.libsvm import parse_libsvm, parse_row
from components.preprocess.lines import read_lines
from components.preprocess.repeats import row_hashes
from components.preprocess.step import preprocess
from components.preprocess.tables import Table, open_table
from components.records import Batch, Schema, concatenate

SHARED = Path(__file__).parents[4] / "shared"
CASES, DATA = SHARED / "cases", SHARED / "data"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="../shared is not there")

TSV, TWINS, QUIRKS = (CASES / name for name in ("01-raw-tsv-leading-tab", "03-line-ending-twins", "04-libsvm-legal-quirks"))
BASES, COPY, DAMAGE = (CASES / name for name in ("06-index-base", "13-train-equals-valid", "15-tfrecord-damage"))


def run(folder: Path, *inputs: Path, out: str = "dataset", **settings: Any) -> Manifest:
    return preprocess(PreprocessConfig(**settings), [str(path) for path in inputs], folder / out, folder / "report.html")


def refusal(folder: Path, path: Path, **settings: Any) -> str:
    """What is said after the file's name; nothing is left."""
    with pytest.raises(InvalidRecords) as caught:
        run(folder, path, **settings)
    assert not list(folder.iterdir())
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path))


def libsvm_rows(path: Path, schema: Schema) -> Batch:
    return concatenate((parse_libsvm(chunk, schema, skip=False).batch for chunk in text_chunks(path)), schema.field_size)


def shards(dataset: Path) -> dict[str, bytes]:
    return {str(path.relative_to(dataset)): path.read_bytes() for path in sorted(dataset.rglob("*.tfrecord"))}


def test_01_cells_of_a_raw_tsv_stand_in_their_columns() -> None:
    batch = Table(columns=CRITEO, format="criteo").raw_rows(next(text_chunks(TSV / "train.tsv"))).batch
    rows = json.loads((TSV / "expected.json").read_text())
    assert batch.column(0).to_pylist() == [row["label_in_train"] for row in rows]
    for index, row in enumerate(rows):
        cells = [column[index].as_py() for column in batch.columns]
        assert cells[1:14] == row["dense"]
        assert [token.decode() or None for token in cells[14:]] == row["cat"]


def test_01_rows_without_label_are_no_training_data(tmp_path: Path) -> None:
    reason = refusal(tmp_path, TSV / "test_nolabel.tsv", format="criteo")
    assert reason.startswith(", line 1: 40 columns expected (with label), 39 found")
    table = open_table(CRITEO.unlabelled(), "criteo", Delimited(), [TSV / "test_nolabel.tsv"])
    found = table.raw_rows(next(text_chunks(TSV / "test_nolabel.tsv")))
    assert (table.labelled, found.rejects) == (False, ())
    assert len(found.numbers) == len((TSV / "test_nolabel.tsv").read_bytes().splitlines())


@pytest.mark.parametrize("name", ["crlf.csv", "crlf_noeol.csv", "bom_lf.csv", "blank_tail.csv", "lf.csv.gz", "gz_named_csv.csv"])
def test_03_twins_have_the_same_lines(name: str) -> None:
    expected = (TWINS / "lf.csv").read_bytes().splitlines()
    assert [text for lines in read_lines(TWINS / name) for text in lines.texts if text] == expected


@pytest.mark.parametrize("name", ["lf.csv", "gz_named_csv.csv"])
def test_03_a_csv_is_called_by_its_name(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path, TWINS / name, format="criteo").endswith("this looks like CSV")


@pytest.mark.parametrize("format", ["criteo", "libsvm"])
def test_03_broken_twins_are_refused(tmp_path: Path, format: str) -> None:
    assert "no line feed found" in refusal(tmp_path, TWINS / "cr_only.csv", format=format)
    with pytest.raises(InvalidRecords, match=r"truncated\.csv\.gz: compressed file ended early"):
        list(read_lines(TWINS / "truncated.csv.gz"))
    assert refusal(tmp_path, TWINS / "truncated.csv.gz", format=format)


def test_04_untidy_but_legal_rows(tmp_path: Path) -> None:
    rows = json.loads((QUIRKS / "expected.json").read_text())
    lines = (QUIRKS / "input.libsvm").read_text().splitlines(keepends=True)
    (tmp_path / "without_last").write_text("".join(lines[:-1]))
    batch = libsvm_rows(tmp_path / "without_last", Schema(field_size=3, feature_size=21))
    assert batch.labels.tolist() == [row["label"] for row in rows[:5]]
    # The order of a line is kept; the expected rows are sorted.
    order = np.argsort(batch.ids, axis=1)
    assert np.take_along_axis(batch.ids, order, axis=1).tolist() == [row["ids"] for row in rows[:5]]
    np.testing.assert_array_equal(
        np.take_along_axis(batch.values, order, axis=1), np.array([row["values"] for row in rows[:5]], np.float32)
    )
    with pytest.raises(InvalidRecords, match="line 8: 0 fields, field_size is 3"):
        parse_row(lines[-1].encode(), Schema(field_size=3, feature_size=21), f"{QUIRKS / 'input.libsvm'}, line 8")


def test_04_a_row_without_fields_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, QUIRKS / "input.libsvm", format="libsvm").startswith(", line 8: 0 fields, field_size is 3")


def test_06_the_declared_base_gives_the_same_shards(tmp_path: Path) -> None:
    zero = run(tmp_path, BASES / "zero.libsvm", out="zero", format="libsvm", feature_size=9)
    one = run(tmp_path, BASES / "one.libsvm", out="one", format="libsvm", feature_size=9, id_base=1)
    assert shards(tmp_path / "zero") == shards(tmp_path / "one")
    assert (zero.statistics.smallest_id, zero.statistics.largest_id) == (0, 8)
    assert (one.statistics.smallest_id, one.statistics.largest_id) == (0, 8)
    without_last = run(tmp_path, BASES / "one_without_last.libsvm", out="part", format="libsvm", id_base=1)
    assert (without_last.statistics.smallest_id, without_last.statistics.largest_id) == (0, 7)


def test_06_a_wrong_base_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, BASES / "zero.libsvm", format="libsvm", id_base=1).startswith(", line 1: id 0 is outside 1..")
    assert refusal(tmp_path, BASES / "one.libsvm", format="libsvm", feature_size=9).startswith(", line 3: id 9 is outside 0..8")


def test_13_rows_that_stand_twice_are_counted(tmp_path: Path) -> None:
    expected = json.loads((COPY / "expected.json").read_text())
    schema = Schema(field_size=2, feature_size=10)
    train, valid = (row_hashes(libsvm_rows(COPY / f"{name}.libsvm", schema)) for name in ("train", "valid"))
    assert (len(train), len(valid)) == (expected["train_rows"], expected["valid_rows"])
    assert int(np.isin(valid, train).sum()) == expected["valid_rows_found_in_train"]
    assert len(train) - len(np.unique(train)) == expected["train_exact_duplicates"]
    manifest = run(tmp_path, COPY / "train.libsvm", COPY / "valid.libsvm", format="libsvm")
    assert manifest.statistics.validation_rows_in_train > 0
    assert any("validation rows also stand in train" in warning for warning in manifest.warnings)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cut_in_record_4", ", record 4: the file ends inside the record"),
        ("bitflip_payload_record_2", ", record 2: damaged payload"),
        ("bitflip_length_record_3", ", record 3: damaged length"),
        ("trailing_garbage", ", record 6: damaged length (checksum differs); 6 whole records before it"),
        ("gzip_as_plain", ", record 0: gzip-compressed"),
        ("text_renamed", ", record 0: not a TFRecord file"),
        ("html_error_page", ", record 0: not a TFRecord file"),
        ("wrong_feature_names", ", record 0: no feature ids, label, values; found C1, click, wanted ids, label, values"),
        ("not_an_example", ", record 0 is not a tf.train.Example"),
        ("label_int64", ", record 0: label is int64, float wanted"),
        ("record_3_has_3_fields", ", record 3: ids has 3 of 4 elements"),
        ("ids_values_lengths_differ", ", record 2: values has 3 of 4 elements"),
        ("record_1_id_out_of_range", ", record 1: id 40 is outside 0..39"),
        ("record_1_negative_id", ", record 1: id -1 is outside 0..39"),
        ("record_1_nan", ", record 1, row 0: value nan"),
        ("zero_bytes", ": the file is empty (0 bytes)"),
    ],
)
def test_15_damage_is_named_by_file_and_record(tmp_path: Path, name: str, reason: str) -> None:
    assert refusal(tmp_path, DAMAGE / f"{name}.tfrecords", format="tfrecord", feature_size=40).startswith(reason)


def test_15_a_file_cut_at_a_record_shows_in_the_counts(tmp_path: Path) -> None:
    for name, rows in (("good", 6), ("cut_at_boundary", 4)):
        [source] = run(tmp_path, DAMAGE / f"{name}.tfrecords", out=name, format="tfrecord", feature_size=40).sources
        assert source.rows == rows
    # The manifest is what tells a cut shard from a whole one.
    shard = tmp_path / "good" / read_manifest(tmp_path / "good").train.shards[0].path
    shard.write_bytes(b"")
    with pytest.raises(InvalidRecords, match="rows found, the manifest says"):
        list(read_split(tmp_path / "good", read_manifest(tmp_path / "good"), "train"))


def test_real_criteo_rows_without_their_trailing_tabs(tmp_path: Path) -> None:
    path = DATA / "01-criteo-raw-tsv" / "train.txt"
    manifest = run(tmp_path, path, format="criteo")
    assert manifest.train.examples + manifest.validation.examples == 1000
    assert manifest.train.positives + manifest.validation.positives == 205
    assert "498 rows had fewer than 40 columns; the cells at their end were taken as missing" in manifest.warnings
    lines = path.read_text().split("\n")
    (tmp_path / "padded.tsv").write_text("\n".join(line + "\t" * (39 - line.count("\t")) for line in lines))
    padded = run(tmp_path, tmp_path / "padded.tsv", out="padded", format="criteo")
    assert shards(tmp_path / "dataset") == shards(tmp_path / "padded")
    empty = sum(cell == "" for line in (tmp_path / "padded.tsv").read_text().split("\n") for cell in line.split("\t"))
    assert manifest.statistics.missing == padded.statistics.missing == empty


def test_real_ipinyou_rows(tmp_path: Path) -> None:
    files = [DATA / "08-ipinyou-libsvm" / name for name in ("train.fm.txt", "test.fm.txt")]
    manifest = run(tmp_path, *files, format="libsvm", feature_size=133_465)
    assert [source.rows for source in manifest.sources] == [26_773, 21_150]
    assert manifest.train.positives + manifest.validation.positives == 255 + 50
    assert (manifest.schema.field_size, manifest.statistics.largest_id) == (16, 133_464)


def test_real_criteo_tfrecords(tmp_path: Path) -> None:
    manifest = run(tmp_path, DATA / "21-criteo-tfrecord-aws" / "val.tfrecords", format="tfrecord")
    assert manifest.train.examples + manifest.validation.examples == 10_000
    assert manifest.train.positives + manifest.validation.positives == 2_553
    assert (manifest.schema.field_size, manifest.statistics.largest_id) == (39, 117_565)
