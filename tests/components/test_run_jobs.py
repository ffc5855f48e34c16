"""A run's jobs of both kinds are found by tag at the local endpoint, and stopped without touching another run's."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from components.clients import sagemaker_client
from components.errors import JobFailed
from components.processing_jobs import ProcessingJob
from components.processing_jobs import create_request as processing_request
from components.run_jobs import reap, run_jobs, stop_jobs
from components.training_jobs import TrainingJob
from components.training_jobs import create_request as training_request
from pipelines.cli import main
from pipelines.local.sagemaker import LocalSageMaker

SLEEPS = ("python3", "-c", "import time; time.sleep(60)")


@pytest.fixture
def client(endpoint: LocalSageMaker, tmp_path: Path) -> Any:
    """Run `mine` has a training and a processing job, run `other` a training job; all run."""
    client = sagemaker_client()
    common: dict[str, Any] = {
        "image": "example.com/ctrflow/training:1",
        "entrypoint": SLEEPS,
        "role_arn": "arn:aws:iam::000000000000:role/ctrflow",
        "instance_type": "ml.c5.xlarge",
        "instance_count": 1,
        "max_runtime_s": 60,
    }
    for run_id in ("mine", "other"):
        job = TrainingJob(base_name="ctrflow-train", run_id=run_id, task="train", output_uri=(tmp_path / "out").as_uri(), **common)
        client.create_training_job(**training_request(job))
    prepare = ProcessingJob(base_name="ctrflow-prepare", run_id="mine", task="preprocess", **common)
    client.create_processing_job(**processing_request(prepare))
    return client


def test_stopping_a_run_leaves_others_alone(client: Any) -> None:
    assert [(job.kind.word, job.task) for job in run_jobs("mine", client)] == [("Training", "train"), ("Processing", "preprocess")]
    assert len(reap("mine", client, poll_s=0.1)) == 2
    assert {job.status for job in run_jobs("mine", client)} == {"Stopped"}
    assert [job.status for job in run_jobs("other", client)] == ["InProgress"]
    assert stop_jobs("mine", client) == []


def test_a_stop_that_is_refused_is_an_error_after_all_were_asked(endpoint: LocalSageMaker, client: Any) -> None:
    endpoint.faults.fail("StopTrainingJob", "AccessDeniedException")
    with pytest.raises(JobFailed, match=r"run mine: may still be running: ctrflow-train-.*AccessDeniedException"):
        stop_jobs("mine", client)
    assert [job.kind.word for job in run_jobs("mine", client, under_way=True) if job.status == "InProgress"] == ["Training"]


def test_the_command_prints_what_it_found_and_stopped(client: Any) -> None:
    def jobs(verb: str) -> list[Any]:
        done = CliRunner().invoke(main, ["jobs", verb, "--run", "mine", "--json"], catch_exceptions=False)
        assert done.exit_code == 0
        return [(job["kind"], job["task"], job["status"]) for job in json.loads(done.stdout)["jobs"]]

    assert jobs("list") == jobs("reap") == [("training", "train", "InProgress"), ("processing", "preprocess", "InProgress")]
    assert jobs("list") == [("training", "train", "Stopped"), ("processing", "preprocess", "Stopped")]
