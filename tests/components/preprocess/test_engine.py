"""The engine of preprocess: processes, memory, skipped rows, and the end of all of it when it is stopped."""

import gzip
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from components.errors import InvalidRecords, WorkflowError
from components.examples import encode_example
from components.framing import frame
from components.manifest import Manifest, read_manifest, read_split
from components.preprocess.bounds import MemoryPlan
from components.preprocess.chunks import CHUNK_BYTES
from components.preprocess.config import PreprocessConfig
from components.preprocess.crew import Crew
from components.preprocess.engine import stretches
from components.preprocess.step import preprocess, shard_tasks
from components.preprocess.tally import DistinctIds
from components.preprocess.worker import Work
from components.records import Schema, concatenate

ROWS = 60_000


def run(folder: Path, *inputs: Path, out: str = "dataset", memory_bytes: int | None = None, **settings: Any) -> Manifest:
    config = PreprocessConfig(**{"format": "libsvm", **settings})
    return preprocess(config, [str(path) for path in inputs], folder / out, folder / "report.html", memory_bytes)


def shards(dataset: Path) -> dict[str, bytes]:
    return {str(path.relative_to(dataset)): path.read_bytes() for path in sorted(dataset.rglob("part-*"))}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of several chunks in each format."""
    folder = tmp_path_factory.mktemp("inputs")
    numbers = np.random.default_rng(3).integers(0, 1000, (ROWS, 39))
    files = {name: folder / name for name in ("libsvm", "criteo", "tfrecord")}
    with files["libsvm"].open("w") as file:
        for row, found in enumerate(numbers.tolist()):
            pairs = " ".join(f"{1000 * field + each}:{each / 8}" for field, each in enumerate(found))
            file.write(f"{row % 3 == 0:d} {pairs}\n")
    with files["criteo"].open("w") as file:
        for row, found in enumerate(numbers.tolist()):
            cells = "\t".join([*map(str, found[:13]), *(f"{each:x}" if each % 9 else "" for each in found[13:])])
            file.write(f"{row % 3 == 0:d}\t{cells}\n")
    few = numbers[:20_000] + 1000 * np.arange(39)
    records = (encode_example(float(row % 3 == 0), ids, (ids / 8).astype(np.float32)) for row, ids in enumerate(few))
    files["tfrecord"].write_bytes(b"".join(map(frame, records)))
    assert all(path.stat().st_size > 2 * CHUNK_BYTES for path in files.values())
    return files


@pytest.mark.parametrize("format", ["libsvm", "criteo", "tfrecord"])
def test_the_bytes_do_not_depend_on_processes_nor_on_memory(tmp_path: Path, inputs: dict[str, Path], format: str) -> None:
    # One process writes 5 shards in a go, two write 3 and three write 2: shards begin inside buckets, and inside parts of them.
    one = run(tmp_path, inputs[format], out="one", format=format, shards=10, processes=1)
    three = run(tmp_path, inputs[format], out="three", format=format, shards=10, processes=3)
    small = run(tmp_path, inputs[format], out="small", format=format, shards=10, processes=2, memory_bytes=8 << 20)
    assert shards(tmp_path / "one") == shards(tmp_path / "three") == shards(tmp_path / "small")
    assert one == three == small
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "report.html", "small", "three"]


@pytest.mark.parametrize(
    ("train", "validation", "processes", "sizes"),
    [(4, 1, 2, [1, 1, 1, 1, 1]), (24, 6, 2, [6, 6, 6, 6, 2, 2, 2]), (5, 1, 1, [3, 2, 1]), (1, 1, 64, [1, 1])],
)
def test_neighbouring_shards_of_a_split_are_written_together(
    tmp_path: Path, train: int, validation: int, processes: int, sizes: list[int]
) -> None:
    tasks = [
        *shard_tasks(tmp_path, "train", np.array([50, 50]), train, "blocks"),
        *shard_tasks(tmp_path, "validation", np.array([10]), validation, "blocks"),
    ]
    found = stretches(tasks, processes)
    assert [len(each) for each in found] == sizes
    assert [task for each in found for task in each] == tasks
    assert all(len({task.split for task in each}) == 1 for each in found)


def test_rows_come_out_as_they_went_in(tmp_path: Path, inputs: dict[str, Path]) -> None:
    run(tmp_path, inputs["libsvm"], processes=2)
    manifest = read_manifest(tmp_path / "dataset")
    batch = concatenate([part for name in ("train", "validation") for part in read_split(tmp_path / "dataset", manifest, name)], 39)
    lines = inputs["libsvm"].read_text().splitlines()
    found = [
        f"{label:.0f} " + " ".join(f"{i}:{v}" for i, v in zip(ids, values, strict=True))
        for label, ids, values in zip(batch.labels.tolist(), batch.ids.tolist(), batch.values.tolist(), strict=True)
    ]
    assert sorted(found) == sorted(lines)
    assert found != lines


PEAK = """
import resource, sys
from pathlib import Path
from components.preprocess.config import PreprocessConfig
from components.preprocess.engine import stretches
from components.preprocess.step import preprocess, shard_tasks
out = Path(sys.argv[2])
preprocess(PreprocessConfig(format="libsvm", processes=1), [sys.argv[1]], out, out.with_suffix(".html"), int(sys.argv[3]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_ten_times_more_rows_than_the_bound_take_no_more_memory(tmp_path: Path, inputs: dict[str, Path]) -> None:
    bound = 16 << 20
    text = inputs["libsvm"].read_bytes()
    peaks = []
    for name, content in (("few", text[: text.index(b"\n", CHUNK_BYTES) + 1]), ("many", text * 9)):
        (tmp_path / name).write_bytes(content)
        command = [sys.executable, "-c", PEAK, str(tmp_path / name), str(tmp_path / f"{name}.out"), str(bound)]
        peaks.append(1024 * int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    rows = read_manifest(tmp_path / "many.out").train.examples
    assert rows * 4 * 79 > 9 * bound
    assert peaks[1] - peaks[0] < bound


def spoiled(path: Path, folder: Path, *numbers: int) -> Path:
    lines = path.read_bytes().split(b"\n")
    for number in numbers:
        lines[number - 1] = b"1 %d:x" % number
    (folder / "spoiled").write_bytes(b"\n".join(lines))
    return folder / "spoiled"


@pytest.mark.parametrize("processes", [1, 3])
def test_the_first_bad_row_is_the_one_named_whatever_the_processes(tmp_path: Path, inputs: dict[str, Path], processes: int) -> None:
    path = spoiled(inputs["libsvm"], tmp_path, 59_000, 31_000, 20_001)
    with pytest.raises(InvalidRecords) as caught:
        run(tmp_path, inputs["libsvm"], path, processes=processes)
    assert str(caught.value).startswith(f"{path}, line 20001: '20001:x' is not id:value")
    assert [each.name for each in tmp_path.iterdir()] == ["spoiled"]


def test_a_bad_row_before_a_truncation_is_named_first(tmp_path: Path, inputs: dict[str, Path]) -> None:
    path = spoiled(inputs["libsvm"], tmp_path, 15_000)
    path.write_bytes(gzip.compress(path.read_bytes(), 1)[:-9])
    with pytest.raises(InvalidRecords, match="line 15000: "):
        run(tmp_path, path, processes=2)


def test_skipped_rows_are_counted_by_reason_and_change_no_other_row(tmp_path: Path) -> None:
    good = [f"{n % 2} {n}:1 {n + 100}:2" for n in range(100)]
    bad = dict(enumerate(["2 1:1 2:1", "1 1:1 200:1", "1 1:1", "1 1:1 2:nan", "1 1:1 2:x", "1 1:1 1:1", "1 1:1 2:\0"], start=10))
    (tmp_path / "good").write_text("\n".join("# none" if n in bad else line for n, line in enumerate(good)))
    (tmp_path / "bad").write_text("\n".join(bad.get(n, line) for n, line in enumerate(good)))
    run(tmp_path, tmp_path / "good", out="expected", feature_size=200)
    manifest = run(tmp_path, tmp_path / "bad", feature_size=200, on_bad_row="skip", max_bad_rows=7)
    assert shards(tmp_path / "dataset") == shards(tmp_path / "expected")
    [source] = read_manifest(tmp_path / "dataset").sources
    assert source.rows == 93
    assert source.rejected == {"label": 1, "id": 1, "width": 1, "value": 1, "pair": 1, "repeated id": 1, "bytes": 1}
    assert any(warning.startswith("7 bad rows were skipped (1 bytes, 1 id, ") for warning in manifest.warnings)
    assert "1 repeated id" in (tmp_path / "report.html").read_text()
    with pytest.raises(InvalidRecords, match=r"^7 bad rows, at most 6 may be skipped \(--max-bad-rows\); .*/bad, line 11: "):
        run(tmp_path, tmp_path / "bad", feature_size=200, on_bad_row="skip", max_bad_rows=6)


def test_damaged_and_wrong_records_are_skipped_but_not_a_damaged_length(tmp_path: Path) -> None:
    rows = [frame(encode_example(float(n % 2), np.array([n, 60]), np.ones(2, np.float32))) for n in range(50)]
    rows[7] = rows[7][:20] + b"?" + rows[7][21:]
    rows[8] = frame(b"no example")
    rows[9] = frame(encode_example(0.5, np.array([1, 2]), np.ones(2, np.float32)))
    rows[10] = frame(encode_example(1, np.array([1, 99]), np.ones(2, np.float32)))
    (tmp_path / "in").write_bytes(b"".join(rows))
    settings = {"format": "tfrecord", "feature_size": 61, "on_bad_row": "skip"}
    [source] = run(tmp_path, tmp_path / "in", **settings).sources
    assert (source.rows, source.rejected) == (46, {"damaged": 1, "example": 1, "label": 1, "id": 1})
    rows[20] = b"\1" + rows[20][1:]
    (tmp_path / "in").write_bytes(b"".join(rows))
    with pytest.raises(InvalidRecords, match="record 20: damaged length"):
        run(tmp_path, tmp_path / "in", **settings)


def test_skipped_criteo_rows(tmp_path: Path, inputs: dict[str, Path]) -> None:
    lines = inputs["criteo"].read_bytes().split(b"\n")
    lines[40], lines[41], lines[42] = b"7" + lines[40][1:], b"1\tx" + lines[41][2:], b"1\t2"
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    [source] = run(tmp_path, tmp_path / "in", format="criteo", on_bad_row="skip").sources
    assert (source.rows, source.rejected) == (ROWS - 3, {"label": 1, "cell": 1, "columns": 1})


COMMAND = "import sys; from pipelines.command import main; sys.argv = ['ctrflow', *sys.argv[1:]]; main()"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_workers_and_leaves_nothing(tmp_path: Path, inputs: dict[str, Path], number: signal.Signals) -> None:
    (tmp_path / "in").write_bytes(inputs["libsvm"].read_bytes() * 12)
    command = [sys.executable, "-c", COMMAND, "preprocess", "in", "out", "--format", "libsvm", "--processes", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    workers: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.scratch.*/*.rows")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    # As a terminal does: to the whole group.
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 128 + number
    assert said.splitlines() == [f"ctrflow: stopped by {number.name}; everything that ran has ended"]
    assert not psutil.wait_procs(workers, timeout=5)[1]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_worker_that_dies_is_one_line(tmp_path: Path) -> None:
    work = Work(
        format="libsvm",
        schema=Schema(field_size=1, feature_size=9),
        seed=0,
        validation_fraction=0.5,
        encoding="blocks",
        skip=False,
        scratch=tmp_path,
        bits=0,
        limit_rows=10,
    )
    with Crew(work, 2) as crew:
        for child in psutil.Process().children():
            if "components.worker_process" in child.cmdline():
                child.kill()
        with pytest.raises(WorkflowError, match="a worker process was ended by signal 9; if the container's memory is short"):
            crew.each("finish")


def test_buckets_grow_in_number_with_the_input_and_are_bounded() -> None:
    plan = MemoryPlan(bytes=1 << 30, processes=2)
    assert [plan.bits(size) for size in (1, 1 << 20, 100 << 20, 1 << 40)] == [0, 0, 4, 8]
    assert plan.limit_rows(39) * 2 * 4 * 4 * 81 <= 1 << 29


def test_distinct_ids_are_exact_and_estimated_beyond_the_bound() -> None:
    draw = np.random.default_rng(0)
    few, many = draw.integers(0, 5000, (20_000, 2)), draw.integers(0, 2**31 - 1, (300_000, 2))
    exact, estimated = DistinctIds(2), DistinctIds(2)
    exact.add(few[:9000])
    other = DistinctIds(2)
    other.add(few[9000:])
    exact.merge(other)
    assert exact.counts() == tuple(len(np.unique(column)) for column in few.T)
    estimated.add(many)
    estimated.merge(exact)
    for found, expected in zip(estimated.counts(), [len(np.unique(c)) for c in np.concatenate([few, many]).T], strict=True):
        assert abs(found / expected - 1) < 0.01


def test_progress_says_rows_per_second_and_the_time_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from components.preprocess.progress import Progress

    (tmp_path / "a").write_bytes(bytes(1000))
    (tmp_path / "b").write_bytes(bytes(3000))
    times = iter([0.0, 5.0, 10.0, 12.0, 20.0])
    progress = Progress([tmp_path / "a", tmp_path / "b"], clock=lambda: next(times))
    with caplog.at_level("INFO"):
        for file, offset in ((0, 500), (0, 1000), (1, 100), (1, 1000)):
            progress.add(file, offset, 1000)
    assert [re.sub(r"\s+", " ", message) for message in caplog.messages] == [
        "2,000 rows read, 200 rows/s, 25% of the input, about 30 s left",
        "4,000 rows read, 200 rows/s, 50% of the input, about 20 s left",
    ]
