"""preprocess on a Spark cluster of two workers, each a process of its own: the same bytes as on one machine."""

import csv
import gzip
import importlib.util
import os
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet
import pytest

from components.errors import InvalidRecords, WorkflowError
from components.preprocess.chunks import CHUNK_BYTES
from components.preprocess.columns import read_columns
from components.preprocess.config import PreprocessConfig
from components.preprocess.delimited import Delimited
from components.preprocess.fitting import Fitting, TransformConfig
from components.preprocess.spark.hosts import hosts_watched
from components.preprocess.spark.progress import watched
from components.preprocess.spark.session import spark_session
from components.preprocess.step import preprocess
from components.preprocess.tables import open_table
from components.preprocess.worker import ShardTask, Work
from components.records import Schema, Shard

pytestmark = [
    pytest.mark.xdist_group("spark"),  # one process has the session
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed: the extra spark"),
    pytest.mark.skipif(shutil.which("java") is None, reason="no java: Spark needs Java 17"),
]

# The program of a worker of Spark's, one a host.
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def session(submit_options: list[str]) -> Iterator[Any]:
    # Nothing but the loopback address, and workers that find the code where this process found it.
    before = dict(os.environ)
    root = str(Path(__file__).parents[4])
    os.environ |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*submit_options, "pyspark-shell"]),
    }
    with spark_session("local-cluster[2,1,1024]") as session:
        yield session
    os.environ.clear()
    os.environ.update(before)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def on_spark(session: Any, folder: Path, *inputs: Path, **settings: Any) -> dict[str, bytes]:
    from components.preprocess.spark.engine import on_spark

    config, open_engine = PreprocessConfig(**settings), partial(on_spark, session, False)
    preprocess(config, [str(path) for path in inputs], folder / "spark", folder / "spark.html", open_engine=open_engine)
    return files(folder / "spark")


def on_one_machine(folder: Path, *inputs: Path, **settings: Any) -> dict[str, bytes]:
    preprocess(PreprocessConfig(**settings), [str(path) for path in inputs], folder / "one", folder / "one.html")
    return files(folder / "one")


def write_libsvm(path: Path, count: int, fields: int = 39) -> Path:
    ids = np.random.default_rng(count).integers(0, 1000, (count, fields)) + 1000 * np.arange(fields)
    lines = [f"{row % 3 == 0:d} " + " ".join(f"{each}:{each / 8}" for each in found) for row, found in enumerate(ids.tolist())]
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def test_files_of_several_chunks_and_a_compressed_one_become_the_same_bytes(session: Any, tmp_path: Path) -> None:
    plain, small = write_libsvm(tmp_path / "day1", 10_000), write_libsvm(tmp_path / "day2.gz", 500)
    assert plain.stat().st_size > 2 * CHUNK_BYTES
    settings = {"format": "libsvm", "shards": 6, "encoding": "examples"}
    found = on_spark(session, tmp_path, plain, small, **settings)
    assert found == on_one_machine(tmp_path, plain, small, **settings)
    assert sum(name.startswith("train/") for name in found) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["day1", "day2.gz", "one", "one.html", "spark", "spark.html"]


TABLE = "label=click; numeric=price; categorical=country,city; multi_valued=tags:|:2"


def write_table(folder: Path, parts: int, rows: int) -> list[Path]:
    """CSV with quoted line ends, missing cells, a country with ties, and a city that stands once in each row."""
    draw = np.random.default_rng(parts)
    paths = [folder / f"part{part}.csv" for part in range(parts)]
    for part, path in enumerate(paths):
        with path.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(["click", "price", "country", "city", "tags", "day"])
            for row in range(rows):
                price = f"{draw.integers(1000) / 8}" if draw.random() < 0.9 else ""
                country = ["DE", "FR", "", "São\nTomé", "IT", "ES"][draw.integers(6)]
                tags = "|".join(["a", "b", 'c "quoted"'][: draw.integers(3)])
                out.writerow([int(draw.random() < 0.3), price, country, f"city {part} {row}", tags, f"2026-11-{1 + row % 9:02d}"])
    return paths


@pytest.mark.parametrize(
    "settings",
    [
        {"fitting": TransformConfig(categories="vocabulary", min_count=2, max_size=3, numbers="bucket", buckets=8)},
        {
            "fitting": TransformConfig(hash_size=500, numbers="standard"),
            "split_by": "time",
            "split_column": "day",
            "negative_rate": 0.5,
        },
    ],
    ids=["vocabulary and quantiles", "hashes, moments, the last day validates"],
)
def test_a_transform_is_fitted_to_the_same_bytes(session: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    paths = write_table(tmp_path, parts=2, rows=400)
    settings = {"format": "csv", "columns": TABLE + "; ignored=*", "seed": 5, **settings}
    found = on_spark(session, tmp_path, *paths, **settings)
    assert "transform.json" in found
    assert found == on_one_machine(tmp_path, *paths, **settings)


def test_a_vocabulary_may_be_larger_than_the_memory_of_one_machine(session: Any, tmp_path: Path) -> None:
    from components.preprocess.spark.engine import on_spark

    paths = write_table(tmp_path, parts=3, rows=60)
    columns = read_columns(TABLE + "; ignored=*")
    fitting = Fitting(columns=columns, config=TransformConfig(categories="vocabulary", min_count=1), most_tokens=100)
    work = Work(
        format="csv",
        schema=Schema(field_size=columns.field_size, feature_size=1),
        seed=0,
        validation_fraction=0.1,
        encoding="blocks",
        skip=False,
        scratch=tmp_path,
        bits=0,
        limit_rows=1,
        table=open_table(columns, "csv", Delimited(), paths),
        fitting=fitting,
    )
    with on_spark(session, False, work) as engine:
        results = list(engine.read("count", paths))
        counts = engine.counted()
    assert [result.rows for result in results] == [60, 60, 60]
    cities = counts.tokens[1]
    assert 100 < len(cities) == counts.distinct[1] == counts.rows
    assert set(cities.counts.tolist()) == {1}
    with pytest.raises(InvalidRecords, match="more than 100 distinct tokens"):
        fitting.merge([counts])


def test_parquet_is_read_and_a_split_that_came_out_empty_gets_one_row(session: Any, tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    pyarrow.parquet.write_table(pa.table({"click": [0, 1, 1], "price": [0.5, None, 2.0]}), path)
    settings = {"format": "parquet", "columns": "label=click; numeric=price", "validation_fraction": 1e-9}
    found = on_spark(session, tmp_path, path, **settings)
    assert found == on_one_machine(tmp_path, path, **settings)
    assert "validation/part-00000.tfrecord" in found


def test_skipped_rows_and_repeats_are_counted_alike(session: Any, tmp_path: Path) -> None:
    path = tmp_path / "day"
    path.write_text("\n".join([*["1 1:1 2:2"] * 40, "2 1:1 2:2", "1 1:1 9:nan", *["0 3:1 4:2"] * 40]))
    settings = {"format": "libsvm", "on_bad_row": "skip", "validation_fraction": 0.3}
    found = on_spark(session, tmp_path, path, **settings)
    assert found == on_one_machine(tmp_path, path, **settings)
    assert b"validation rows also stand in train" in found["manifest.json"]


def test_who_waits_hears_how_far_spark_is(session: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), watched(session.sparkContext, "count", interval_s=0.01):
        session.sparkContext.parallelize(range(8), 8).map(lambda number: sum(range(number, 1_000_000))).collect()
    assert re.fullmatch(r"count: [0-8] of 8 tasks of Spark's stage", caplog.messages[0])


def test_the_first_bad_row_is_the_one_named_and_nothing_is_left(session: Any, tmp_path: Path) -> None:
    good, bad = write_libsvm(tmp_path / "good", 3000), write_libsvm(tmp_path / "bad", 10_000)
    lines = bad.read_bytes().split(b"\n")
    for number in (9000, 5001, 20):
        lines[number - 1] = b"1 %d:x" % number
    bad.write_bytes(b"\n".join(lines))
    with pytest.raises(InvalidRecords) as caught:
        on_spark(session, tmp_path, good, bad, format="libsvm")
    assert str(caught.value).startswith(f"{bad}, line 20: '20:x' is not id:value")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "good"]


def test_what_fails_in_spark_is_one_line_with_its_reason_and_nothing_is_left(session: Any, tmp_path: Path) -> None:
    from components.preprocess.spark.engine import on_spark

    @contextmanager
    def without_its_disk(work: Work) -> Iterator[Any]:
        with on_spark(session, False, work) as engine:
            shutil.rmtree(work.scratch)
            yield engine

    path, out = write_libsvm(tmp_path / "day", 40), tmp_path / "out"
    with pytest.raises(WorkflowError) as caught:
        preprocess(PreprocessConfig(format="libsvm"), [str(path)], out, tmp_path / "out.html", open_engine=without_its_disk)
    said = f"Spark failed: FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/.out.scratch."
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == ["day"]


def command_line(process: psutil.Process) -> list[str]:
    """None of a process that has just ended, as some beside the one that is looked for always may have."""
    with suppress(psutil.NoSuchProcess):
        return list(process.cmdline())
    return []


def test_a_host_that_is_lost_with_its_rows_changes_no_byte(session: Any, tmp_path: Path) -> None:
    from components.preprocess.spark.engine import on_spark

    lost: list[psutil.Process] = []

    @contextmanager
    def losing_a_host(work: Work) -> Iterator[Any]:
        with on_spark(session, False, work) as engine:
            write = engine.write

            def write_on_the_others(tasks: Sequence[ShardTask]) -> Iterator[Shard]:
                # All rows are parsed, and half of them are on this one's disk alone.
                lost.append(next(each for each in psutil.Process().children(recursive=True) if EXECUTOR in command_line(each)))
                lost[0].kill()
                return write(tasks)

            engine.write = write_on_the_others
            yield engine

    path, settings = write_libsvm(tmp_path / "day", 10_000), {"format": "libsvm", "shards": 3}
    assert path.stat().st_size > 2 * CHUNK_BYTES
    preprocess(PreprocessConfig(**settings), [str(path)], tmp_path / "spark", tmp_path / "spark.html", open_engine=losing_a_host)
    assert not psutil.wait_procs(lost, timeout=5)[1]
    assert files(tmp_path / "spark") == on_one_machine(tmp_path, path, **settings)


def test_hosts_that_are_lost_again_and_again_end_it_with_one_line(session: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Spark counts a host as well as soon as its process has started, so that it would start others for ever."""
    ended = threading.Event()

    def lose_all() -> None:
        while not ended.wait(0.1):
            for each in psutil.Process().children(recursive=True):
                if EXECUTOR in command_line(each):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()

    killer = threading.Thread(target=lose_all)
    killer.start()
    try:
        with pytest.raises(WorkflowError) as caught, hosts_watched(session.sparkContext, patience_s=2, every_s=0.2):
            session.sparkContext.parallelize(range(8), 8).map(lambda number: number + 1).collect()
    finally:
        ended.set()
        killer.join()
    said = "Spark failed: no executor for 2 s, all its hosts are lost; nothing was written"
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert caplog.messages == ["Spark has no executor left and waits for one, for 2 s at most"]
    # Those that are started anew do the next work.
    assert session.sparkContext.parallelize(range(8), 8).map(lambda number: number + 1).sum() == 36


def test_a_full_disk_is_one_line_and_nothing_is_left(session: Any, tmp_path: Path, small_disk: Callable[[int], Path]) -> None:
    path, disk = write_libsvm(tmp_path / "day", 3000), small_disk(256)
    with pytest.raises(WorkflowError) as caught:
        on_spark(session, disk, path, format="libsvm", shards=1)
    assert str(caught.value).startswith("Spark failed: OSError: [Errno 28] No space left on device; nothing was written")
    assert not list(disk.iterdir())


def test_a_compressed_file_that_ends_early_is_named_with_its_line(session: Any, tmp_path: Path) -> None:
    path = write_libsvm(tmp_path / "day.gz", 5000)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidRecords, match=rf"{path}: compressed file ended early after line 49\d\d; send it again"):
        on_spark(session, tmp_path, path, format="libsvm")
    assert [each.name for each in tmp_path.iterdir()] == ["day.gz"]
