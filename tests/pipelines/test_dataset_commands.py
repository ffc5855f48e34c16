"""ctrflow dataset as a user types it: what is printed, and the exit code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, ctrflow: Run) -> Path:
    """A folder with `dataset`, of 40 rows, of which every fourth is a click."""
    folder = tmp_path_factory.mktemp("datasets")
    (folder / "in.libsvm").write_text("".join(f"{int(n % 4 == 0)} {n}:1 {50 + n % 7}:{n / 4}\n" for n in range(40)))
    done = ctrflow("preprocess", "in.libsvm", "dataset", "--format", "libsvm", "--feature-size", 57, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_show_prints_text_rows_and_a_document(ctrflow: Run, folder: Path) -> None:
    done = ctrflow("dataset", "show", "dataset", "--rows", 3, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "dataset: 40 rows of 2 fields, 25.00% clicks, 57 ids in the table"
    for line in lines[-3:]:
        label, first, second = line.split()
        number, one = first.split(":")
        assert (one, second) == ("1", f"{50 + int(number) % 7}:{int(number) / 4:g}")
        assert label == str(int(int(number) % 4 == 0))
    document = json.loads(ctrflow("dataset", "show", "dataset", "--json", "--rows", 2, cwd=folder).stdout)
    assert (document["dataset"], document["rows"], document["click_rate"]) == ("dataset", 40, 0.25)
    assert document["splits"]["train"]["rows"] + document["splits"]["validation"]["rows"] == 40
    assert [len(row["ids"]) for row in document["first_rows"]] == [2, 2]


def test_rows_are_divided_and_sampled_as_asked(ctrflow: Run, tmp_path: Path) -> None:
    rows = [f"{int(n % 2 == 0)},{n},2026-12-0{1 + n % 2}" for n in range(400)]
    (tmp_path / "days.csv").write_text("\n".join(["click,price,at", *rows, ""]))
    table = ("--format", "csv", "--columns", "label=click; numeric=price")
    split = ("--split-by", "time", "--split-column", "at")
    done = ctrflow("preprocess", "days.csv", "wrong", *table, *split, "--split-boundary", "2026-12-09", cwd=tmp_path)
    assert done.returncode == 1
    said = (
        "ctrflow: column at: times are from 2026-12-01 to 2026-12-02, so no row is left to validate when those from 2026-12-09 on"
    )
    assert done.stderr.splitlines()[-1].startswith(said)
    (tmp_path / "days.csv").write_text((tmp_path / "days.csv").read_text().replace("1,0,", "0,0,"))
    done = ctrflow("preprocess", "days.csv", "data", *table, *split, "--negative-rate", 1e-9, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "data: 199 rows to train, 200 to validate\n")
    lines = ctrflow("dataset", "show", "data", cwd=tmp_path).stdout.splitlines()
    assert lines[2] == "validation: the rows from 2026-12-02 on, by column at"
    assert lines[3].startswith("1e-09 of the negative training rows were kept, 1 left out; ")


def test_verify_says_what_is_wrong_and_exits_1(ctrflow: Run, folder: Path) -> None:
    done = ctrflow("dataset", "verify", "dataset", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "dataset: 40 rows in 5 shards, all as the manifest says\n")
    path = folder / "dataset/train/part-00002.tfrecord"
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    try:
        done = ctrflow("dataset", "verify", "dataset", "--processes", 2, cwd=folder)
    finally:
        path.write_bytes(sound)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "dataset/train/part-00002.tfrecord, record 0: the file ends inside the record; 0 whole records before it",
        f"dataset/train/part-00002.tfrecord: {len(sound) - 1} bytes, the manifest says {len(sound)}",
    ]
    assert done.stderr == "ctrflow: dataset: 2 problems; preprocess again\n"


def test_convert_writes_another_dataset_that_verifies(ctrflow: Run, folder: Path) -> None:
    done = ctrflow("dataset", "convert", "dataset", "text", "--encoding", "libsvm", "--shards", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (folder / "text/train").iterdir()) == ["part-00000.libsvm", "part-00001.libsvm"]
    lines = [line for path in folder.glob("text/*/*.libsvm") for line in path.read_text().splitlines()]
    assert sorted(int(line.split()[1].split(":")[0]) for line in lines) == list(range(40))
    assert ctrflow("dataset", "verify", "text", cwd=folder).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "nowhere"), "nowhere: no manifest.json there, so it is not a dataset"),
        (("verify", "nowhere"), "nowhere: no manifest.json there"),
        (("convert", "nowhere", "out", "--encoding", "blocks"), "nowhere: no manifest.json there"),
        (("convert", "dataset", "dataset/out", "--encoding", "blocks"), "dataset/out: is, holds or lies in the dataset dataset"),
        (("convert", "dataset", "out", "--shards", "0"), "Invalid value for '--shards': 0 is not in the range x>=1"),
        (("convert", "dataset", "out", "--encoding", "csv"), "'csv' is not one of 'blocks', 'examples', 'libsvm'"),
    ],
)
def test_wrong_usage_is_one_line_and_leaves_nothing(ctrflow: Run, folder: Path, arguments: tuple[str, ...], says: str) -> None:
    before = sorted(folder.rglob("*"))
    done = ctrflow("dataset", *arguments, cwd=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("ctrflow: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(folder.rglob("*")) == before
