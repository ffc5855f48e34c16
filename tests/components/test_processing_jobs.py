"""Processing jobs through the operator, against the real local endpoint; and their requests against botocore's service model.

What both kinds of jobs share, such as patience with a busy service, is pinned in test_training_jobs.py.
"""

import logging
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from components.errors import InvalidConfig, ProcessingJobFailed
from components.job_kinds import PROCESSING
from components.job_requests import Network
from components.jobs import JobStatus, run_job
from components.processing_jobs import (
    FinishedProcessingJob,
    ProcessingInput,
    ProcessingJob,
    ProcessingOutput,
    create_request,
    run_processing_job,
)
from components.request_checks import check_request

POLL_S = 0.05
SLEEPS = "import time; open('started', 'w'); time.sleep(60)"


def job(tmp_path: Path, program: str = "", **changes: Any) -> ProcessingJob:
    (tmp_path / "program.py").write_text(program)
    base = ProcessingJob(
        base_name="ctrflow-preprocess",
        run_id="2f0c",
        task="preprocess",
        image="example.com/ctrflow/steps:1",
        entrypoint=("python3", str(tmp_path / "program.py")),
        role_arn="arn:aws:iam::000000000000:role/ctrflow",
        instance_type="ml.m5.xlarge",
        instance_count=1,
        max_runtime_s=60,
    )
    return replace(base, **changes)


def run(job: ProcessingJob, client: Any, **how: Any) -> FinishedProcessingJob:
    return run_processing_job(job, client, poll_s=POLL_S, **how)


def status(client: Any, name: str) -> str:
    return str(client.describe_processing_job(ProcessingJobName=name)["ProcessingJobStatus"])


COPIES = """
import json, os, pathlib
me = json.load(open("config/resourceconfig.json"))["current_host"]
rows = pathlib.Path("processing/input/rows/part").read_text()
pathlib.Path(f"processing/output/{me}.txt").write_text(rows + os.environ["CTRFLOW_RUN_ID"])
if me == "algo-1": pathlib.Path("output/message").write_text("2 hosts")
print("copied on", me)
"""


def test_a_job_runs_to_its_end_with_inputs_outputs_logs_and_message(
    tmp_path: Path, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "components")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "part").write_text("rows of ")
    seen: list[JobStatus] = []
    wanted = job(
        tmp_path,
        COPIES,
        instance_count=2,
        inputs=(ProcessingInput(name="rows", uri=(tmp_path / "rows").as_uri(), path="/opt/ml/processing/input/rows"),),
        outputs=(ProcessingOutput(name="out", uri=(tmp_path / "out").as_uri(), path="/opt/ml/processing/output"),),
    )
    done = run(wanted, client, on_status=seen.append)
    assert done.name == create_request(wanted)["ProcessingJobName"]
    assert done.arn.endswith(f":processing-job/{done.name}")
    assert done.exit_message == "2 hosts"
    assert 0 < done.processing_s < 60
    assert [each.status for each in seen] == ["InProgress", "Completed"]
    written = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert written == {"algo-1.txt": "rows of 2f0c", "algo-2.txt": "rows of 2f0c"}
    for host in ("algo-1", "algo-2"):
        assert f"{done.name} {host}: copied on {host}" in caplog.messages


def test_asking_again_adopts_the_job_that_ran_or_runs(tmp_path: Path, client: Any) -> None:
    program = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"
    request = create_request(job(tmp_path, program))
    client.create_processing_job(**request)  # an earlier try, whose reply was lost
    folder = tmp_path / "jobs" / request["ProcessingJobName"] / "algo-1"
    threading.Timer(0.3, lambda: (folder / "go").touch()).start()
    first = run(job(tmp_path, program), client)
    assert first.name == request["ProcessingJobName"]
    assert run(job(tmp_path, program), client) == first
    assert len(client.list_processing_jobs()["ProcessingJobSummaries"]) == 1
    assert create_request(job(tmp_path, program, attempt=1))["ProcessingJobName"] != first.name


def test_a_name_that_belongs_to_another_job_is_left_alone(tmp_path: Path, client: Any) -> None:
    request = create_request(job(tmp_path, SLEEPS))
    client.create_processing_job(**request | {"Tags": [{"Key": "ctrflow:request-hash", "Value": "of-another"}]})
    with pytest.raises(ProcessingJobFailed, match=f"{request['ProcessingJobName']}: a processing job of this name already exists"):
        run(job(tmp_path, SLEEPS), client)
    assert status(client, request["ProcessingJobName"]) == "InProgress"


def test_a_failure_says_what_the_container_left_as_its_message(tmp_path: Path, client: Any) -> None:
    program = "open('output/message', 'w').write('day1.tsv, line 3:\\nlabel 2'); print('bad'); raise SystemExit(4)"
    name = create_request(job(tmp_path, program))["ProcessingJobName"]
    with pytest.raises(ProcessingJobFailed) as failure:
        run(job(tmp_path, program), client)
    reason = "algo-1 ended with exit code 4; its last line: bad; its exit message: day1.tsv, line 3: label 2"
    assert str(failure.value) == f"{name}: AlgorithmError: {reason}"


def test_the_time_limit_is_told_from_a_stop(tmp_path: Path, client: Any) -> None:
    with pytest.raises(ProcessingJobFailed, match=r"stopped by the service after MaxRuntimeInSeconds = 1 s$"):
        run(job(tmp_path, SLEEPS, max_runtime_s=1), client)
    wanted = job(tmp_path, SLEEPS)
    name = create_request(wanted)["ProcessingJobName"]
    threading.Timer(0.3, lambda: client.stop_processing_job(ProcessingJobName=name)).start()
    with pytest.raises(ProcessingJobFailed, match="stopped by someone's StopProcessingJob"):
        run(wanted, client)


def test_a_job_without_end_is_given_up_and_stopped(tmp_path: Path, client: Any, eventually: Callable[..., Any]) -> None:
    request = create_request(job(tmp_path, SLEEPS))
    with pytest.raises(ProcessingJobFailed, match="still InProgress after 1 s; it was asked to stop"):
        run_job(PROCESSING, request, client, poll_s=POLL_S, patience_s=None, on_status=None, overtime_s=-59)
    assert eventually(lambda: status(client, request["ProcessingJobName"]) == "Stopped")


@pytest.mark.parametrize(("sent", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_a_signal_to_the_operator_stops_the_job(
    tmp_path: Path, client: Any, eventually: Callable[..., Any], sent: signal.Signals, exit_code: int
) -> None:
    wanted = job(tmp_path, SLEEPS)
    name = create_request(wanted)["ProcessingJobName"]
    operator = tmp_path / "operator.py"
    operator.write_text(
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from components.clients import sagemaker_client\n"
        "from components.processing_jobs import ProcessingJob, run_processing_job\n"
        f"try: run_processing_job({wanted!r}, sagemaker_client(), poll_s=0.05)\nexcept KeyboardInterrupt: raise SystemExit(1)"
    )
    with subprocess.Popen([sys.executable, str(operator)]) as process:
        eventually(lambda: (tmp_path / "jobs" / name / "algo-1" / "started").exists())
        process.send_signal(sent)
        assert process.wait(30) == exit_code
    assert status(client, name) in ("Stopping", "Stopped")  # it had asked before it left
    assert eventually(lambda: status(client, name) == "Stopped")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"instance_type": "ml.c6gn.large"}, "ProcessingResources.ClusterConfig.InstanceType: 'ml.c6gn.large'"),
        ({"max_runtime_s": 777_601}, "StoppingCondition.MaxRuntimeInSeconds: 777601, at most 777600 expected"),
        ({"volume_gb": 20_000}, "VolumeSizeInGB: 20000, at most 16384 expected"),
        ({"instance_count": 101}, "InstanceCount: 101, at most 100 expected"),
        ({"arguments": ("x" * 257,)}, "AppSpecification.ContainerArguments[0]: 257 characters, at most 256"),
        ({"role_arn": "arn:aws:iam::1:role/x"}, "RoleArn"),
        ({"environment": {"a b": "c"}}, "Environment (the key 'a b')"),
        ({"inputs": (ProcessingInput(name="in", uri="/rows", path="/opt/ml/processing/in"),)}, "S3Input.S3Uri: '/rows'"),
        ({"network": Network(subnets=("a_b",), security_groups=("sg-1",))}, "NetworkConfig.VpcConfig.Subnets[0]: 'a_b'"),
    ],
)
def test_a_bad_request_is_not_sent(tmp_path: Path, client: Any, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match="^CreateProcessingJob: .*" + re.escape(named)):
        run(job(tmp_path, **changes), client)
    assert client.list_processing_jobs()["ProcessingJobSummaries"] == []


@pytest.mark.parametrize("path", ["/opt/ml/processing", "/opt/ml/input/data", "processing/x", "/opt/ml/processing/../model"])
def test_inputs_and_outputs_lie_where_the_service_wants_them(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(f"path {path} is not below /opt/ml/processing")):
        job(tmp_path, outputs=(ProcessingOutput(name="out", uri="s3://b/k", path=path),))


def test_names_and_paths_are_used_once(tmp_path: Path) -> None:
    one = ProcessingInput(name="rows", uri="s3://b/1", path="/opt/ml/processing/rows")
    with pytest.raises(InvalidConfig, match="input rows is there more than once"):
        job(tmp_path, inputs=(one, replace(one, path="/opt/ml/processing/other")))
    with pytest.raises(InvalidConfig, match="path /opt/ml/processing/rows is there more than once"):
        job(tmp_path, inputs=(one,), outputs=(ProcessingOutput(name="out", uri="s3://b/2", path=one.path),))
    with pytest.raises(InvalidConfig, match="give both or neither"):
        Network(subnets=("subnet-1",))


def test_the_whole_request_is_what_the_service_takes(tmp_path: Path) -> None:
    wanted = job(
        tmp_path,
        instance_count=3,
        volume_gb=200,
        arguments=("--rows", "7"),
        environment={"LEVEL": "info"},
        tags={"team": "ads"},
        inputs=(ProcessingInput(name="rows", uri="s3://b/in/", path="/opt/ml/processing/rows", distribution="ShardedByS3Key"),),
        outputs=(ProcessingOutput(name="logs", uri="s3://b/logs", path="/opt/ml/processing/logs", upload="Continuous"),),
        network=Network(subnets=("subnet-1",), security_groups=("sg-1",), encrypted_between_hosts=True),
        kms_key="alias/ctrflow",
    )
    request = create_request(wanted)
    request_hash = request["Environment"]["CTRFLOW_REQUEST_HASH"]
    assert request == {
        "ProcessingJobName": request["ProcessingJobName"],
        "AppSpecification": {
            "ImageUri": "example.com/ctrflow/steps:1",
            "ContainerEntrypoint": ["python3", str(tmp_path / "program.py")],
            "ContainerArguments": ["--rows", "7"],
        },
        "RoleArn": "arn:aws:iam::000000000000:role/ctrflow",
        "ProcessingInputs": [
            {
                "InputName": "rows",
                "S3Input": {
                    "S3Uri": "s3://b/in/",
                    "LocalPath": "/opt/ml/processing/rows",
                    "S3DataType": "S3Prefix",
                    "S3InputMode": "File",
                    "S3DataDistributionType": "ShardedByS3Key",
                },
            }
        ],
        "ProcessingOutputConfig": {
            "Outputs": [
                {
                    "OutputName": "logs",
                    "S3Output": {
                        "S3Uri": "s3://b/logs",
                        "LocalPath": "/opt/ml/processing/logs",
                        "S3UploadMode": "Continuous",
                    },
                }
            ],
            "KmsKeyId": "alias/ctrflow",
        },
        "ProcessingResources": {
            "ClusterConfig": {
                "InstanceType": "ml.m5.xlarge",
                "InstanceCount": 3,
                "VolumeSizeInGB": 200,
                "VolumeKmsKeyId": "alias/ctrflow",
            }
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "NetworkConfig": {
            "EnableNetworkIsolation": False,
            "EnableInterContainerTrafficEncryption": True,
            "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        },
        "Environment": {"LEVEL": "info", "CTRFLOW_RUN_ID": "2f0c", "CTRFLOW_REQUEST_HASH": request_hash},
        "Tags": [
            {"Key": "team", "Value": "ads"},
            {"Key": "ctrflow:run-id", "Value": "2f0c"},
            {"Key": "ctrflow:task", "Value": "preprocess"},
            {"Key": "ctrflow:request-hash", "Value": request_hash},
        ],
    }
    check_request("CreateProcessingJob", request, file_uris=False)
    # botocore checks what it would send, and that the reply it is given has the service's shape.
    stubbed = boto3.client("sagemaker", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    arn = f"arn:aws:sagemaker:us-east-1:000000000000:processing-job/{request['ProcessingJobName']}"
    with Stubber(stubbed) as stubber:
        stubber.add_response("create_processing_job", {"ProcessingJobArn": arn}, request)
        assert stubbed.create_processing_job(**request)["ProcessingJobArn"] == arn
