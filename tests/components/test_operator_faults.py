"""The service's bad days, each a real run at the local endpoint: a job is never lost, doubled or orphaned.

The faults are the endpoint's own (pipelines/local/faults.py); the programs are small, because what is tested is who asks for them.
"""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from components.artifacts import fetch_artifact
from components.clients import sagemaker_client
from components.errors import TrainingJobFailed
from components.jobs import JobStatus
from components.training_jobs import Channel, FinishedJob, Metric, TrainingJob, create_request, run_training_job
from pipelines.local.sagemaker import LocalSageMaker

POLL_S = 0.05
JobOf = Callable[..., TrainingJob]
SLEEPS = "import time; open('started', 'w'); time.sleep(60)"
CREATE, DESCRIBE = "CreateTrainingJob", "DescribeTrainingJob"


def run(job: TrainingJob, client: Any, **how: Any) -> FinishedJob:
    return run_training_job(job, client, poll_s=POLL_S, **how)


def names(client: Any) -> list[str]:
    pages = client.get_paginator("list_training_jobs").paginate()
    return [each["TrainingJobName"] for page in pages for each in page["TrainingJobSummaries"]]


def status(client: Any, name: str) -> str:
    return str(client.describe_training_job(TrainingJobName=name)["TrainingJobStatus"])


def operator_of(wanted: TrainingJob, tmp_path: Path) -> "subprocess.Popen[bytes]":
    """An operator in a process of its own."""
    program = tmp_path / "operator.py"
    program.write_text(
        "from components.clients import sagemaker_client\n"
        "from components.training_jobs import Channel, Metric, TrainingJob, run_training_job\n"
        f"run_training_job({wanted!r}, sagemaker_client(), poll_s={POLL_S})"
    )
    return subprocess.Popen([sys.executable, str(program)], stderr=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("code", "http"), [("", 200), ("ServiceUnavailable", 503), ("InternalFailure", 500), ("ThrottlingException", 400)]
)
def test_a_create_that_took_effect_and_seemed_to_fail_is_adopted(
    endpoint: LocalSageMaker, client: Any, training_job: JobOf, code: str, http: int
) -> None:
    if code:
        endpoint.faults.fail(CREATE, code, status=http, after=True)
    else:
        endpoint.faults.lose_reply(CREATE)
    done = run(training_job("print('x')"), client)
    assert endpoint.faults.calls[CREATE] > 1
    assert names(client) == [done.name]


@pytest.mark.parametrize("phase", ["Starting", "Training", "Completed"])
def test_an_operator_that_is_killed_finds_its_job_again(
    tmp_path: Path, client: Any, training_job: JobOf, eventually: Callable[..., Any], phase: str
) -> None:
    program = "import os, time; open('started', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)"
    wanted = training_job(program)
    name = create_request(wanted)["TrainingJobName"]
    host = tmp_path / "jobs" / name / "algo-1"
    with operator_of(wanted, tmp_path) as operator:
        eventually(lambda: (host if phase == "Starting" else host / "started").exists())
        if phase == "Completed":
            (host / "go").touch()
            eventually(lambda: status(client, name) == "Completed" or operator.poll() is not None)
        operator.send_signal(signal.SIGKILL)
    eventually(host.exists)
    eventually(lambda: (host / "started").exists())
    (host / "go").touch()
    assert run(wanted, client).name == name
    assert names(client) == [name]


def test_a_storm_of_throttling_is_outlasted(endpoint: LocalSageMaker, client: Any, training_job: JobOf) -> None:
    """A minute of it takes 60 s of waiting and nothing else: it is scaled down, the operator's patience with it."""
    endpoint.faults.throttle(3.0)
    begun = time.monotonic()
    done = run(training_job("print('x')"), client, patience_s=30.0)
    assert time.monotonic() - begun > 3.0
    assert names(client) == [done.name]


def test_server_errors_and_expired_credentials_do_not_matter(endpoint: LocalSageMaker, client: Any, training_job: JobOf) -> None:
    endpoint.faults.fail(DESCRIBE, "InternalFailure", status=500, times=5)
    endpoint.faults.fail(DESCRIBE, "ExpiredTokenException")
    endpoint.faults.lose_reply(DESCRIBE)
    done = run(training_job("print('x')"), client)
    assert done.status == "Completed"
    assert names(client) == [done.name]


def test_sigterm_stops_the_job_within_a_second(
    tmp_path: Path, client: Any, training_job: JobOf, eventually: Callable[..., Any]
) -> None:
    wanted = training_job(SLEEPS)
    name = create_request(wanted)["TrainingJobName"]
    with operator_of(wanted, tmp_path) as operator:
        eventually((tmp_path / "jobs" / name / "algo-1" / "started").exists)
        operator.send_signal(signal.SIGTERM)
        eventually(lambda: status(client, name) != "InProgress", within_s=1.0)
        assert operator.wait(10) == 143


def test_a_stop_that_comes_too_late_is_no_error(endpoint: LocalSageMaker, client: Any, training_job: JobOf) -> None:
    def leave(now: JobStatus) -> None:
        if now.status == "Completed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(training_job("print('x')"), client, on_status=leave)
    assert endpoint.faults.calls["StopTrainingJob"] == 1
    assert status(client, names(client)[0]) == "Completed"


# Writes a checkpoint every step, and goes on from the last one; waits at step 3 of its first life.
STEPS = """
import os, pathlib, sys, time
kept = pathlib.Path("checkpoints/ckpt")
begun = int(kept.read_text()) if kept.exists() else 0
if begun: print(f"resuming at step {begun} of 6")
for step in range(begun + 1, 7):
    print("did", step)
    kept.write_text(str(step))
    print(f"checkpoint of step {step} written", flush=True)
    if step == 3 and not begun:
        open("waits", "w")
        time.sleep(60)
pathlib.Path("output/data/steps").write_text(str(step))
"""


def test_a_job_on_spot_instances_goes_on_where_it_was(
    tmp_path: Path,
    endpoint: LocalSageMaker,
    client: Any,
    caplog: pytest.LogCaptureFixture,
    training_job: JobOf,
    eventually: Callable[..., Any],
) -> None:
    caplog.set_level(logging.INFO, "components")
    metrics = (
        Metric(name="resumed_at_step", regex="resuming at step ([0-9]+)"),
        Metric(name="checkpoint_step", regex="checkpoint of step ([0-9]+)"),
    )
    wanted = training_job(STEPS, use_spot=True, max_wait_s=120, checkpoint_uri=(tmp_path / "checkpoints").as_uri(), metrics=metrics)
    name = create_request(wanted)["TrainingJobName"]

    def interrupt() -> None:
        eventually((tmp_path / "jobs" / name / "algo-1" / "waits").exists)
        endpoint.interrupt(name)

    thread = threading.Thread(target=interrupt)
    thread.start()
    done = run(wanted, client)
    thread.join()
    phases = client.describe_training_job(TrainingJobName=name)["SecondaryStatusTransitions"]
    again = ["Starting", "Downloading", "Training"]
    assert [phase["Status"] for phase in phases] == [*again, "Interrupted", *again, "Uploading", "Completed"]
    assert done.metrics == {"resumed_at_step": 3.0, "checkpoint_step": 6.0}
    did = [line.rpartition(" ")[2] for line in caplog.messages if "algo-1: did" in line]
    assert did == ["1", "2", "3", "4", "5", "6"]
    assert f"{name}: interrupted 1 times so far; it goes on when there are spot instances" in caplog.messages
    assert done.bill is not None
    assert done.bill.interruptions == 1
    assert done.bill.saving == pytest.approx(1 - done.billable_s / done.training_s)
    assert (fetch_artifact(done.output_uri, tmp_path / "output") / "steps").read_text() == "6"


def test_without_capacity_the_next_type_is_taken_also_by_a_retry(
    endpoint: LocalSageMaker, client: Any, training_job: JobOf
) -> None:
    endpoint.faults.lacking.update({"ml.c5.xlarge", "ml.c6i.xlarge"})
    wanted = training_job("print('x')", alternatives=("ml.c6i.xlarge", "ml.m5.xlarge"))
    done = run(wanted, client)
    assert done.bill is not None
    assert done.bill.instance_type == "ml.m5.xlarge"
    assert [each.partition(":")[0] for each in done.passed_over] == ["ml.c5.xlarge", "ml.c6i.xlarge"]
    assert all("CapacityError" in each for each in done.passed_over)
    endpoint.faults.lacking.clear()
    assert run(wanted, client) == done
    assert len(names(client)) == 3


def test_without_capacity_said_at_once_the_next_type_is_taken(endpoint: LocalSageMaker, client: Any, training_job: JobOf) -> None:
    endpoint.faults.fail(CREATE, "InsufficientInstanceCapacity", message="none here")
    done = run(training_job("print('x')", alternatives=("ml.m5.xlarge",)), client)
    assert done.passed_over == ("ml.c5.xlarge: InsufficientInstanceCapacity: none here",)


def test_the_service_chooses_among_preferences(endpoint: LocalSageMaker, client: Any, training_job: JobOf) -> None:
    endpoint.faults.lacking.add("ml.c5.xlarge")
    done = run(training_job("print('x')", alternatives=("ml.m5.xlarge",), capacity="preferences"), client)
    assert done.bill is not None
    assert done.bill.instance_type == "ml.m5.xlarge"
    assert len(names(client)) == 1


def test_without_any_capacity_every_type_is_named(endpoint: LocalSageMaker, client: Any, training_job: JobOf) -> None:
    endpoint.faults.lacking.update({"ml.c5.xlarge", "ml.m5.xlarge"})
    with pytest.raises(TrainingJobFailed, match=r"no capacity \(ml\.c5\.xlarge: .*ml\.m5\.xlarge: .*\); try later"):
        run(training_job(alternatives=("ml.m5.xlarge",)), client)


def test_a_quota_is_named_and_not_asked_for_twice(endpoint: LocalSageMaker, client: Any, training_job: JobOf) -> None:
    message = "The account-level service limit 'ml.c5.xlarge for training job usage' is 0 Instances"
    endpoint.faults.fail(CREATE, "ResourceLimitExceeded", message=message)
    with pytest.raises(TrainingJobFailed, match=r"quota 'ml\.c5\.xlarge for training job usage'"):
        run(training_job(alternatives=("ml.m5.xlarge",)), client)
    assert endpoint.faults.calls[CREATE] == 1


def test_a_person_s_stop_and_the_time_limit_are_told_apart(tmp_path: Path, client: Any, training_job: JobOf) -> None:
    def stop(now: JobStatus) -> None:
        if now.secondary == "Training":
            client.stop_training_job(TrainingJobName=now.name)

    with pytest.raises(TrainingJobFailed, match="stopped by someone's StopTrainingJob"):
        run(training_job(SLEEPS), client, on_status=stop)
    with pytest.raises(TrainingJobFailed, match=r"MaxRuntimeInSeconds = 1 s \(MaxRuntimeExceeded\)"):
        run(training_job(SLEEPS, max_runtime_s=1), client)
    spot = {"use_spot": True, "max_runtime_s": 1, "max_wait_s": 1, "checkpoint_uri": (tmp_path / "c").as_uri()}
    with pytest.raises(TrainingJobFailed, match=r"MaxWaitTimeInSeconds = 1 s \(MaxWaitTimeExceeded\)"):
        run(training_job(SLEEPS, **spot), client)


def test_an_image_that_exits_at_once_says_why(client: Any, training_job: JobOf) -> None:
    with pytest.raises(TrainingJobFailed, match=r"AlgorithmError: .*ModuleNotFoundError: No module named 'nowhere'"):
        run(training_job("import nowhere"), client)


def test_two_requests_with_one_name_are_told_apart(client: Any, training_job: JobOf) -> None:
    request = create_request(training_job(SLEEPS))
    client.create_training_job(**request | {"Tags": [{"Key": "ctrflow:request-hash", "Value": "of-another"}]})
    with pytest.raises(TrainingJobFailed, match="already exists and is not this one"):
        run(training_job(SLEEPS), client)
    assert status(client, request["TrainingJobName"]) == "InProgress"


def test_a_hundred_jobs_at_once_are_followed_without_listing(
    tmp_path: Path, endpoint: LocalSageMaker, client: Any, training_job: JobOf, eventually: Callable[..., Any]
) -> None:
    (tmp_path / "go").unlink(missing_ok=True)
    wait = ("/bin/sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 1; done")

    def follow(number: int) -> str:
        return run_training_job(training_job(entrypoint=wait, task=f"probe-{number}"), client, poll_s=2.0).name

    with ThreadPoolExecutor(100) as pool:
        followed = [pool.submit(follow, number) for number in range(100)]
        eventually(lambda: endpoint.faults.calls[CREATE] >= 100, within_s=60)
        (tmp_path / "go").touch()
        done = {each.result() for each in followed}
    assert len(done) == 100
    assert endpoint.faults.calls[DESCRIBE] >= 100
    assert not [operation for operation in endpoint.faults.calls if operation.startswith("List")]


PIPED = """
import os, pathlib
read = []
for epoch in range(2):
    for channel in ("train-0", "train-1"):
        fifo = pathlib.Path(f"input/data/{channel}_{epoch}")
        while not fifo.exists(): pass
        read.append(fifo.read_text())
pathlib.Path("output/data/read").write_text(" ".join(read))
"""


def test_pipe_channels_are_fifos_one_an_epoch(tmp_path: Path, client: Any, training_job: JobOf) -> None:
    (tmp_path / "day").mkdir()
    for name in "abc":
        (tmp_path / "day" / name).write_text(name)
    lists = {"train-0": '"a", "c"', "train-1": '"b"'}
    for name, listed in lists.items():
        (tmp_path / name).write_text(f'[{{"prefix": "{(tmp_path / "day").as_uri()}/"}}, {listed}]')
    channels = tuple(Channel(name=name, uri=(tmp_path / name).as_uri(), input_mode="Pipe", listed=True) for name in lists)
    done = run(training_job(PIPED, channels=channels), client)
    assert (fetch_artifact(done.output_uri, tmp_path / "output") / "read").read_text() == "ac b ac b"


def test_a_host_has_the_cpus_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training_job: JobOf) -> None:
    with LocalSageMaker(tmp_path / "jobs", cpus_per_host=1) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", endpoint.url)
        program = "import os; open('output/data/cpus', 'w').write(str(len(os.sched_getaffinity(0))))"
        done = run(training_job(program), sagemaker_client())
    assert (fetch_artifact(done.output_uri, tmp_path / "output") / "cpus").read_text() == "1"
