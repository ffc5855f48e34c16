"""What the sampler says of work that is known: this process's own, another process's, and none."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from components.train.program.gpus import find_gpus
from components.train.program.sampler import Sampler, major_faults, running_processes

BUSY_S = 0.7


def work_for(seconds: float) -> float:
    """CPU seconds that this process spent."""
    spent, end = time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    return time.process_time() - spent


def test_own_work_is_told_apart_from_what_others_do() -> None:
    # A process of somebody else's: not below the root that is sampled.
    command = [sys.executable, "-c", "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"]
    other = subprocess.Popen(command)
    try:
        own = subprocess.Popen(command)
        try:
            begun, before = time.monotonic(), psutil.Process(own.pid).cpu_times()
            with Sampler(own.pid, interval_s=0.1) as sampler:
                time.sleep(BUSY_S)
            seconds, after = time.monotonic() - begun, psutil.Process(own.pid).cpu_times()
        finally:
            own.kill()
            own.wait()
    finally:
        other.kill()
        other.wait()
    figures = sampler.figures(begun)
    machine = figures["machine"]
    assert machine["own_cpus"] == pytest.approx((after.user - before.user) / seconds, abs=0.25)
    # The other process was kept from at most one CPU by ours and by whatever else runs here.
    assert machine["other_cpus"] > 0.1
    assert machine["own_cpus"] + machine["other_cpus"] <= psutil.cpu_count() + 0.25
    assert len(figures["cpu_percent_per_core"]) == psutil.cpu_count()
    assert machine["run_queue"] > 0
    assert 0 < machine["memory_used_bytes"] <= psutil.virtual_memory().total
    assert "gpu_percent_p95" not in machine or Path("/dev/nvidiactl").exists()


def test_memory_of_the_process_is_the_most_that_was_seen() -> None:
    with Sampler(interval_s=0.02) as sampler:
        held = bytearray(b"x" * (64 << 20))
        time.sleep(0.1)
        del held
    assert sampler.rss_bytes >= psutil.Process().memory_info().rss


def test_bytes_written_to_a_disk_are_counted_for_the_machine(tmp_path: Path) -> None:
    with Sampler(interval_s=0.05) as sampler:
        with (tmp_path / "file").open("wb") as file:
            file.write(b"x" * (8 << 20))
            file.flush()
        work_for(0.3)
    written = sampler.figures(0.0)["machine"]["disk_write_bytes_per_s"]
    assert written is None or written >= 0


def test_a_time_too_short_for_a_clock_of_ten_milliseconds_has_no_figures() -> None:
    with Sampler() as sampler:
        pass
    assert sampler.figures(0.0) | {"rss_bytes": 0} == {"cpu_percent_per_core": [], "rss_bytes": 0, "machine": None}


def test_what_the_kernel_counts_is_read_as_it_writes_it(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 2 3\nprocesses 99\nprocs_running 7\nprocs_blocked 0\n")
    assert running_processes(tmp_path / "stat") == 7
    assert running_processes(tmp_path / "no such file") is None
    assert major_faults(1) >= 0


def test_nothing_is_imported_where_there_is_no_gpu(tmp_path: Path) -> None:
    assert find_gpus(tmp_path / "nvidiactl") is None
    assert "pynvml" not in sys.modules
