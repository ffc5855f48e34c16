"""A signal to `ctrflow preprocess --engine spark` while Spark works."""

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[4]
COMMAND = "import sys; from pipelines.command import main; sys.argv = ['ctrflow', *sys.argv[1:]]; main()"
OPTIONS = ("--format", "libsvm", "--engine", "spark", "--spark-master", "local[1]")


def start(folder: Path, submit_options: list[str]) -> subprocess.Popen[str]:
    """The command on a Spark of its own, whose scratch files are in `folder`."""
    (folder / "scratch").mkdir(parents=True)
    row = " ".join(f"{field}:0.25" for field in range(39))
    (folder / "day").write_text(f"1 {row}\n0 {row}\n" * 20_000)
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*submit_options, "pyspark-shell"]),
    }
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "preprocess", "day", "out", *OPTIONS],
        cwd=folder,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.xdist_group("spark")
@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed: the extra spark")
@pytest.mark.skipif(shutil.which("java") is None, reason="no java: Spark needs Java 17")
def test_a_signal_ends_java_and_its_workers_and_leaves_nothing(tmp_path: Path, submit_options: list[str]) -> None:
    # Both at once, because a Spark takes seconds to start.
    folders = {number: tmp_path / number.name for number in (signal.SIGTERM, signal.SIGINT)}
    started = {number: start(folder, submit_options) for number, folder in folders.items()}
    for number, process in started.items():
        deadline = time.monotonic() + 60
        # What was found of the first rows, on Spark's disk.
        while not list((folders[number] / "scratch").glob("blockmgr-*/*/*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    below = [each for process in started.values() for each in psutil.Process(process.pid).children(recursive=True)]
    assert sum(each.name() == "java" for each in below) == len(started)
    for number, process in started.items():
        # As a terminal does: to the whole group.
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    for number, process in started.items():
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 128 + number
        assert said.splitlines()[-1] == f"ctrflow: stopped by {number.name}; everything that ran has ended"
        assert sorted(path.name for path in folders[number].iterdir()) == ["day", "scratch"]
    assert not psutil.wait_procs(below, timeout=10)[1]
    assert not list(tmp_path.glob("*/scratch/*"))
