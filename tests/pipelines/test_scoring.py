"""Raw rows become the probabilities that their model gives them, row by row, in every format, with and without a label.

The model is linear: sigmoid of the sum over cells of (id / 10) x value, so that every probability can be worked out by hand.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from click.testing import CliRunner

from components.errors import InvalidConfig, InvalidRecords, NotPromotable
from components.examples import encode_example
from components.framing import frame
from components.preprocess.config import PreprocessConfig
from components.preprocess.criteo import CRITEO
from components.preprocess.fitting import Fitting, TransformConfig, nothing_counted
from components.preprocess.step import preprocess
from components.preprocess.transform_file import write_transform
from pipelines import scoring
from pipelines.cli import main
from pipelines.scoring import HEADER, Scored, open_source, score_rows
from pipelines.source_options import reading_options

IDS = 12
COLUMNS = "label=click; numeric=price; categorical=country; multi_valued=tags:|:2; ignored=note"
Row = tuple[str, str, str, str, str]
# note, click, price, country, tags. Ids: price 0, missing 1; country missing 2; tags missing 3; country rare 4, FR 5, DE 6; tags
# rare 7, b 8, a 9. A price x has value ln(1 + x).
TRAINED: list[Row] = [
    ("n", "1", "0", "FR", "b|a"),
    ("n", "0", "", "FR", "b"),
    ("n", "0", "0", "DE", ""),
    ("n", "1", "0", "", "b|a"),
]
SCORED: list[Row] = [
    ("line\nend", "", "5", "FR", "a"),
    ("n", "1", "", "", ""),
    ("n", "x", "0", "Atlantis", "b|new"),
    ("n", "0", "1", "DE", "a|b"),
]
SUMS = [0 + 0.5 + 0.9, 0.1 + 0.2 + 0.3, 0 + 0.4 + 0.8 + 0.7, 0 + 0.6 + 0.9 + 0.8]


def expected(sums: Sequence[float | None], tolerance: float = 1e-6) -> Any:
    return [None if each is None else pytest.approx(1 / (1 + math.exp(-each)), rel=tolerance) for each in sums]


def write_model(model: Path, *, transform: Path | None = None, field_size: int, id_base: int = 0, scale: int = 10) -> Path:
    class Linear(tf.Module):  # type: ignore[misc]
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int64, "ids"), tf.TensorSpec([None, None], tf.float32, "values")]
        )
        def serve(self, ids: Any, values: Any) -> Any:
            return {"probability": tf.sigmoid(tf.reduce_sum(tf.cast(ids, tf.float32) / scale * values, axis=1))}

    module = Linear()
    tf.saved_model.save(module, str(model / "saved_model"), signatures={"serving_default": module.serve})
    if transform:
        (model / "transform.json").write_bytes(transform.read_bytes())
    files = [path for path in sorted(model.rglob("*")) if path.is_file()]
    listed = {
        path.relative_to(model).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in files
    }
    known = {"field_size": field_size, "feature_size": IDS, "id_base": id_base, "data_digest": "d", "files": listed, "config": {}}
    numbers = {"format_version": 1, "rank": 0, "world_size": 1, "step": 1, "examples": 4, "metrics": {}}
    told = {"strategy": "single", "parameter_checksum": "c", "ranks_agreed": True}
    (model / "model.json").write_text(json.dumps({**known, **numbers, **told}))
    return model


def write_csv(path: Path, rows: Sequence[Row], names: Sequence[str] = ("note", "click", "price", "country", "tags")) -> Path:
    chosen = ["note", "click", "price", "country", "tags"]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *([row[chosen.index(name)] for name in names] for row in rows)])
    return path


def write_parquet(path: Path, rows: Sequence[Row], names: Sequence[str]) -> Path:
    _, _, price, country, tags = zip(*rows, strict=True)
    found = {
        "click": [1] * len(rows),
        "price": [float(cell) if cell else None for cell in price],
        "country": country,
        "tags": [cell.split("|") if cell else None for cell in tags],
    }
    pyarrow.parquet.write_table(pa.table({name: found[name] for name in names}), path)
    return path


def write_named(path: Path, rows: Sequence[Row], names: Sequence[str]) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _, _, price, country, tags in rows:
            lists = {"country": [country], "tags": tags.split("|")}
            bytes_of = {name: [token.encode() for token in tokens if token] for name, tokens in lists.items()}
            features = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=each)) for name, each in bytes_of.items()}
            features["price"] = tf.train.Feature(float_list=tf.train.FloatList(value=[float(price)] if price else []))
            features["click"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
            chosen = {name: features[name] for name in names}
            writer.write(tf.train.Example(features=tf.train.Features(feature=chosen)).SerializeToString())
    return path


def scored(model: Path, path: Path, **options: Any) -> tuple[list[float | None], Scored]:
    """What `ctrflow score` writes, with these options and its defaults."""
    given = {**reading_defaults(), **options}
    out = io.StringIO(newline="")
    found = score_rows(model, open_source(model, [str(path)], given, path.parent), out)
    lines = out.getvalue().splitlines(keepends=True)
    assert lines[0] == HEADER
    numbers, texts = zip(*(line.removesuffix("\n").split(",") for line in lines[1:]), strict=True) if lines[1:] else ((), ())
    assert list(numbers) == [str(row) for row in range(1, len(lines))]
    return [float(text) if text else None for text in texts], found


def reading_defaults() -> dict[str, Any]:
    import click

    command = click.command()(reading_options(lambda **options: options))
    return command.make_context("score", []).params


@pytest.fixture(scope="module")
def of_columns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of columns, with the transform of four training rows."""
    folder = tmp_path_factory.mktemp("columns")
    fitting = TransformConfig(categories="vocabulary", min_count=1)
    # A share of one in 2^60 holds the row with the smallest key out alone, after all rows were counted.
    config = PreprocessConfig(format="csv", columns=COLUMNS, fitting=fitting, validation_fraction=2.0**-60)
    preprocess(config, [str(write_csv(folder / "day.csv", TRAINED))], folder / "dataset", folder / "report.html")
    return write_model(folder / "model", transform=folder / "dataset/transform.json", field_size=4)


@pytest.fixture(scope="module")
def of_ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of rows with two ids, which start at 1 in its sources."""
    return write_model(tmp_path_factory.mktemp("ids") / "model", field_size=2, id_base=1)


NAMED = ("click", "price", "country", "tags")


@pytest.mark.parametrize("names", [NAMED, NAMED[1:], (*NAMED[:0:-1],)], ids=["with-label", "without", "in-another-order"])
@pytest.mark.parametrize(("source_format", "write"), [("csv", write_csv), ("parquet", write_parquet), ("tfrecord", write_named)])
def test_rows_of_a_table_get_their_probabilities_in_order_with_and_without_label(
    of_columns: Path, tmp_path: Path, source_format: str, write: Callable[..., Path], names: tuple[str, ...]
) -> None:
    found, counted = scored(of_columns, write(tmp_path / "day", SCORED, names), format=source_format)
    assert found == expected(SUMS)
    assert counted == Scored(rows=4, skipped=0)


def test_columns_that_training_ignored_and_new_ones_may_be_there(of_columns: Path, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "day.csv", SCORED)
    path.write_text(path.read_text().replace("note", "something new", 1))
    assert scored(of_columns, path, format="csv")[0] == expected(SUMS)


def test_a_table_without_a_column_of_the_model_is_refused(of_columns: Path, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "day.csv", SCORED, ("price", "tags"))
    with pytest.raises(InvalidRecords, match=r"day\.csv: no column 'country'; columns found: price,tags"):
        scored(of_columns, path, format="csv")


def test_names_stand_for_a_header_that_is_not_there(of_columns: Path, tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("a;FR;5\n;;\n")
    found, _ = scored(of_columns, tmp_path / "day.csv", format="csv", separator=";", names=("tags", "country", "price"))
    assert found == expected(SUMS[:2])


def test_a_bad_row_stops_by_file_and_line_or_has_no_probability(
    of_columns: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [*SCORED[:2], ("n", "1", "cheap", "DE", ""), SCORED[2], ("n", "1", "1", "DE", "a|b|c"), SCORED[3]]
    path = write_csv(tmp_path / "day.csv", rows)
    with pytest.raises(InvalidRecords, match=r"day\.csv, line 5: column price: 'cheap' is not a number"):
        scored(of_columns, path, format="csv")
    found, counted = scored(of_columns, path, format="csv", on_bad_row="skip")
    assert found == expected([*SUMS[:2], None, SUMS[2], None, SUMS[3]])
    assert counted == Scored(rows=4, skipped=2)
    assert "2 bad rows have no probability (1 number, 1 values)" in caplog.messages
    with pytest.raises(InvalidRecords, match="2 bad rows, at most 1 may be skipped"):
        scored(of_columns, path, format="csv", on_bad_row="skip", max_bad_rows=1)


def test_rows_of_libsvm_keep_their_order_and_have_a_label(of_ids: Path, tmp_path: Path) -> None:
    # Ids of the source start at 1.
    (tmp_path / "day.svm").write_text("1 3:1 5:0.5\n# a note\n\n-1 12:-1 1:7\n0 13:1 1:1\n0\t2:2 4:0 \n")
    with pytest.raises(InvalidRecords, match=r"day\.svm, line 5: id 13 is outside 1\.\.12"):
        scored(of_ids, tmp_path / "day.svm", format="libsvm")
    found, counted = scored(of_ids, tmp_path / "day.svm", format="libsvm", on_bad_row="skip")
    assert found == expected([0.2 + 0.2, -1.1, None, 0.2])
    assert counted == Scored(rows=3, skipped=1)
    (tmp_path / "bare.svm").write_text("3:1 5:0.5\n")
    with pytest.raises(InvalidRecords, match=r"bare\.svm, line 1: label '3:1' is none of 0, 1, -1, \+1"):
        scored(of_ids, tmp_path / "bare.svm", format="libsvm")


def test_rows_of_libffm_take_the_places_of_their_fields(of_ids: Path, tmp_path: Path) -> None:
    (tmp_path / "day.ffm").write_text("0 2:5:1 1:3:2\n1 1:4:1\n")
    found, _ = scored(of_ids, tmp_path / "day.ffm", format="libffm", field_base=1)
    assert found == expected([2 * 0.2 + 0.4, 0.3])
    with pytest.raises(InvalidConfig, match="values_per_field 3: rows have 2 places"):
        scored(of_ids, tmp_path / "day.ffm", format="libffm", values_per_field=3)


def test_records_of_ids_keep_their_order_across_chunks_and_batches(
    of_ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "ROWS_AT_ONCE", 1000)
    draw = np.random.default_rng(3)
    ids, values = draw.integers(1, IDS + 1, (40_000, 2)), draw.normal(size=(40_000, 2)).astype(np.float32)
    path = tmp_path / "day.tfrecord"
    path.write_bytes(b"".join(frame(encode_example(0.0, *row)) for row in zip(ids, values, strict=True)))
    assert path.stat().st_size > 2 << 20
    found, counted = scored(of_ids, path, format="tfrecord")
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-((ids - 1) / 10 * values).sum(axis=1))), rtol=1e-5)
    assert counted.rows == 40_000


@pytest.mark.parametrize("labels", [(), (b"1", b"?")], ids=["unlabelled", "labelled"])
def test_raw_criteo_is_scored_with_and_without_labels(tmp_path: Path, labels: tuple[bytes, ...]) -> None:
    write_transform(tmp_path / "transform.json", Fitting(columns=CRITEO).fit(nothing_counted(CRITEO)))
    model = write_model(tmp_path / "model", transform=tmp_path / "transform.json", field_size=39, scale=1000)
    # Ids of missing cells: 1, 3 .. 25 of the counts, and 26 .. 51 of the categories; of a count that is there 0, of value ln 3.
    rows = [b"\t" * 38, b"2" + b"\t" * 12, b"x" + b"\t" * 38]
    lines = [
        b"\t".join([*([label] if label else []), row])
        for label, row in zip([*labels, b"0"] if labels else [b""] * 3, rows, strict=True)
    ]
    (tmp_path / "day").write_bytes(b"\n".join(lines))
    found, counted = scored(model, tmp_path / "day", format="criteo", on_bad_row="skip")
    whole = (sum(range(1, 26, 2)) + sum(range(26, 52))) / 1000
    assert found == [*expected([whole, whole - 0.001]), None]
    assert (counted.rows, counted.skipped) == (2, 1)


def test_a_model_of_other_columns_takes_no_raw_criteo(of_columns: Path, tmp_path: Path) -> None:
    (tmp_path / "day").write_bytes(b"\t" * 38)
    with pytest.raises(InvalidConfig, match="other columns than raw Criteo has"):
        scored(of_columns, tmp_path / "day", format="criteo")


@pytest.mark.parametrize("source_format", ["libsvm", "libffm"])
def test_a_model_of_columns_takes_no_ids(of_columns: Path, tmp_path: Path, source_format: str) -> None:
    (tmp_path / "day").write_text("1 3:1\n")
    with pytest.raises(InvalidConfig, match=f"format {source_format}: .* was trained on columns"):
        scored(of_columns, tmp_path / "day", format=source_format)


def test_a_model_of_ids_takes_no_columns(of_ids: Path, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "day.csv", SCORED)
    with pytest.raises(InvalidConfig, match=r"format csv: .* has no transform\.json: it was trained on ids"):
        scored(of_ids, path, format="csv")


def test_a_damaged_model_is_refused_before_anything_is_read(of_columns: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.json").write_bytes((of_columns / "model.json").read_bytes())
    with pytest.raises(NotPromotable, match="missing"):
        scored(model, tmp_path / "none.csv", format="csv")


def test_the_command_prints_or_writes_a_whole_file_or_none(of_columns: Path, tmp_path: Path) -> None:
    path, out = write_csv(tmp_path / "day.csv", SCORED), tmp_path / "new/scores.csv"
    command = ["score", str(of_columns), str(path), "--format", "csv"]
    printed = CliRunner().invoke(main, command)
    assert printed.exit_code == 0, printed.output
    assert [line.split(",")[0] for line in printed.stdout.splitlines()] == ["row", "1", "2", "3", "4"]
    written = CliRunner().invoke(main, [*command, "--out", str(out)])
    assert written.stdout == f"{out}: 4 rows scored\n"
    assert out.read_text() == printed.stdout
    write_csv(path, [*SCORED, ("n", "1", "cheap", "", "")])
    refused = CliRunner().invoke(main, [*command, "--out", str(out.with_name("other.csv"))])
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"ctrflow: {path}, line 7: column price: 'cheap'")
    assert [file.name for file in out.parent.iterdir()] == ["scores.csv"]
    refused = CliRunner().invoke(main, [*command, "--out", str(path)])
    assert refused.stderr == f"ctrflow: --out {path}: is an input; name another file\n"


def test_two_rows_at_a_time_are_the_same(of_columns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "day.csv", SCORED)
    whole = scored(of_columns, path, format="csv")
    monkeypatch.setattr(scoring, "ROWS_AT_ONCE", 3)
    assert scored(of_columns, path, format="csv") == whole
