"""Whatever dies, the job ends soon, says why, and leaves nothing running and no model."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

LONG = {"batch_size": 32, "epochs": 1000, "embedding_size": 8, "deep_layers": "[16]"}


@pytest.mark.parametrize(
    ("hosts", "settings", "victim", "reason"),
    [
        (1, {"strategy": "horovod", "workers_per_host": 2}, "rank 1", "rank 1 was killed by signal 9 (SIGKILL)"),
        (2, {"strategy": "horovod"}, "rank 1", "rank 1 was killed by signal 9 (SIGKILL)"),
        (2, {"strategy": "parameter_server"}, "ps 1", "parameter server 1 was killed by signal 9 (SIGKILL)"),
        (2, {"strategy": "parameter_server"}, "worker 0", "worker 0 was killed by signal 9 (SIGKILL)"),
        (2, {"strategy": "parameter_server"}, "rank 0", "chief (rank 0) was killed by signal 9 (SIGKILL)"),
        (
            1,
            {"strategy": "horovod", "workers_per_host": 2, "embedding_placement": "sharded"},
            "rank 0",
            "rank 0 was killed by signal 9 (SIGKILL)",
        ),
    ],
    ids=[
        "horovod-rank",
        "horovod-rank-on-another-host",
        "parameter-server",
        "worker",
        "chief",
        "sharded",
    ],
)
def test_a_killed_process_ends_the_job_and_is_named(
    run_job: Callable[..., Any], dataset: Path, hosts: int, settings: dict[str, Any], victim: str, reason: str
) -> None:
    job = run_job(dataset, hosts, **settings, **LONG)
    processes = job.wait_for_steps()
    processes[victim].kill()
    killed = time.monotonic()
    assert job.wait(30.0) == [1] * hosts, job.log()
    assert time.monotonic() - killed < 30
    assert [job.reason(host) for host in range(hosts)] == [reason] * hosts
    assert not any(process.is_running() for process in processes.values())
    assert not (job.bases[0] / "model/model.json").exists()


@pytest.mark.parametrize(
    ("hosts", "settings", "victim", "reason"),
    [
        (1, {"strategy": "single"}, "rank 0", "rank 0: no step has ended for 20 s; it hangs, or a process that it waits for"),
        (1, {"strategy": "horovod", "workers_per_host": 2}, "rank 1", ": no step has ended for 20 s"),
        (2, {"strategy": "parameter_server"}, "ps 1", "chief (rank 0): no step has ended for 20 s"),
    ],
    ids=["single", "horovod", "parameter-server"],
)
def test_a_process_that_hangs_ends_the_job(
    run_job: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    dataset: Path,
    hosts: int,
    settings: dict[str, Any],
    victim: str,
    reason: str,
) -> None:
    # Longer than the first step of a machine that runs another test beside this one.
    monkeypatch.setenv("CTRFLOW_STALL_S", "20")
    job = run_job(dataset, hosts, **settings, **LONG)
    processes = job.wait_for_steps()
    processes[victim].suspend()
    assert job.wait(50.0) == [1] * hosts, job.log()
    assert reason in job.reason()
    assert not any(process.is_running() for process in processes.values())


@pytest.mark.parametrize("strategy", ["horovod", "parameter_server"])
def test_a_killed_launcher_of_another_host_ends_the_job(run_job: Callable[..., Any], dataset: Path, strategy: str) -> None:
    job = run_job(dataset, 2, strategy=strategy, **LONG)
    processes = job.wait_for_steps()
    job.launchers[1].kill()
    assert job.wait(30.0) == [1, -signal.SIGKILL], job.log()
    assert job.reason() == "algo-2: lost contact with its launcher"
    psutil.wait_procs(processes.values(), timeout=10)
    assert not any(process.is_running() for process in processes.values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_launcher_ends_every_process(run_job: Callable[..., Any], dataset: Path, number: signal.Signals) -> None:
    job = run_job(dataset, 1, strategy="horovod", workers_per_host=2, **LONG)
    processes = job.wait_for_steps()
    job.launchers[0].send_signal(number)
    assert job.wait(15.0) == [143]
    assert not any(process.is_running() for process in processes.values())


def test_processes_die_with_a_killed_launcher(run_job: Callable[..., Any], dataset: Path) -> None:
    job = run_job(dataset, 1, strategy="horovod", workers_per_host=2, **LONG)
    processes = list(job.wait_for_steps().values())
    os.kill(job.launchers[0].pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"learning_rte": 0.1}, "hyperparameter learning_rte is unknown; did you mean learning_rate?"),
        ({"feature_size": 39}, "hyperparameter feature_size 39: the dataset has 2000; leave it out or make them agree"),
        ({"learning_rate": 1e30, "optimizer": "sgd"}, "the loss is nan; training diverged: lower learning_rate 1e+30"),
    ],
)
def test_settings_that_cannot_train_are_refused_by_name(
    run_job: Callable[..., Any], dataset: Path, settings: dict[str, Any], reason: str
) -> None:
    job = run_job(dataset, strategy="single", **{"batch_size": 32, **settings})
    assert job.wait() == [1]
    assert reason in job.reason()
    assert len(job.reason().splitlines()) == 1


def test_a_shard_that_differs_from_its_manifest_is_named(run_job: Callable[..., Any], dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "train").mkdir(parents=True)
    (copy / "manifest.json").write_bytes((dataset / "manifest.json").read_bytes())
    for shard in (dataset / "train").iterdir():
        (copy / "train" / shard.name).write_bytes(shard.read_bytes())
    victim = copy / "train/part-00001.tfrecord"
    damaged = bytearray(victim.read_bytes())
    damaged[5000] ^= 1
    victim.write_bytes(damaged)
    job = run_job(copy, strategy="single", batch_size=32)
    assert job.wait() == [1]
    assert "part-00001.tfrecord, record 0: damaged payload (checksum differs)" in job.reason()

    victim.write_bytes(damaged[:-1])
    job = run_job(copy, strategy="single", batch_size=32)
    assert job.wait() == [1]
    assert "part-00001.tfrecord" in job.reason()
    assert "bytes, the manifest says" in job.reason()
