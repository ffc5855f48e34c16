"""ctrflow preprocess --on sagemaker: the same command, elsewhere."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

from pipelines.local.sagemaker import LocalSageMaker

COMMAND = str(Path(sys.executable).with_name("ctrflow"))
ROLE = "arn:aws:iam::000000000000:role/ctrflow"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def rows(path: Path, count: int = 40) -> Path:
    path.write_text("".join(f"{int(n % 4 == 0)} {n}:1 {50 + n % 7}:{n / 4}\n" for n in range(count)))
    return path


def test_the_same_command_there_and_here(ctrflow: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(tmp_path / "day.libsvm")
    settings = ["--format", "libsvm", "--feature-size", "100", "--seed", "3"]
    (tmp_path / "here").mkdir()
    here = ctrflow("preprocess", "day.libsvm", "here/day", *settings, cwd=tmp_path)
    assert here.returncode == 0, here.stderr
    with LocalSageMaker(tmp_path / "jobs") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", endpoint.url)
        command = [COMMAND, "preprocess", str(tmp_path / "day.libsvm"), "there/day", *settings]
        command += ["--on", "sagemaker", "--role", ROLE, "--run-id", "7"]
        there = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert there.returncode == 0, there.stderr
        (job,) = json.loads(json.dumps(endpoint.answer("SageMaker.ListProcessingJobs", b"{}")))["ProcessingJobSummaries"]
    assert there.stdout.removeprefix("there/day: ") == here.stdout.removeprefix("here/day: ")
    assert "rows to train" in there.stdout
    assert f"{job['ProcessingJobName']}: Completed" in there.stderr
    made = {path.name for path in (tmp_path / "there").iterdir()}
    assert made == {"day", "day.html"}
    shards = [(tmp_path / place / "day/train/part-00000.tfrecord").read_bytes() for place in ("here", "there")]
    assert shards[0] == shards[1]


def test_ctrl_c_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(tmp_path / "day.libsvm")
    with LocalSageMaker(tmp_path / "jobs", stop_grace_s=2) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", endpoint.url)
        command = [COMMAND, "preprocess", str(tmp_path / "day.libsvm"), "out", "--format", "libsvm"]
        with subprocess.Popen(
            [*command, "--on", "sagemaker", "--role", ROLE], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        ) as run:
            client = boto3.client(
                "sagemaker", endpoint_url=endpoint.url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
            )
            deadline = time.monotonic() + 30
            while not (listed := client.list_processing_jobs()["ProcessingJobSummaries"]):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            run.send_signal(signal.SIGINT)
            assert run.wait(20) == 130
        assert (
            client.describe_processing_job(ProcessingJobName=listed[0]["ProcessingJobName"])["ProcessingJobStatus"] != "InProgress"
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("day.libsvm", "s3://b/day"), "s3://b/day: datasets are written to folders of this machine; or say --on sagemaker"),
        (
            ("day.libsvm", "out", "--role", ROLE, "--max-hours", "2"),
            "--role, --max-hours: of jobs; say --on sagemaker, or leave out",
        ),
        (("s3://b/logs/", "s3://b/day", "--on", "sagemaker"), "--role: a job needs one; give the ARN of a role"),
        (
            ("s3://b/logs/", "s3://b/day", "--on", "sagemaker", "--role", ROLE, "--subnet", "subnet-1"),
            "network: subnets ('subnet-1',), security groups (); give both or neither",
        ),
        (
            ("s3://b/logs/", "s3://b/day", "--on", "sagemaker", "--role", ROLE),
            "processing jobs take images of ECR only; push it there and give its whole name",
        ),
        (
            ("logs", "s3://b/day", "--on", "sagemaker", "--role", ROLE, "--image", "1.dkr.ecr.eu-west-1.amazonaws.com/steps"),
            "logs: jobs at SageMaker read and write s3:// only; copy it there first",
        ),
        (
            ("s3://b/l/", "s3://b/day", "--on", "sagemaker", "--role", ROLE, "--instance-count", "3"),
            "3 machines, code '': for Spark; say --engine spark, or leave out",
        ),
        (
            ("s3://b/l/", "s3://b/day", "--on", "sagemaker", "--role", ROLE, "--engine", "spark"),
            "code '': Spark's hosts need a prefix in S3 with wheels",
        ),
        (
            ("s3://b/l/", "s3://b/day", "--on", "sagemaker", "--role", "me", "--image", "1.dkr.ecr.eu-west-1.amazonaws.com/steps"),
            "CreateProcessingJob: Invalid length for parameter RoleArn, value: 2, valid min length: 20",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    ctrflow: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    done = ctrflow("preprocess", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
