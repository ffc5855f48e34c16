"""CSV and Parquet through the whole step: two passes, one transform, the same engine as the other formats."""

import csv
import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from components.errors import InvalidConfig, InvalidRecords
from components.framing import read_tfrecords
from components.manifest import Manifest, read_manifest, read_split
from components.preprocess.config import PreprocessConfig
from components.preprocess.fitting import TransformConfig
from components.preprocess.step import preprocess
from components.preprocess.transform_file import read_transform

COLUMNS = "label=click; numeric=price; categorical=country; multi_valued=tags:|:2; ignored=note"
HEADER = ["note", "click", "price", "country", "tags"]
Row = tuple[str, int, str, str, str]


def table(count: int) -> list[Row]:
    """Rows with quoted line ends and separators in them, missing cells, and a country that stands there once."""
    draw = np.random.default_rng(count)
    rows: list[Row] = []
    for number in range(count):
        country = ["DE", "FR", "", "São Tomé, São"][draw.integers(4)]
        tags = "|".join(["a", "b", 'c "quoted"'][: draw.integers(3)])
        price = f"{draw.integers(1000) / 8}" if draw.random() < 0.9 else ""
        rows.append((f"line\n{number}", int(draw.random() < 0.3), price, country, tags))
    return rows


def write_csv(path: Path, rows: Sequence[Row], **form: Any) -> Path:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="", encoding="utf-8") as file:
        csv.writer(file, **form).writerows([HEADER, *rows])
    return path


def write_parquet(path: Path, rows: Sequence[Row]) -> Path:
    note, click, price, country, tags = zip(*rows, strict=True)
    found = {
        "note": note,
        "click": click,
        "price": [float(cell) if cell else None for cell in price],
        "country": [cell or None for cell in country],
        "tags": [cell.split("|") if cell else None for cell in tags],
    }
    pyarrow.parquet.write_table(pa.table(found), path, row_group_size=7)
    return path


def write_examples(path: Path, rows: Sequence[Row]) -> Path:
    def of(values: Sequence[Any]) -> Any:
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode() for value in values]))

    with tf.io.TFRecordWriter(str(path)) as writer:
        for _, click, price, country, tags in rows:
            features = {
                "click": of([float(click)]),
                "price": of([float(price)] if price else []),
                "country": of([country] if country else []),
                "tags": of(tags.split("|") if tags else []),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return path


def made(folder: Path, source: Path, **settings: Any) -> Manifest:
    config = PreprocessConfig(**{"format": "csv", "columns": COLUMNS, **settings})
    return preprocess(config, [str(source)], folder, folder.with_suffix(".html"))


def rows_of(folder: Path, *splits: Any) -> Counter[tuple[float, ...]]:
    """The rows of a dataset, in no order."""
    manifest = read_manifest(folder)
    batches = [batch for split in splits or ("train", "validation") for batch in read_split(folder, manifest, split)]
    return Counter(
        (label, *ids, *values)
        for batch in batches
        for label, ids, values in zip(batch.labels.tolist(), batch.ids.tolist(), batch.values.tolist(), strict=True)
    )


def test_ids_and_values_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    # The price: id 0, missing 1. Missing country 2, missing tags 3. Countries: rare 4, FR 5 (twice), DE 6. Tags: rare 7, b 8, a 9.
    rows: list[Row] = [("x", 1, "0", "FR", "b|a"), ("x", 0, "", "FR", "b"), ("x", 0, "0", "DE", ""), ("x", 1, "0", "", "b|a")]
    source = write_csv(tmp_path / "day.csv", rows)
    fitting = TransformConfig(categories="vocabulary", min_count=1)
    # A share of one in 2^60 holds the row with the smallest key out alone, after all rows were counted.
    made(tmp_path / "data", source, fitting=fitting, validation_fraction=2.0**-60)
    assert rows_of(tmp_path / "data") == {
        (1, 0, 5, 8, 9, 0, 1, 1, 1): 1,
        (0, 1, 5, 8, 3, 1, 1, 1, 0): 1,
        (0, 0, 6, 3, 3, 0, 1, 1, 0): 1,
        (1, 0, 2, 8, 9, 0, 1, 1, 1): 1,
    }
    assert read_manifest(tmp_path / "data").schema.feature_size == 10


@pytest.mark.parametrize(
    ("name", "form", "settings"),
    [
        ("day.csv", {}, {}),
        ("day.csv.gz", {}, {}),
        ("day.csv", {"delimiter": "\t", "lineterminator": "\n"}, {"separator": "\t"}),
        ("day.csv", {"delimiter": ";", "quoting": csv.QUOTE_ALL}, {"separator": ";"}),
    ],
    ids=["commas", "gzip", "tabs", "semicolons"],
)
def test_a_table_is_the_same_rows_in_every_form_in_parquet_and_in_named_features(
    tmp_path: Path, name: str, form: dict[str, Any], settings: dict[str, Any]
) -> None:
    rows = table(200)
    made(tmp_path / "csv", write_csv(tmp_path / name, rows, **form), **settings)
    made(tmp_path / "parquet", write_parquet(tmp_path / "day.parquet", rows), format="parquet")
    made(tmp_path / "named", write_examples(tmp_path / "day.tfrecord", rows), format="tfrecord")
    assert rows_of(tmp_path / "csv") == rows_of(tmp_path / "parquet") == rows_of(tmp_path / "named")
    assert rows_of(tmp_path / "csv").total() == 200


def test_the_transform_knows_training_rows_only(tmp_path: Path) -> None:
    rows = [("x", number % 2, "1", f"token {number}", "") for number in range(400)]
    fitting = TransformConfig(categories="vocabulary", min_count=1)
    manifest = made(tmp_path / "data", write_csv(tmp_path / "day.csv", rows), fitting=fitting)
    country = read_transform(tmp_path / "data" / "transform.json").categories[0]
    assert country.distinct == manifest.train.examples < 400
    price, *_, tags = manifest.statistics.columns
    assert (price.name, price.missing, price.unseen, price.distinct, price.collision_rate) == ("price", 0, None, None, None)
    assert (tags.name, tags.missing, tags.unseen, tags.distinct) == ("tags", 400, 0, 0)
    assert manifest.statistics.columns[1].unseen == manifest.validation.examples
    ids = {split: [row[2] for row in rows_of(tmp_path / "data", split)] for split in ("train", "validation")}
    assert country.rare not in ids["train"]
    assert set(ids["validation"]) == {country.rare}
    assert any(f"{manifest.validation.examples} cells hold a token that is rare" in warning for warning in manifest.warnings)


def test_a_later_day_takes_the_transform_of_an_earlier_one(tmp_path: Path) -> None:
    rows = table(120)
    fitting = TransformConfig(categories="vocabulary", min_count=1, numbers="bucket", buckets=4)
    made(tmp_path / "monday", write_csv(tmp_path / "monday.csv", rows), fitting=fitting)
    later = write_csv(tmp_path / "tuesday.csv", [*rows, ("x", 1, "99999", "Atlantis", "new tag")])
    fitted = tmp_path / "monday" / "transform.json"
    made(tmp_path / "tuesday", later, transform=str(fitted))
    new = rows_of(tmp_path / "tuesday") - rows_of(tmp_path / "monday")
    assert new.total() == 1
    assert (tmp_path / "tuesday" / "transform.json").read_bytes() == fitted.read_bytes()
    with pytest.raises(InvalidConfig, match="was fitted for other columns"):
        made(tmp_path / "wednesday", later, transform=str(fitted), columns="label=click; numeric=price; ignored=*")
    with pytest.raises(InvalidRecords, match="no such file"):
        made(tmp_path / "wednesday", later, transform=str(tmp_path / "none.json"))
    assert not (tmp_path / "wednesday").exists()


@pytest.mark.parametrize("source_format", ["csv", "parquet"])
def test_the_bytes_do_not_depend_on_processes(tmp_path: Path, source_format: str) -> None:
    # More than one chunk: 2 MiB of text, or 16,384 rows.
    rows = table(60_000)
    source = (write_csv if source_format == "csv" else write_parquet)(tmp_path / "day", rows)
    fitting = TransformConfig(categories="vocabulary", numbers="standard")
    found = []
    for processes in (1, 3):
        folder = tmp_path / str(processes)
        made(folder, source, format=source_format, fitting=fitting, processes=processes)
        found.append({path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()})
    assert found[0] == found[1]
    assert sum(rows_of(tmp_path / "1").values()) == 60_000


def test_bad_rows_stop_or_are_skipped_and_counted(tmp_path: Path) -> None:
    rows = [*table(50), ("x", 7, "1", "DE", ""), ("x", 1, "cheap", "DE", ""), *table(50)]
    source = write_csv(tmp_path / "day.csv", rows)
    # Header, and two lines a row.
    with pytest.raises(InvalidRecords, match=r"day\.csv, line 102: .*label '7'"):
        made(tmp_path / "data", source)
    assert not (tmp_path / "data").exists()
    manifest = made(tmp_path / "data", source, on_bad_row="skip")
    assert manifest.sources[0].rejected == {"label": 1, "number": 1}
    assert manifest.sources[0].rows == 100
    with pytest.raises(InvalidRecords, match="at most 1 may be skipped"):
        made(tmp_path / "data", source, on_bad_row="skip", max_bad_rows=1)


def test_a_damaged_record_is_named_or_skipped(tmp_path: Path) -> None:
    source = write_examples(tmp_path / "day.tfrecord", table(40))
    content = bytearray(source.read_bytes())
    lengths = [12 + len(record) + 4 for record in read_tfrecords(source)]
    content[sum(lengths[:7]) + 20] ^= 1
    source.write_bytes(content)
    with pytest.raises(InvalidRecords, match=r"day\.tfrecord, record 7: damaged payload"):
        made(tmp_path / "data", source, format="tfrecord")
    manifest = made(tmp_path / "data", source, format="tfrecord", on_bad_row="skip")
    assert manifest.sources[0].rejected == {"damaged": 1}
    assert manifest.sources[0].rows == 39


def test_libffm_becomes_rows_with_a_place_for_each_field(tmp_path: Path) -> None:
    # Fields from 1: a place each; the second row lacks field 2, the third has field 3 twice.
    (tmp_path / "day.ffm").write_text("1 1:3:1 2:5:0.5 3:7:1 # note\n-1 3:8:2 1:1:1\r\n\n0 3:8:1 3:9:1\n")
    settings = {"format": "libffm", "columns": "", "field_base": 1, "id_base": 1, "feature_size": 9}
    with pytest.raises(InvalidRecords, match=r"day\.ffm, line 4: field 3 stands twice"):
        made(tmp_path / "data", tmp_path / "day.ffm", **settings)
    manifest = made(tmp_path / "data", tmp_path / "day.ffm", **settings, on_bad_row="skip")
    assert rows_of(tmp_path / "data") == {(1, 2, 4, 6, 1, 0.5, 1): 1, (0, 0, 0, 7, 1, 0, 2): 1}
    assert manifest.sources[0].rejected == {"repeated field": 1}
    manifest = made(tmp_path / "data", tmp_path / "day.ffm", **settings, values_per_field=2, field_size=3)
    assert manifest.schema.field_size == 6
    assert rows_of(tmp_path / "data")[(0, 0, 0, 0, 0, 7, 8, 0, 0, 0, 0, 1, 1)] == 1


def test_other_text_is_no_libffm(tmp_path: Path) -> None:
    (tmp_path / "day.svm").write_text("1 3:1 5:0.5\n0 4:1 5:1\n")
    with pytest.raises(InvalidRecords, match="LibSVM"):
        made(tmp_path / "data", tmp_path / "day.svm", format="libffm", columns="")


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecords, match="no rows in it"):
        made(tmp_path / "data", write_csv(tmp_path / "day.csv", []))


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (lambda packed: packed[:10] + b"\xff" * 40, r"damaged gzip data after line 0 "),
        (lambda packed: packed[:-8] + bytes(8), r"damaged gzip data after line 5 "),
        (lambda packed: packed[:30], r"compressed file ended early after line 0"),
    ],
)
def test_damaged_gzip_is_refused_wherever_it_is(tmp_path: Path, damaged: Callable[[bytes], bytes], said: str) -> None:
    path = tmp_path / "day.csv"
    path.write_bytes(damaged(gzip.compress(b"click,price,country,tags,note\n" + b"1,2.5,DE,a,x\n0,,FR,,y\n" * 2)))
    with pytest.raises(InvalidRecords, match=rf"day\.csv: {said}"):
        made(tmp_path / "data", path)


def test_names_stand_for_a_header(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("x,1,2.5,DE,a\r\nx,0,,FR,\r\n" * 3)
    manifest = made(tmp_path / "data", tmp_path / "day.csv", names=tuple(HEADER))
    assert manifest.train.examples + manifest.validation.examples == 6
    said = r"columns found: x,1,2\.5,DE,a; if the first line is a row, name its columns with --names$"
    with pytest.raises(InvalidRecords, match=said):
        made(tmp_path / "without", tmp_path / "day.csv")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"format": "csv"}, "say what the columns mean"),
        ({"format": "csv", "columns": COLUMNS, "feature_size": 9}, "leave them out"),
        ({"format": "csv", "columns": COLUMNS, "id_base": 1}, "hold no ids"),
        ({"format": "csv", "columns": COLUMNS, "separator": ":"}, "separator"),
        ({"format": "criteo", "columns": COLUMNS}, "its columns are known"),
        ({"format": "libsvm", "transform": "transform.json"}, "for tables"),
        ({"format": "libsvm", "field_base": 1}, "for libffm"),
        ({"format": "libffm", "values_per_field": 0}, "at least 1 is needed"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        PreprocessConfig(**settings)


def test_a_rerun_over_changed_input_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = write_csv(tmp_path / "day.csv", table(20))
    made(tmp_path / "data", source)
    made(tmp_path / "data", source)
    assert "the input differs" not in caplog.text
    write_csv(source, table(21))
    made(tmp_path / "data", source)
    assert f"the input differs from that of the dataset that this one replaces: 1 changed ({source})" in caplog.messages
    (tmp_path / "data" / "manifest.json").write_text("{}")
    made(tmp_path / "data", source)
    assert any(message.startswith("the dataset that this one replaces is not compared") for message in caplog.messages)
