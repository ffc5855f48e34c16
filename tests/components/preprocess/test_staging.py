"""Input from s3://: the same dataset as from local files, and no word of the folder into which it was fetched."""

import gzip
import json
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from kfp import dsl

from components.errors import InvalidConfig, InvalidRecords
from components.examples import encode_example
from components.framing import frame
from components.manifest import Manifest, read_manifest
from components.preprocess.component import preprocess as component
from components.preprocess.config import PreprocessConfig
from components.preprocess.reading import readable
from components.preprocess.staging import staged_file
from components.preprocess.step import preprocess

COLUMNS = "label=y; numeric=n; categorical=c"


def libsvm(first: int) -> bytes:
    return "".join(f"{n % 2} {n}:1 {50 + n % 7}:{n / 4}\n" for n in range(first, first + 20)).encode()


def table(first: int, form: str) -> bytes:
    rows = [(n % 2, n / 4, f"token {n % 3}") for n in range(first, first + 20)]
    if form == "csv":
        return "\n".join(["y,n,c", *(f"{y},{n},{c}" for y, n, c in rows)]).encode()
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.table(dict(zip("ync", zip(*rows, strict=True), strict=True))), sink)
    return bytes(sink.getvalue())


def records(first: int) -> bytes:
    made = (encode_example(float(n % 2), np.array([n, 50]), np.float32([1, n])) for n in range(first, first + 20))
    return b"".join(map(frame, made))


FILES: dict[str, Callable[[int], bytes]] = {
    "libsvm": libsvm,
    "tfrecord": records,
    "csv": lambda first: table(first, "csv"),
    "parquet": lambda first: table(first, "parquet"),
}


def settings_of(source_format: str) -> dict[str, Any]:
    return {"format": source_format, "columns": COLUMNS if source_format in ("csv", "parquet") else ""}


def run(folder: Path, inputs: list[str], **settings: Any) -> Manifest:
    return preprocess(PreprocessConfig(**settings), inputs, folder / "dataset", folder / "report.html")


@pytest.mark.parametrize("source_format", FILES)
def test_the_dataset_is_that_of_local_files(tmp_path: Path, s3: Any, caplog: pytest.LogCaptureFixture, source_format: str) -> None:
    caplog.set_level(logging.INFO)
    for number in (0, 1):
        content = FILES[source_format](number * 20)
        packed = gzip.compress(content, mtime=0) if source_format in ("libsvm", "csv") else content
        (tmp_path / "local" / f"day={number}").mkdir(parents=True)
        (tmp_path / "local" / f"day={number}" / "part-0").write_bytes(packed)
        s3.put_object(Bucket="clicks", Key=f"logs/day={number}/part-0", Body=packed)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    chosen = {**settings_of(source_format), "processes": 2 if source_format in ("libsvm", "csv") else 1}
    local = run(tmp_path / "a", [str(tmp_path / "local/day=*/part-*")], **chosen)
    caplog.clear()
    remote = run(tmp_path / "b", ["s3://clicks/logs/day=*/part-*"], **chosen)
    assert [source.path for source in remote.sources] == [f"s3://clicks/logs/day={number}/part-0" for number in (0, 1)]
    renamed = [replace(source, path=other.path) for source, other in zip(remote.sources, local.sources, strict=True)]
    assert replace(remote, sources=tuple(renamed)) == local
    assert remote == read_manifest(tmp_path / "b/dataset")
    for path in (tmp_path / "a/dataset").rglob("part-*"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["dataset", "report.html"]
    assert "s3://clicks/logs/day=0/part-0" in (tmp_path / "b/report.html").read_text()
    assert "read s3://clicks/logs/day=0/part-0: 20 rows" in caplog.text
    everything_said = caplog.text + (tmp_path / "b/report.html").read_text() + (tmp_path / "b/dataset/manifest.json").read_text()
    assert ".scratch." not in everything_said


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("source_format", "content", "reason"),
    [
        ("libsvm", libsvm(0) + b"1 1:1 2:nan\n", ", line 21: "),
        ("criteo", b"1\t2\n", ", line 1: "),
        ("tfrecord", records(0)[:-1], ", record 19: the file ends inside the record"),
        ("csv", table(0, "csv") + b"\n1,x,a\n", ", line 22: column n: 'x' is not a number"),
        ("csv", b"y,n\n1,2\n", ": no column 'c'"),
        ("parquet", table(0, "parquet")[:-1], ": the Parquet file is cut off"),
        ("libsvm", gzip.compress(libsvm(0))[:-4], ": compressed file ended early after line 20"),
    ],
)
def test_what_is_wrong_is_named_by_its_uri_and_nothing_is_left(
    tmp_path: Path, s3: Any, source_format: str, content: bytes, reason: str, processes: int
) -> None:
    s3.put_object(Bucket="clicks", Key="day1", Body=content)
    with pytest.raises(InvalidRecords) as caught:
        run(tmp_path, ["s3://clicks/day1"], **settings_of(source_format), processes=processes)
    assert str(caught.value).startswith(f"s3://clicks/day1{reason}")
    assert ".scratch." not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_object_that_cannot_be_fetched_leaves_nothing_and_the_former_dataset(tmp_path: Path, s3: Any) -> None:
    s3.put_object(Bucket="clicks", Key="day1", Body=libsvm(0))
    former = run(tmp_path, ["s3://clicks/day1"], format="libsvm")
    with pytest.raises(InvalidConfig, match="with one whole bucket name"):
        run(tmp_path, ["s3://clicks/day1", "s3://*/day2"], format="libsvm")
    with pytest.raises(InvalidRecords, match="s3://nobodys/day2: no such bucket"):
        run(tmp_path, ["s3://clicks/day1", "s3://nobodys/day2"], format="libsvm")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "report.html"]
    assert read_manifest(tmp_path / "dataset") == former


def test_local_files_and_objects_stand_in_the_order_of_the_arguments(tmp_path: Path, s3: Any) -> None:
    (tmp_path / "day2").write_bytes(libsvm(20))
    for key, first in (("day1", 0), ("day3", 40)):
        s3.put_object(Bucket="clicks", Key=key, Body=libsvm(first))
    inputs = ["s3://clicks/day3", str(tmp_path / "day2"), "s3://clicks/*"]
    manifest = run(tmp_path, inputs, format="libsvm")
    assert [source.path for source in manifest.sources] == ["s3://clicks/day3", str(tmp_path / "day2"), "s3://clicks/day1"]


def test_a_changed_object_is_noticed_under_its_uri(tmp_path: Path, s3: Any, caplog: pytest.LogCaptureFixture) -> None:
    for first in (0, 20):
        s3.put_object(Bucket="clicks", Key="day1", Body=libsvm(first))
        run(tmp_path, ["s3://clicks/day1"], format="libsvm")
    assert "the input differs from that of the dataset that this one replaces: 1 changed (s3://clicks/day1)" in caplog.text


def test_the_pipelines_step_takes_them_as_they_are(tmp_path: Path, s3: Any) -> None:
    s3.put_object(Bucket="clicks", Key="logs/day1", Body=libsvm(0))

    class Artifact:
        def __init__(self, path: Path) -> None:
            self.path = str(path)

    component.python_func(
        inputs=json.dumps(["s3://clicks/logs"]),
        settings='{"format": "libsvm"}',
        store=str(tmp_path / "models"),
        name="deepfm",
        run_date="",
        days=1,
        data_limits="{}",
        dataset=Artifact(tmp_path / "dataset"),
        champion_dataset=Artifact(tmp_path / "champion"),
        metrics=dsl.Metrics(),
        report=Artifact(tmp_path / "report"),
    )
    assert [source.path for source in read_manifest(tmp_path / "dataset").sources] == ["s3://clicks/logs/day1"]


def test_local_input_loads_no_boto3(tmp_path: Path) -> None:
    (tmp_path / "day1").write_bytes(libsvm(0))
    program = (
        "import sys; from pathlib import Path; from components.preprocess.step import preprocess\n"
        "from components.preprocess.config import PreprocessConfig\n"
        "preprocess(PreprocessConfig(format='libsvm'), ['day1'], Path('dataset'), Path('report.html'))\n"
        "assert 'boto3' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_a_staged_file_opens_what_was_fetched_and_is_called_by_its_uri(tmp_path: Path) -> None:
    (tmp_path / "00000").write_bytes(b"rows")
    file = staged_file(tmp_path / "00000", "s3://clicks/day1")
    for each in (file, pickle.loads(pickle.dumps(file))):
        assert (str(each), f"{each}", os.fspath(each)) == ("s3://clicks/day1", "s3://clicks/day1", str(tmp_path / "00000"))
        assert each.read_bytes() == b"rows"
        assert each.stat().st_size == 4
    assert str(file.resolve()) == str((tmp_path / "00000").resolve())
    assert str(file.parent) == str(tmp_path)
    with (
        pytest.raises(InvalidRecords, match=r"^s3://clicks/day2: cannot be read"),
        readable(file, staged_file("gone", "s3://clicks/day2")),
    ):
        staged_file("gone", "s3://clicks/day2").read_bytes()
