"""An interrupted training goes on at its last checkpoint and ends where an uninterrupted one ends."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STEPS = 300
SETTINGS = {"embedding_size": 8, "deep_layers": "[16]", "learning_rate": 0.01, "steps": STEPS, "checkpoint_steps": 20}


def newest_checkpoint(job: Any) -> int:
    """The step of the newest one that is whole, 0 without one."""
    return max((int(path.stem.removeprefix("ckpt-")) for path in (job.bases[0] / "checkpoints").glob("ckpt-*.index")), default=0)


def wait_for_checkpoint(job: Any, step: int) -> None:
    """Until one of at least this step is whole."""
    deadline = time.monotonic() + 90
    while newest_checkpoint(job) < step:
        assert time.monotonic() < deadline, job.log()
        assert all(launcher.poll() is None for launcher in job.launchers), job.log()
        time.sleep(0.02)


def change(job: Any, **settings: object) -> None:
    """Change hyperparameters on every host."""
    for base in job.bases:
        path = base / "input/config/hyperparameters.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **{name: str(value) for name, value in settings.items()}}))


def assert_weights(job: Any, expected: Any) -> None:
    weights = expected.weights()
    with np.load(job.bases[0] / "model/weights.npz") as found:
        assert sorted(found.files) == sorted(weights)
        for name in found.files:
            np.testing.assert_allclose(found[name], weights[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("hosts", "settings"),
    [
        (1, {"strategy": "single", "batch_size": 64}),
        (2, {"strategy": "horovod", "batch_size": 32, "embedding_placement": "replicated_sparse"}),
        (2, {"strategy": "horovod", "batch_size": 32, "embedding_placement": "replicated_dense"}),
        (2, {"strategy": "horovod", "batch_size": 32, "embedding_placement": "sharded"}),
        (2, {"strategy": "parameter_server", "batch_size": 32, "ps_synchronous": True}),
        (1, {"strategy": "tower", "batch_size": 64}),
        (1, {"strategy": "mirrored", "batch_size": 64}),
    ],
    ids=[
        "single",
        "horovod-replicated-sparse",
        "horovod-replicated-dense",
        "horovod-sharded",
        "parameter-server-2-hosts",
        "tower",
        "mirrored",
    ],
)
def test_a_killed_training_resumes_on_all_ranks(
    run_job: Callable[..., Any], dataset: Path, alone: Callable[..., Any], hosts: int, settings: dict[str, Any]
) -> None:
    """It ends where one process ends that trains alone; test_strategies.py says that an uninterrupted training does, too."""
    job = run_job(dataset, hosts, **{**SETTINGS, **settings})
    wait_for_checkpoint(job, 40)
    job.kill()
    # Of however many steps it had made: after many more, what is rounded differently is no longer small.
    steps = newest_checkpoint(job) + 40
    change(job, steps=steps)
    job.start()
    assert job.wait() == [0] * hosts, job.log()
    training = job.training()
    begun = training["resumed_at"]
    assert begun >= 40
    assert begun % 20 == 0
    assert training["examples"] == (steps - begun) * 64
    assert_weights(job, alone(**{**SETTINGS, "steps": steps}, batch_size=64))


def test_asynchronous_workers_resume_together_after_one_was_killed(run_job: Callable[..., Any], dataset: Path) -> None:
    job = run_job(dataset, 2, **{**SETTINGS, "strategy": "parameter_server", "batch_size": 32})
    wait_for_checkpoint(job, 40)
    job.processes()["worker 1"].kill()
    assert job.wait(30.0) == [1, 1], job.log()
    assert job.reason() == "worker 1 was killed by signal 9 (SIGKILL)"
    job.start()
    assert job.wait() == [0, 0], job.log()
    training = job.training()
    begun = training["resumed_at"]
    assert begun >= 40
    assert begun % 20 == 0
    assert [(one["rank"], one["steps"]) for one in training["ranks"]] == [(worker, STEPS - begun) for worker in (0, 1)]
    assert training["examples"] == (STEPS - begun) * 64


@pytest.mark.parametrize(("before", "after"), [("sharded", "replicated_sparse"), ("replicated_dense", "sharded")])
def test_a_checkpoint_of_one_placement_is_resumed_in_another(
    run_job: Callable[..., Any], dataset: Path, alone: Callable[..., Any], before: str, after: str
) -> None:
    """Half of the steps in each, against all of them in one process."""
    settings = {**SETTINGS, "steps": 40}
    horovod = {"strategy": "horovod", "workers_per_host": 2, "batch_size": 32}
    job = run_job(dataset, **{**settings, "steps": 20}, **horovod, embedding_placement=before)
    assert job.wait() == [0], job.log()
    change(job, steps=40, embedding_placement=after)
    job.start()
    assert job.wait() == [0], job.log()
    assert job.training()["resumed_at"] == 20
    assert_weights(job, alone(**settings, batch_size=64))


def test_a_finished_training_that_is_started_again_ends_at_once(run_job: Callable[..., Any], dataset: Path) -> None:
    job = run_job(dataset, strategy="horovod", workers_per_host=2, batch_size=32, **{**SETTINGS, "steps": 40})
    assert job.wait() == [0], job.log()
    first = job.training()
    card = json.loads((job.bases[0] / "model/model.json").read_text())
    (job.bases[0] / "model/model.json").unlink()
    job.start()
    assert job.wait() == [0], job.log()
    assert "all 40 steps were done before" in job.log()
    assert job.training() == first
    again = json.loads((job.bases[0] / "model/model.json").read_text())
    assert again["parameter_checksum"] == card["parameter_checksum"]


def test_a_checkpoint_of_another_model_is_refused_by_name(run_job: Callable[..., Any], dataset: Path) -> None:
    job = run_job(dataset, strategy="single", batch_size=64, **{**SETTINGS, "steps": 40})
    assert job.wait() == [0], job.log()
    change(job, embedding_size=4)
    job.start()
    assert job.wait() == [1]
    assert "table (2000, 27) in the checkpoint, (2000, 15) in this model" in job.reason()
