"""Rows divided by a column and negative ones left out, through the whole step: which row goes where is worked out by hand."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from components.errors import InvalidConfig, InvalidRecords
from components.manifest import HeldOut, Manifest, read_manifest, read_split
from components.preprocess.config import PreprocessConfig
from components.preprocess.fitting import TransformConfig
from components.preprocess.step import preprocess
from components.preprocess.transform_file import read_transform
from components.records import concatenate

COLUMNS = "label=click; numeric=n; categorical=user"
# The number of a row, its click, its user, and its time.
Row = tuple[int, int, str, str | int | float]
BY_TIME = {"split_by": "time", "split_column": "at"}
BY_USER = {"split_by": "hash", "split_column": "user", "columns": f"{COLUMNS}; ignored=at"}


def days(count: int = 90) -> list[Row]:
    """Rows of three days, in turn, of ten users; every third is a click."""
    return [(n, int(n % 3 == 0), f"u{n % 10}", f"2026-12-0{1 + n % 3} {n % 24:02d}:30:00") for n in range(count)]


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("n,click,user,at\n" + "".join(f"{n},{click},{user},{at}\n" for n, click, user, at in rows))
    return path


def write_parquet(path: Path, rows: Sequence[Row]) -> Path:
    n, click, user, at = zip(*rows, strict=True)
    pyarrow.parquet.write_table(pa.table({"n": n, "click": click, "user": user, "at": at}), path)
    return path


def write_examples(path: Path, rows: Sequence[Row]) -> Path:
    def text(value: str) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))

    def number(value: int) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    with tf.io.TFRecordWriter(str(path)) as writer:
        for n, click, user, at in rows:
            features = {
                "n": number(n),
                "click": number(click),
                "user": text(user),
                "at": text(at) if isinstance(at, str) else number(int(at)),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return path


def made(folder: Path, source: Path, **settings: Any) -> Manifest:
    config = PreprocessConfig(**{"format": "csv", "columns": COLUMNS, **settings})
    return preprocess(config, [str(source)], folder, folder.with_suffix(".html"))


def refusal(folder: Path, source: Path, **settings: Any) -> str:
    """The one line of a refusal, which leaves nothing."""
    before = sorted(folder.iterdir())
    with pytest.raises((InvalidRecords, InvalidConfig)) as caught:
        made(folder / "refused", source, **settings)
    assert sorted(folder.iterdir()) == before
    return str(caught.value).replace(f"{folder}/", "")


def numbers(folder: Path, name: Any) -> list[int]:
    """The rows of a split by their numbers, of which ln(1 + n) is stored."""
    manifest = read_manifest(folder)
    batch = concatenate(read_split(folder, manifest, name), manifest.schema.field_size)
    return sorted(np.rint(np.expm1(batch.values[:, 0])).astype(int).tolist())


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("source_format", "write"), [("csv", write_csv), ("parquet", write_parquet), ("tfrecord", write_examples)])
def test_the_last_day_validates_in_every_table(tmp_path: Path, source_format: str, write: Callable[..., Path]) -> None:
    source = write(tmp_path / "days", days())
    vocabulary = TransformConfig(categories="vocabulary", min_count=1)
    manifest = made(tmp_path / "data", source, format=source_format, fitting=vocabulary, **BY_TIME)
    assert numbers(tmp_path / "data", "validation") == list(range(2, 90, 3))
    assert numbers(tmp_path / "data", "train") == [n for n in range(90) if n % 3 != 2]
    assert manifest.held_out == HeldOut(by="time", column="at", boundary="2026-12-03")
    transform = read_transform(tmp_path / "data" / "transform.json")
    assert transform.rows == 60
    assert transform.columns.split is None
    assert "validation: the rows from 2026-12-03 on, by column at." in (tmp_path / "data.html").read_text()


@pytest.mark.parametrize(("source_format", "write"), [("csv", write_csv), ("parquet", write_parquet), ("tfrecord", write_examples)])
def test_a_number_that_the_model_sees_may_also_be_the_time(tmp_path: Path, source_format: str, write: Callable[..., Path]) -> None:
    midnight = 1_796_083_200  # 2026-12-01, by date -d
    rows: list[Row] = [(n, 0, "u", midnight + 86_400 * (n % 3) - 0.5 * (n > 5)) for n in range(9)]
    columns = "label=click; numeric=n,at; categorical=user"
    manifest = made(tmp_path / "data", write(tmp_path / "days", rows), format=source_format, columns=columns, **BY_TIME)
    assert manifest.held_out == HeldOut(by="time", column="at", boundary="2026-12-03")
    assert (manifest.schema.field_size, numbers(tmp_path / "data", "validation")) == (3, [2, 5])


def test_a_boundary_is_taken_as_it_is_declared(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "days.csv", days())
    manifest = made(tmp_path / "data", source, **BY_TIME, split_boundary="2026-12-03T10:00:00+01:00")
    # 09:00 of the third day in UTC: rows whose hour is 9 or later.
    assert numbers(tmp_path / "data", "validation") == [n for n in range(2, 90, 3) if n % 24 >= 9]
    assert manifest.held_out.boundary == "2026-12-03T09:00:00Z"


def test_all_rows_of_a_text_stand_on_one_side_on_every_day(tmp_path: Path) -> None:
    first, second = days(60), [(n + 100, click, user, at) for n, click, user, at in days(60)[::-1]]
    for name, rows in (("monday", first), ("tuesday", second)):
        manifest = made(tmp_path / name, write_csv(tmp_path / f"{name}.csv", rows), **BY_USER, validation_fraction=0.4)
        assert manifest.held_out == HeldOut(by="hash", fraction=0.4, column="user")
    held_out = {n % 10 for n in numbers(tmp_path / "monday", "validation")}
    assert 1 <= len(held_out) <= 9
    assert numbers(tmp_path / "monday", "validation") == [n for n in range(60) if n % 10 in held_out]
    assert numbers(tmp_path / "tuesday", "validation") == [n + 100 for n in range(60) if n % 10 in held_out]
    made(tmp_path / "other", tmp_path / "monday.csv", **BY_USER, validation_fraction=0.4, seed=7)
    assert {n % 10 for n in numbers(tmp_path / "other", "validation")} != held_out


def test_a_transform_of_another_day_is_used_with_any_split(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "days.csv", days())
    made(tmp_path / "first", source, columns=f"{COLUMNS}; ignored=at")
    made(tmp_path / "later", source, **BY_TIME, transform=str(tmp_path / "first" / "transform.json"))
    assert numbers(tmp_path / "later", "validation") == list(range(2, 90, 3))
    assert (tmp_path / "later/transform.json").read_bytes() == (tmp_path / "first/transform.json").read_bytes()


@pytest.mark.parametrize(
    ("source_format", "write", "place"),
    [
        ("csv", write_csv, "days, line 32"),
        ("parquet", write_parquet, "days, row 30"),
        ("tfrecord", write_examples, "days, record 30"),
    ],
)
def test_a_row_whose_time_cannot_be_read_is_a_bad_row(
    tmp_path: Path, source_format: str, write: Callable[..., Path], place: str
) -> None:
    rows = days()
    rows[30], rows[31] = (30, 1, "u0", "noon"), (31, 0, "u1", "")
    source = write(tmp_path / "days", rows)
    said = refusal(tmp_path, source, format=source_format, **BY_TIME)
    wanted = "a time is ISO 8601 (2026-12-02, 2026-12-02T10:30:00Z) or unix seconds, not milliseconds"
    assert said == f"{place}: column at: 'noon' is no time; {wanted}"
    manifest = made(tmp_path / "data", source, format=source_format, **BY_TIME, on_bad_row="skip")
    assert (manifest.sources[0].rows, manifest.sources[0].rejected) == (88, {"time": 2})
    rows[30] = (30, 1, "u0", "")
    said = refusal(tmp_path, write(tmp_path / "days", rows), format=source_format, **BY_TIME, split_boundary="2026-12-02")
    assert said == f"{place}: column at: the time is missing"


def test_the_first_bad_row_is_named_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    rows = days()
    rows[20], rows[10] = (20, 1, "u0", "noon"), (10, 7, "u0", rows[10][3])
    assert refusal(tmp_path, write_csv(tmp_path / "days.csv", rows), **BY_TIME).startswith("days.csv, line 12: ")


@pytest.mark.parametrize(
    ("rows", "settings", "said"),
    [
        (days(), {**BY_TIME, "split_boundary": "2026-12-04"}, "so no row is left to validate when those from 2026-12-04 on"),
        (days(), {**BY_TIME, "split_boundary": "2026-12-01"}, "so no row is left to train when those from 2026-12-01 on"),
        (days()[::3], BY_TIME, "times are from 2026-12-01T00:30:00Z to 2026-12-01T21:30:00Z, so no row is left to train"),
        ([(n, 0, "u", "") for n in range(9)], BY_USER, "column user: no row is left to validate, because too few texts"),
        (days(), {"split_by": "time", "split_column": "hour"}, "days.csv: no column 'hour'; columns found: n,click,user,at"),
        (
            days(),
            {"split_by": "hash", "split_column": "n"},
            "split 'n' is numeric; its text is needed, make it categorical or ignored",
        ),
        (
            days(),
            {"split_by": "time", "split_column": "n", "columns": f"{COLUMNS}; ignored=at"},
            "days.csv, line 2: column n: '0' is no time; a time is ISO 8601",
        ),
    ],
    ids=["after", "before", "one day", "one text", "no such column", "number", "numbers that are no times"],
)
def test_a_split_that_cannot_be_made_is_refused(tmp_path: Path, rows: list[Row], settings: dict[str, Any], said: str) -> None:
    assert said in refusal(tmp_path, write_csv(tmp_path / "days.csv", rows), **settings)


@pytest.mark.parametrize("source_format", ["libsvm", "libffm", "tfrecord"])
def test_a_column_without_a_name_divides_nothing(source_format: Any) -> None:
    with pytest.raises(InvalidConfig, match=f"split by time: columns of format {source_format} have no names"):
        PreprocessConfig(format=source_format, **BY_TIME)


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.5, float("nan")])
def test_a_rate_of_negative_rows_is_a_share(rate: float) -> None:
    with pytest.raises(InvalidConfig, match="must be above 0 and at most 1"):
        PreprocessConfig(format="libsvm", negative_rate=rate)


def write_libsvm(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(f"{click} 0:{np.log1p(n)} {1 + int(user[1:])}:1\n" for n, click, user, _ in rows))
    return path


@pytest.mark.parametrize(
    ("settings", "write"),
    [
        ({"format": "libsvm", "columns": "", "feature_size": 11}, write_libsvm),
        ({"columns": f"{COLUMNS}; ignored=at"}, write_csv),
        ({"format": "parquet", **BY_TIME}, write_parquet),
    ],
    ids=["libsvm", "csv", "parquet by time"],
)
def test_a_share_of_the_negative_training_rows_stays(tmp_path: Path, settings: Any, write: Callable[..., Path]) -> None:
    source = write(tmp_path / "days", days(3000))
    whole = made(tmp_path / "whole", source, **settings)
    manifest = made(tmp_path / "sampled", source, **settings, negative_rate=0.25)
    assert numbers(tmp_path / "sampled", "validation") == numbers(tmp_path / "whole", "validation")
    before, after = set(numbers(tmp_path / "whole", "train")), set(numbers(tmp_path / "sampled", "train"))
    assert {n for n in before if n % 3 == 0} == {n for n in after if n % 3 == 0}
    negatives = [sum(n % 3 != 0 for n in rows) for rows in (before, after)]
    # Three standard deviations of a draw of 0.25 each.
    assert abs(negatives[1] - 0.25 * negatives[0]) < 3 * np.sqrt(0.25 * 0.75 * negatives[0])
    assert after < before
    [source_found] = manifest.sources
    assert (source_found.rows, source_found.left_out) == (3000 - (negatives[0] - negatives[1]), negatives[0] - negatives[1])
    assert (whole.negative_sampling_rate, manifest.negative_sampling_rate) == (1.0, 0.25)
    assert manifest.train.positives == whole.train.positives
    page = (tmp_path / "sampled.html").read_text()
    assert f"0.25 of the negative training rows were kept, {source_found.left_out:,} left out" in page


def test_a_vocabulary_holds_tokens_of_rows_that_stay(tmp_path: Path) -> None:
    rows = [(n, int(n % 5 == 0), f"u{n}", "") for n in range(500)]
    vocabulary = TransformConfig(categories="vocabulary", min_count=1)
    source, columns = write_csv(tmp_path / "day.csv", rows), f"{COLUMNS}; ignored=at"
    manifest = made(tmp_path / "data", source, columns=columns, fitting=vocabulary, negative_rate=0.1)
    [_, user] = manifest.statistics.columns
    assert (user.name, user.distinct, user.unseen) == ("user", manifest.train.examples, manifest.validation.examples)


def test_rows_that_are_all_left_out_are_refused(tmp_path: Path) -> None:
    source = write_libsvm(tmp_path / "day", [(n, 0, "u1", "") for n in range(30)])
    said = refusal(tmp_path, source, format="libsvm", columns="", negative_rate=1e-9)
    assert said.startswith("no row is left to train: ")
    assert said.endswith(" negative ones were left out; raise --negative-rate")


def write_criteo(path: Path, rows: Sequence[Row]) -> Path:
    """The number in I1, the user in C1 (of any bytes), the time in C26."""
    filled = "\t" * 12
    lines = [f"{click}\t{n}{filled}\t{user}\xff{chr(9) * 25}{at}\n" for n, click, user, at in rows]
    path.write_bytes("".join(lines).encode("latin-1"))
    return path


def test_raw_criteo_is_divided_by_its_categories(tmp_path: Path) -> None:
    source, criteo = write_criteo(tmp_path / "day.tsv", days(60)), {"format": "criteo", "columns": ""}
    made(tmp_path / "time", source, **criteo, split_by="time", split_column="C26")
    assert numbers(tmp_path / "time", "validation") == list(range(2, 60, 3))
    made(tmp_path / "hash", source, **criteo, split_by="hash", split_column="C1", validation_fraction=0.4, negative_rate=0.5)
    users = {n % 10 for n in numbers(tmp_path / "hash", "validation")}
    assert numbers(tmp_path / "hash", "validation") == [n for n in range(60) if n % 10 in users]
    said = refusal(tmp_path, source, **criteo, split_by="time", split_column="I1")
    assert "split 'I1': rows of criteo are divided by one of 26 columns, C1, C2" in said


@pytest.mark.parametrize("settings", [BY_TIME, {**BY_USER, "validation_fraction": 0.4}], ids=["time", "hash"])
def test_the_bytes_do_not_depend_on_processes(tmp_path: Path, settings: dict[str, Any]) -> None:
    # Three batches of 16,384 rows, so that each process has some.
    source = write_parquet(tmp_path / "days", days(40_000))
    vocabulary = TransformConfig(categories="vocabulary")
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        made(folder, source, format="parquet", fitting=vocabulary, negative_rate=0.5, processes=processes, **settings)
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")
