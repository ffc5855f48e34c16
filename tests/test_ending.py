"""What ends the tests ends the processes that they started, which run in sessions of their own, as those of jobs do."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

WAITING = """
import subprocess
import pytest

@pytest.fixture
def process():
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()

@pytest.mark.parametrize("name", ["one", "other"])
def test_waits(process, name):
    with open(f"{name}.pid", "w") as file:
        file.write(f"{process.pid} ")
    process.wait()
"""


def test_sigterm_ends_what_both_workers_started(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_bytes(Path(__file__).with_name("conftest.py").read_bytes())
    (tmp_path / "test_waits.py").write_text(WAITING)
    command = (sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", str(tmp_path))
    with (tmp_path / "output.txt").open("w+") as output:
        tests = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output, start_new_session=True)
        try:
            deadline = time.monotonic() + 60
            while len(found := [path.read_text() for path in tmp_path.glob("*.pid")]) < 2 or not all(found):
                assert tests.poll() is None, (tmp_path / "output.txt").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            started = [psutil.Process(int(pid)) for pid in found]
            assert all(process.is_running() for process in started)
            tests.send_signal(signal.SIGTERM)
            assert tests.wait(30) == 2
        finally:
            tests.kill()
            tests.wait()
    assert "KeyboardInterrupt: SIGTERM" in (tmp_path / "output.txt").read_text()
    assert not psutil.wait_procs(started, timeout=5)[1]
