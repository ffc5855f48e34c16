"""The preprocess step: a dataset that says what it holds, or one line and nothing left."""

import gzip
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.errors import InvalidConfig, InvalidRecords
from components.examples import encode_example
from components.framing import frame
from components.manifest import MANIFEST, Manifest, read_manifest, read_split
from components.preprocess.config import PreprocessConfig
from components.preprocess.fitting import TransformConfig
from components.preprocess.repeats import row_hashes
from components.preprocess.step import preprocess
from components.records import ENCODINGS, Batch, Encoding, concatenate, write_shard

Example = Callable[..., bytes]


def run(folder: Path, *inputs: Path | str, out: str = "dataset", **settings: Any) -> Manifest:
    config = PreprocessConfig(**{"format": "libsvm", **settings})
    return preprocess(config, [str(path) for path in inputs], folder / out, folder / "report.html")


def refusal(folder: Path, *inputs: Path | str, **settings: Any) -> str:
    """The one line of a refusal; nothing is left beside what was there before."""
    before = sorted(folder.rglob("*"))
    with pytest.raises((InvalidRecords, InvalidConfig)) as caught:
        run(folder, *inputs, **settings)
    assert sorted(folder.rglob("*")) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def libsvm(folder: Path, rows: int = 40, name: str = "in.libsvm") -> Path:
    """Rows that are all different, every fourth a click."""
    (folder / name).write_text("".join(f"{int(n % 4 == 0)} {n}:1 {50 + n % 7}:{n / 4}\n" for n in range(rows)))
    return folder / name


def shards(dataset: Path) -> dict[str, bytes]:
    return {str(path.relative_to(dataset)): path.read_bytes() for path in sorted(dataset.rglob("*.tfrecord"))}


def rows_of(dataset: Path, name: Any) -> Batch:
    manifest = read_manifest(dataset)
    return concatenate(read_split(dataset, manifest, name), manifest.schema.field_size)


def as_set(batch: Batch) -> list[tuple[Any, ...]]:
    return sorted((a, *b, *c) for a, b, c in zip(batch.labels.tolist(), batch.ids.tolist(), batch.values.tolist(), strict=True))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_row_is_in_one_split_unchanged(tmp_path: Path, encoding: Encoding) -> None:
    manifest = run(tmp_path, libsvm(tmp_path), encoding=encoding, validation_fraction=0.25)
    train, validation = rows_of(tmp_path / "dataset", "train"), rows_of(tmp_path / "dataset", "validation")
    assert (len(train), len(validation)) == (manifest.train.examples, manifest.validation.examples)
    assert 3 <= len(validation) <= 17, "each row is held out by itself with probability 0.25; this is 2.6 standard deviations"
    expected = [(float(n % 4 == 0), n, 50 + n % 7, 1.0, n / 4) for n in range(40)]
    assert as_set(concatenate([train, validation], 2)) == sorted(expected)
    assert train.ids[:, 0].tolist() != sorted(train.ids[:, 0].tolist()), "rows must be shuffled"


def test_the_manifest_says_what_the_rows_are(tmp_path: Path) -> None:
    path = libsvm(tmp_path)
    manifest = run(tmp_path, path, validation_fraction=0.25)
    assert manifest == read_manifest(tmp_path / "dataset")
    assert (manifest.schema.field_size, manifest.schema.feature_size) == (2, 57)
    statistics = manifest.statistics
    assert (statistics.smallest_id, statistics.largest_id) == (0, 56)
    assert (statistics.smallest_value, statistics.largest_value) == (0.0, 9.75)
    assert (statistics.click_rate, statistics.missing, statistics.distinct_ids_by_field) == (0.25, 0, (40, 7))
    assert manifest.train.positives + manifest.validation.positives == 10
    [source] = manifest.sources
    assert (source.path, source.rows, source.bytes) == (str(path), 40, path.stat().st_size)
    digest = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
    assert source.sha256 == digest
    assert "57 ids in the table" in (tmp_path / "report.html").read_text()


def test_shards_differ_by_one_row_at_most_and_none_is_empty(tmp_path: Path) -> None:
    manifest = run(tmp_path, libsvm(tmp_path, 12), shards=5, validation_fraction=0.2)
    sizes = [shard.examples for shard in manifest.train.shards]
    assert (len(sizes), sum(sizes)) == (5, manifest.train.examples)
    assert max(sizes) - min(sizes) <= 1 <= min(sizes)
    many = run(tmp_path, libsvm(tmp_path, 12), shards=100)
    assert [shard.examples for shard in many.train.shards] == [1] * many.train.examples
    for_workers = run(tmp_path, libsvm(tmp_path, 100), workers=3)
    assert (len(for_workers.train.shards), len(for_workers.validation.shards)) == (12, 3)


@pytest.mark.parametrize(("rows", "fraction"), [(2, 0.01), (2, 0.99), (3, 0.5), (20, 1e-9), (20, 1 - 1e-9)])
def test_neither_split_is_empty(tmp_path: Path, rows: int, fraction: float) -> None:
    manifest = run(tmp_path, libsvm(tmp_path, rows), validation_fraction=fraction)
    train, validation = rows_of(tmp_path / "dataset", "train"), rows_of(tmp_path / "dataset", "validation")
    assert (len(train), len(validation)) == (manifest.train.examples, manifest.validation.examples)
    assert min(len(train), len(validation)) >= 1
    assert sorted([*train.ids[:, 0], *validation.ids[:, 0]]) == list(range(rows))


def test_the_fraction_is_kept_within_what_chance_allows(tmp_path: Path) -> None:
    manifest = run(tmp_path, libsvm(tmp_path, 10_000), validation_fraction=0.2)
    # The standard deviation of 10,000 draws of 0.2 is 40.
    assert abs(manifest.validation.examples - 2000) < 4 * 40


def test_the_same_input_and_seed_give_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    path = libsvm(tmp_path)
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(tmp_path, path, out=out, seed=seed)
    assert shards(tmp_path / "a") == shards(tmp_path / "b")
    assert shards(tmp_path / "a").keys() == shards(tmp_path / "c").keys()
    assert shards(tmp_path / "a") != shards(tmp_path / "c")


def criteo_text(rows: int = 50) -> bytes:
    draw = random.Random(5)
    lines = []
    for _ in range(rows):
        counts = [draw.choice(["", str(draw.randrange(-2, 900))]) for _ in range(13)]
        categories = [draw.choice(["", f"{draw.randrange(2**32):08x}"]) for _ in range(26)]
        lines.append("\t".join([str(draw.randrange(2)), *counts, *categories]))
    return "\n".join([*lines, "1" + "\t" * 39, ""]).encode()


@pytest.mark.parametrize(
    ("format", "content"),
    [("criteo", criteo_text()), ("libsvm", "".join(f"{n % 2} {n}:1 {n + 50}:2\n" for n in range(50)).encode())],
)
def test_line_ends_marks_and_compression_give_identical_shards(tmp_path: Path, format: str, content: bytes) -> None:
    crlf = content.replace(b"\n", b"\r\n")
    twins = {
        "lf": content,
        "crlf": crlf,
        "crlf_noeol": crlf.removesuffix(b"\r\n"),
        "noeol": content.removesuffix(b"\n"),
        "bom": b"\xef\xbb\xbf" + content,
        "blank_tail": content + b"\n\n",
        "gz": gzip.compress(content),
        "members": gzip.compress(content[:777]) + gzip.compress(content[777:]),
    }
    for name, twin in twins.items():
        (tmp_path / f"{name}.txt").write_bytes(twin)
        run(tmp_path, tmp_path / f"{name}.txt", out=name, format=format)
        assert shards(tmp_path / name) == shards(tmp_path / "lf"), name


def test_what_looks_wrong_but_can_be_used_is_a_warning(tmp_path: Path) -> None:
    path = libsvm(tmp_path)
    (tmp_path / "copy.libsvm").write_bytes(path.read_bytes())
    manifest = run(tmp_path, path, tmp_path / "copy.libsvm", validation_fraction=0.5)
    assert f"{tmp_path}/copy.libsvm is a copy of {path}: its rows count twice and may stand in both splits" in manifest.warnings
    train = set(as_set(rows_of(tmp_path / "dataset", "train")))
    repeats = sum(row in train for row in as_set(rows_of(tmp_path / "dataset", "validation")))
    assert repeats == manifest.statistics.validation_rows_in_train > 0
    held_out = manifest.validation.examples
    assert f"{repeats} of {held_out} validation rows also stand in train: AUC on them flatters the model" in manifest.warnings
    assert all(warning in (tmp_path / "report.html").read_text() for warning in manifest.warnings)


@pytest.mark.parametrize(
    ("content", "settings", "sentence"),
    [
        ("0 0:1\n0 1:1\n0 2:1\n", {}, "the train split has only negative rows (2): AUC is undefined on it"),
        ("1 0:1\n1 1:1\n1 2:1\n", {}, "the validation split has only positive rows (1): AUC is undefined on it"),
        ("1 0:1\n0 6:1\n", {}, "feature_size 7 was taken from the largest id of this data"),
        ("1 1:1\n0 2:1\n", {}, "the smallest id is 1: if the ids of this source start at 1, give --id-base 1"),
    ],
)
def test_warnings(tmp_path: Path, content: str, settings: dict[str, Any], sentence: str) -> None:
    (tmp_path / "in").write_text(content)
    assert any(warning.startswith(sentence) for warning in run(tmp_path, tmp_path / "in", **settings).warnings)


def test_clean_data_with_a_declared_table_give_no_warning(tmp_path: Path) -> None:
    path = libsvm(tmp_path, 200)
    assert run(tmp_path, path, feature_size=200, validation_fraction=0.5).warnings == ()


def test_completed_criteo_rows_are_a_warning_and_missing_cells_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"1" + b"\t" * 13 + b"\n0" + b"\t" * 39 + b"\n")
    manifest = run(tmp_path, tmp_path / "in", format="criteo")
    assert "1 rows had fewer than 40 columns; the cells at their end were taken as missing" in manifest.warnings
    assert (manifest.statistics.missing, manifest.schema.feature_size) == (78, 200_052)


@pytest.fixture
def example() -> Example:
    """A serialized Example by TensorFlow itself; a list of floats or of ints decides the type of a feature."""

    def feature(values: list[Any]) -> Any:
        if all(isinstance(value, int) for value in values):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    def make(**features: list[Any]) -> bytes:
        row: dict[str, list[Any]] = {"label": [1.0], "ids": [0, 1], "values": [1.0, 2.0], **features}
        made = {name: feature(values) for name, values in row.items() if values}
        serialized: bytes = tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()
        return serialized

    return make


def test_tfrecords_of_tensorflow_become_the_same_rows(tmp_path: Path, example: Example) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "in.tfrecord")) as writer:
        for n in range(10):
            writer.write(example(label=[float(n % 2)], ids=[n + 1, 20], values=[0.5, float(n)]))
    run(tmp_path, tmp_path / "in.tfrecord", format="tfrecord", id_base=1, feature_size=20)
    rows = [*as_set(rows_of(tmp_path / "dataset", "train")), *as_set(rows_of(tmp_path / "dataset", "validation"))]
    assert sorted(rows) == sorted((float(n % 2), n, 19, 0.5, float(n)) for n in range(10))


def test_an_id_twice_in_a_record_is_a_warning(tmp_path: Path, example: Example) -> None:
    (tmp_path / "in").write_bytes(frame(example(ids=[3, 3])) + frame(example()))
    assert (
        "1 rows hold an id more than once; it counts once for each field"
        in run(tmp_path, tmp_path / "in", format="tfrecord").warnings
    )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"label": [2.0]}, "label 2 is neither 0 nor 1"),
        ({"label": [0.5]}, "label 0.5 is neither 0 nor 1"),
        ({"label": [float("nan")]}, "label nan is neither 0 nor 1"),
        ({"label": [1]}, "label is int64, float wanted"),
        ({"label": []}, "no feature label; found ids, values, wanted ids, label, values"),
        ({"label": [0.0, 1.0]}, "label has 2 of 1 elements"),
        ({"ids": [0, 40]}, "id 40 is outside 0..39; raise --feature-size or check --id-base"),
        ({"ids": [-1, 4]}, "id -1 is outside 0..39; check --id-base"),
        ({"ids": [-(2**63), 4]}, "id -9223372036854775808 is outside 0..39; check --id-base"),
        ({"ids": [0, 2**63 - 1]}, "id 9223372036854775807 is outside 0..39"),
        ({"ids": [0.0, 1.0]}, "ids is float, int64 wanted"),
        ({"ids": [1, 2, 3]}, "ids has 3 of 2 elements"),
        ({"values": [1.0]}, "values has 1 of 2 elements"),
        ({"values": [1.0, float("nan")]}, "value nan of id 1 is not finite"),
        ({"values": [float("-inf"), 1.0]}, "value -inf of id 0 is not finite"),
        ({"values": [1, 2]}, "values is int64, float wanted"),
    ],
)
def test_a_wrong_example_is_named_by_file_and_record(tmp_path: Path, example: Example, wrong: Any, reason: str) -> None:
    payloads = [example(), example(), example(**wrong), example(), example(label=[7.0])]
    (tmp_path / "in").write_bytes(b"".join(map(frame, payloads)) + b"trailing damage")
    message = refusal(tmp_path, tmp_path / "in", format="tfrecord", feature_size=40)
    assert message.startswith(f"{tmp_path}/in, record 2")
    assert reason in message


def test_an_id_is_named_as_it_stands_in_a_1_based_file(tmp_path: Path, example: Example) -> None:
    (tmp_path / "in").write_bytes(frame(example(ids=[1, 2])) + frame(example(ids=[0, 2])))
    message = refusal(tmp_path, tmp_path / "in", format="tfrecord", feature_size=40, id_base=1)
    assert message == f"{tmp_path}/in, record 1: id 0 is outside 1..40; check --id-base"


def damaged(position: int) -> Callable[[bytes], bytes]:
    return lambda good: good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]


RECORD_BYTES = len(frame(encode_example(1.0, np.array([0, 1]), np.array([1, 1], np.float32))))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda good: good[:-3], "record 2: the file ends inside the record"),
        (lambda good: good[: -RECORD_BYTES + 5], "record 2: the file ends inside the record's header"),
        (lambda good: good + b"garbage at the end", "record 3: damaged length"),
        (damaged(2 * RECORD_BYTES), "record 2: damaged length"),
        (damaged(RECORD_BYTES + 20), "record 1: damaged payload"),
        (damaged(RECORD_BYTES - 1), "record 0: damaged payload"),
        (gzip.compress, "record 0: gzip-compressed"),
        (lambda _: b"<Error><Code>AccessDenied</Code></Error>", "record 0: not a TFRecord file"),
        (lambda _: b"1 1:1 2:1\n", "record 0: not a TFRecord file"),
        (lambda good: good + frame(b"\xff not an example"), "record 3 is not a tf.train.Example"),
        (lambda good: good + frame(b""), "record 3 is not a tf.train.Example: it has no features"),
        (lambda _: frame(b""), "record 0 is not a tf.train.Example"),
        (lambda _: b"", "the file is empty (0 bytes)"),
    ],
)
def test_a_damaged_tfrecord_is_named_by_file_and_record(tmp_path: Path, damage: Callable[[bytes], bytes], reason: str) -> None:
    good = frame(encode_example(1.0, np.array([0, 1]), np.array([1, 1], np.float32))) * 3
    (tmp_path / "in").write_bytes(damage(good))
    message = refusal(tmp_path, tmp_path / "in", format="tfrecord")
    assert message.startswith(f"{tmp_path}/in")
    assert reason in message


def test_a_shard_of_blocks_is_called_by_its_name(tmp_path: Path) -> None:
    batch = Batch(labels=np.zeros(2, np.float32), ids=np.zeros((2, 2), np.int64), values=np.ones((2, 2), np.float32))
    write_shard(tmp_path / "part.tfrecord", batch, "blocks")
    message = refusal(tmp_path, tmp_path / "part.tfrecord", format="tfrecord")
    assert message.startswith(f"{tmp_path}/part.tfrecord, record 0 is a ctrflow block, not a tf.train.Example")


def test_feature_names_that_would_spoil_the_line_are_escaped(tmp_path: Path, example: Example) -> None:
    (tmp_path / "in").write_bytes(frame(example(label=[], **{"a\nb": [1], "c" * 999: [1]})))
    message = refusal(tmp_path, tmp_path / "in", format="tfrecord")
    assert "found 'a\\nb', " + "c" * 40 + ", ids, values" in message


@pytest.mark.parametrize(
    ("format", "content", "reason"),
    [
        ("libsvm", b"", "the file is empty (0 bytes)"),
        ("libsvm", b"\n\n", "no rows in it"),
        ("libsvm", gzip.compress(b""), "no rows in it"),
        ("criteo", b"\n \n", "no rows in it"),
        ("criteo", b"\xef\xbb\xbf", "no rows in it"),
        ("libsvm", b"1 1:1\n", "1 rows in all: at least 2 are needed"),
        ("libsvm", b"1 1:1\n0 1:1 2:1\n", ", line 2: 2 fields, field_size is 1"),
        ("libsvm", b"1 1:1\n0 x:1\n", ", line 2: 'x:1' is not id:value"),
        ("libsvm", b"1 0:1:1\n", ", line 1: '0:1:1' looks like LibFFM"),
        ("libsvm", criteo_text(), ", line 1: "),
        ("criteo", b"1 1:1\n0 2:1\n", "this looks like LibSVM (label id:value), use --format libsvm"),
        ("libsvm", b"1 1:1\r0 2:1\r", ", line 1: a carriage return inside the line (no line feed found"),
        ("libsvm", b"1 1:1\n\0\0\0\n", ", line 2: a NUL byte"),
        ("criteo", gzip.compress(criteo_text())[:-20], ": compressed file ended early after line"),
        ("libsvm", frame(encode_example(1.0, np.array([0]), np.ones(1, np.float32))), "looks like a TFRecord file"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path, format: str, content: bytes, reason: str) -> None:
    (tmp_path / "in").write_bytes(content)
    message = refusal(tmp_path, tmp_path / "in", format=format)
    assert reason in message
    if "rows in all" not in reason:
        assert message.startswith(f"{tmp_path}/in")


def test_a_bad_file_after_good_ones_is_the_one_named_and_an_earlier_dataset_stays(tmp_path: Path) -> None:
    good = libsvm(tmp_path)
    run(tmp_path, good)
    before = shards(tmp_path / "dataset")
    (tmp_path / "worse.libsvm").write_text("1 3:1 50:1\n1 3:1 50:1e99\n")
    message = refusal(tmp_path, good, tmp_path / "worse.libsvm")
    assert message == f"{tmp_path}/worse.libsvm, line 2: value in '50:1e99' is not finite as float32"
    assert shards(tmp_path / "dataset") == before


def test_a_rerun_replaces_the_dataset(tmp_path: Path) -> None:
    run(tmp_path, libsvm(tmp_path, 40), shards=8)
    run(tmp_path, libsvm(tmp_path, 20), shards=2)
    manifest = read_manifest(tmp_path / "dataset")
    assert manifest.train.examples + manifest.validation.examples == 20
    assert len(shards(tmp_path / "dataset")) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "in.libsvm", "report.html"]


def test_a_folder_that_is_no_dataset_is_not_replaced(tmp_path: Path) -> None:
    path = libsvm(tmp_path)
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset/thesis.txt").write_text("years of work")
    assert f"{tmp_path}/dataset: exists and is not an earlier output (no {MANIFEST} in it)" in refusal(tmp_path, path)


def test_a_report_that_cannot_be_written_leaves_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    assert refusal(tmp_path, libsvm(tmp_path)) == f"{tmp_path}/report.html: is a folder; name the file for the report"


def test_input_inside_the_output_is_refused(tmp_path: Path) -> None:
    run(tmp_path, libsvm(tmp_path), encoding="examples")
    message = refusal(tmp_path, tmp_path / "dataset/train", format="tfrecord")
    assert message.startswith(f"{tmp_path}/dataset: holds the input {tmp_path}/dataset/train/part-00000.tfrecord")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("format", ["libsvm", "criteo", "tfrecord"])
def test_a_file_that_may_not_be_read_is_one_line(tmp_path: Path, format: str) -> None:
    path = libsvm(tmp_path)
    path.chmod(0)
    assert refusal(tmp_path, path, format=format) == f"{path}: cannot be read (Permission denied)"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that fails when it is read")
@pytest.mark.parametrize("format", ["libsvm", "criteo", "tfrecord"])
def test_a_file_that_fails_while_it_is_read_is_one_line(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Reads of address 0 fail with EIO. Files of /proc have no size, so the empty check is stood in for by a listing.
    monkeypatch.setattr("components.preprocess.step.input_files", lambda inputs: [Path(inputs[0])])
    assert refusal(tmp_path, "/proc/self/mem", format=format) == "/proc/self/mem: cannot be read (Input/output error)"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"format": "avro"}, "format 'avro' is none of criteo, libsvm, tfrecord"),
        ({"encoding": "parquet"}, "encoding 'parquet' is none of blocks, examples"),
        ({"validation_fraction": 0.0}, "validation_fraction 0.0: must be between 0 and 1"),
        (
            {"format": "csv", "columns": "label=a; numeric=b", "split_by": "time", "split_column": "t", "validation_fraction": 0.1},
            "validation_fraction 0.1: with split by time, times decide; leave --validation-fraction out",
        ),
        ({"validation_fraction": 1.0}, "validation_fraction 1.0: must be between 0 and 1"),
        ({"validation_fraction": float("nan")}, "validation_fraction nan: must be between 0 and 1"),
        ({"shards": -1}, "shards -1: must not be negative"),
        ({"workers": 0}, "workers 0: at least 1 is needed"),
        ({"workers": 3, "shards": 4}, "shards 4: --workers 3 chooses their number; leave one of them out"),
        ({"seed": -1}, "seed -1: must not be negative"),
        ({"field_size": -1}, "field_size -1: must not be negative"),
        ({"feature_size": 2**31}, "feature_size 2147483648: must be in 1..2147483647"),
        ({"id_base": 2}, "id_base 2: must be 0 or 1"),
        ({"format": "criteo", "id_base": 1}, "id_base 1: criteo rows hold no ids"),
        ({"format": "criteo", "field_size": 13}, "field_size 13: criteo rows have 39 fields"),
        ({"format": "criteo", "feature_size": 52}, "feature_size 52: criteo needs more than 52"),
        (
            {"format": "criteo", "feature_size": 999, "transform": "t.json"},
            "feature_size 999: other settings",
        ),
        ({"format": "criteo", "feature_size": 999, "fitting": TransformConfig(hash_size=9)}, "feature_size 999: other settings"),
        ({"format": "criteo", "feature_size": 999, "fitting": TransformConfig(categories="vocabulary")}, "feature_size 999: other"),
    ],
)
def test_a_wrong_setting_is_refused_before_any_file_is_read(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        PreprocessConfig(**{"format": "libsvm", **settings})


def test_rows_have_equal_hashes_exactly_when_they_are_equal() -> None:
    random = np.random.default_rng(2)
    batch = Batch(
        labels=random.integers(0, 2, 5000).astype(np.float32),
        ids=random.integers(0, 4, (5000, 3)),
        values=random.integers(0, 3, (5000, 3)).astype(np.float32),
    )
    hashes = row_hashes(batch).tolist()
    rows = list(zip(batch.labels.tolist(), map(tuple, batch.ids.tolist()), map(tuple, batch.values.tolist()), strict=True))
    assert len(set(hashes)) == len(set(rows)) == len(set(zip(hashes, rows, strict=True)))
