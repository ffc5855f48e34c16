"""The local endpoint against a real boto3 client; the training programs are small Python scripts in real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from components.request_checks import service_model
from pipelines.local.sagemaker import LocalSageMaker

GRACE_S = 1.0
LAST = ("Completed", "Failed", "Stopped")


def client_of(endpoint: str, service: str = "sagemaker") -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}),
    )


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[LocalSageMaker]:
    with LocalSageMaker(tmp_path / "jobs", stop_grace_s=GRACE_S) as running:
        yield running


@pytest.fixture
def client(endpoint: LocalSageMaker) -> Any:
    return client_of(endpoint.url)


def request(tmp_path: Path, program: str, name: str = "job", *, hosts: int = 1, **more: Any) -> dict[str, Any]:
    """A request whose entrypoint is a Python program, kept in a file because an argument has at most 256 characters."""
    (tmp_path / f"{name}.py").write_text(program)
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "example.com/ctrflow/training:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3"],
            "ContainerArguments": [str(tmp_path / f"{name}.py")],
        },
        "RoleArn": "arn:aws:iam::000000000000:role/ctrflow",
        "OutputDataConfig": {"S3OutputPath": (tmp_path / "out").as_uri()},
        "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": hosts, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        **more,
    }


def channel(name: str, uri: str, mode: str = "File", distribution: str = "FullyReplicated") -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": distribution}
    return {"ChannelName": name, "InputMode": mode, "DataSource": {"S3DataSource": source}}


def eventually(look: Callable[[], Any], within_s: float = 20.0) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def ended(client: Any, name: str = "job") -> dict[str, Any]:
    def look() -> Any:
        description = client.describe_training_job(TrainingJobName=name)
        return description if description["TrainingJobStatus"] in LAST else None

    description: dict[str, Any] = eventually(look)
    return description


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


WRITES_EVERYTHING = """
import json, os, pathlib
base = pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"])
assert pathlib.Path.cwd() == base
config = {path.stem: json.loads(path.read_text()) for path in (base / "input/config").iterdir()}
me = config["resourceconfig"]["current_host"]
files = [path for depth in ("*/*", "*/*/*") for path in (base / "input/data").glob(depth) if path.is_file()]
data = {str(path.relative_to(base / "input/data")): path.read_text() for path in files}
(base / "model/weights").write_text("model of " + me)
(base / "output/data" / f"{me}.json").write_text(json.dumps({"config": config, "data": data, "environment": dict(os.environ)}))
(base / "output/data/shared.txt").write_text(me)
print("hello from", me)
"""


def read_tar(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read().decode() for member in tar if member.isfile()}  # type: ignore[union-attr]


def test_two_hosts_get_the_container_contract_and_their_outputs_come_back(tmp_path: Path, client: Any) -> None:
    (tmp_path / "train").mkdir()
    for name in "abc":
        (tmp_path / "train" / name).write_text(f"rows {name}")
    (tmp_path / "manifest.json").write_text("{}")
    client.create_training_job(
        **request(
            tmp_path,
            WRITES_EVERYTHING,
            hosts=2,
            HyperParameters={"epochs": "2"},
            Environment={"GREETING": "hello", "SAGEMAKER_BASE_DIR": "/not/this"},
            InputDataConfig=[
                channel("train", (tmp_path / "train").as_uri(), "FastFile"),
                channel("sharded", (tmp_path / "train").as_uri(), "File", "ShardedByS3Key"),
                channel("manifest", (tmp_path / "manifest.json").as_uri()),
            ],
        )
    )
    done = ended(client)
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
    assert [step["Status"] for step in done["SecondaryStatusTransitions"]] == [
        "Starting",
        "Downloading",
        "Training",
        "Uploading",
        "Completed",
    ]
    assert done["BillableTimeInSeconds"] >= 1
    folder = tmp_path / "out" / "job" / "output"
    assert done["ModelArtifacts"]["S3ModelArtifacts"] == (folder / "model.tar.gz").as_uri()
    assert read_tar(folder / "model.tar.gz") == {"weights": "model of algo-1"}
    output = read_tar(folder / "output.tar.gz")
    assert output.keys() == {"algo-1.json", "algo-2.json", "shared.txt"}
    assert output["shared.txt"] == "algo-1"
    first, second = json.loads(output["algo-1.json"]), json.loads(output["algo-2.json"])
    assert second["config"] == {
        "resourceconfig": {
            "current_host": "algo-2",
            "current_instance_type": "ml.c5.xlarge",
            "hosts": ["algo-1", "algo-2"],
            "network_interface_name": "lo",
        },
        "hyperparameters": {"epochs": "2"},
        "inputdataconfig": {
            "train": {"TrainingInputMode": "FastFile", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"},
            "sharded": {"TrainingInputMode": "File", "S3DistributionType": "ShardedByS3Key", "RecordWrapperType": "None"},
            "manifest": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"},
        },
    }
    everywhere = {f"train/{name}": f"rows {name}" for name in "abc"} | {"manifest/manifest.json": "{}"}
    assert first["data"] == everywhere | {"sharded/a": "rows a", "sharded/c": "rows c"}
    assert second["data"] == everywhere | {"sharded/b": "rows b"}
    for host in (first, second):
        assert json.loads(host["environment"]["CTRFLOW_HOST_ADDRESSES"]) == {"algo-1": "127.0.0.1", "algo-2": "127.0.0.2"}
        assert host["environment"]["TRAINING_JOB_NAME"] == "job"
        assert host["environment"]["GREETING"] == "hello"
    assert first["environment"]["CTRFLOW_PORT_BASE"] == second["environment"]["CTRFLOW_PORT_BASE"]


def test_two_jobs_at_once_get_ports_of_their_own(tmp_path: Path, client: Any) -> None:
    program = "import os, time; open('output/data/port', 'w').write(os.environ['CTRFLOW_PORT_BASE']); time.sleep(1)"
    for name in ("one", "two"):
        client.create_training_job(**request(tmp_path, program, name))
    for name in ("one", "two"):
        ended(client, name)
    ports = [int(read_tar(tmp_path / "out" / name / "output" / "output.tar.gz")["port"]) for name in ("one", "two")]
    assert abs(ports[0] - ports[1]) >= 100


@pytest.mark.parametrize(
    ("operation", "wrong", "expected"),
    [
        ("create_training_job", {"TrainingJobName": "under_score"}, "TrainingJobName: 'under_score' does not match"),
        ("create_training_job", {"ResourceConfig": {"InstanceType": "ml.none", "InstanceCount": 1}}, "'ml.none' is not one"),
        ("create_training_job", {"ResourceConfig": {"InstanceCount": 1}}, "InstanceType"),
        ("create_training_job", {"EnableManagedSpotTraining": True}, "MaxWaitTimeInSeconds is below MaxRuntimeInSeconds"),
        ("create_training_job", {"EnableNetworkIsolation": True}, "network isolation"),
        ("create_training_job", {"CheckpointConfig": {"S3Uri": "s3://b/c", "LocalPath": "/tmp"}}, "only /opt/ml/checkpoints"),
        ("create_training_job", {"VpcConfig": {"SecurityGroupIds": ["s"], "Subnets": ["n"]}}, "does not carry out VpcConfig"),
        ("create_training_job", {"InputDataConfig": [channel("train", "http://b/k")]}, "'http://b/k' does not match"),
    ],
)
def test_what_the_service_or_the_endpoint_cannot_do_is_refused(
    tmp_path: Path, client: Any, operation: str, wrong: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ClientError, match=expected) as error:
        getattr(client, operation)(**request(tmp_path, "pass") | wrong)
    assert code(error) == "ValidationException"
    assert client.list_training_jobs()["TrainingJobSummaries"] == []


def test_a_name_can_be_used_once(tmp_path: Path, client: Any) -> None:
    client.create_training_job(**request(tmp_path, "pass"))
    with pytest.raises(ClientError, match="unique") as error:
        client.create_training_job(**request(tmp_path, "pass"))
    assert code(error) == "ResourceInUse"
    ended(client)
    with pytest.raises(ClientError):
        client.create_training_job(**request(tmp_path, "pass"))


@pytest.mark.parametrize("operation", ["describe_training_job", "stop_training_job"])
def test_a_job_that_is_not_there_is_not_found(client: Any, operation: str) -> None:
    with pytest.raises(ClientError, match="nowhere not found") as error:
        getattr(client, operation)(TrainingJobName="nowhere")
    assert code(error) == "ResourceNotFound"


def test_an_operation_that_is_not_there_is_refused(client: Any) -> None:
    with pytest.raises(ClientError) as error:
        client.list_models()
    assert code(error) == "UnknownOperationException"


def test_the_responses_have_the_shape_of_the_service_model(tmp_path: Path, client: Any, endpoint: LocalSageMaker) -> None:
    client.create_training_job(**request(tmp_path, "open('model/m', 'w')", Tags=[{"Key": "team", "Value": "ads"}]))
    arn = ended(client)["TrainingJobArn"]
    for operation, body in (
        ("DescribeTrainingJob", {"TrainingJobName": "job"}),
        ("ListTrainingJobs", {}),
        ("ListTags", {"ResourceArn": arn}),
    ):
        reply = endpoint.answer(f"SageMaker.{operation}", json.dumps(body).encode())
        shape = service_model("sagemaker").operation_model(operation).output_shape
        report = ParamValidator().validate(reply, shape)
        assert not report.has_errors(), report.generate_report()


def test_tags_and_lists(tmp_path: Path, client: Any) -> None:
    for name in ("first", "second", "third"):
        client.create_training_job(**request(tmp_path, "pass", name, Tags=[{"Key": "run", "Value": "7"}]))
    arn = client.describe_training_job(TrainingJobName="second")["TrainingJobArn"]
    client.add_tags(ResourceArn=arn, Tags=[{"Key": "owner", "Value": "ads"}])
    assert client.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "run", "Value": "7"}, {"Key": "owner", "Value": "ads"}]
    for name in ("first", "second", "third"):
        ended(client, name)

    def names(**by: Any) -> list[str]:
        pages = client.get_paginator("list_training_jobs").paginate(**by)
        return [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]

    assert names() == names(MaxResults=1) == ["third", "second", "first"]
    assert names(NameContains="ir") == ["third", "first"]
    assert names(StatusEquals="Failed") == []


def test_the_failure_reason_is_what_the_first_failing_host_wrote(tmp_path: Path, client: Any) -> None:
    program = """
import json, os, pathlib, signal, sys, time
host = json.load(open("input/config/resourceconfig.json"))["current_host"]
def consequence(*_):
    pathlib.Path("output/failure").write_text("only a consequence")
    sys.exit(5)
signal.signal(signal.SIGTERM, consequence)
open("ready", "w")
while not pathlib.Path(f"../algo-1/ready").exists(): time.sleep(0.01)
if host == "algo-2":
    pathlib.Path("output/failure").write_text("id 40 is outside 0..39" + "." * 2000)
    sys.exit(3)
time.sleep(60)
"""
    client.create_training_job(**request(tmp_path, program, hosts=2))
    done = ended(client)
    assert done["TrainingJobStatus"] == "Failed"
    assert done["FailureReason"].startswith("AlgorithmError: id 40 is outside 0..39....")
    assert len(done["FailureReason"]) == 1024  # the service model's limit
    assert (tmp_path / "jobs/job/algo-1/output/failure").read_text() == "only a consequence"  # it was asked to stop
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('before'); raise SystemExit(3)", "algo-1 ended with exit code 3 and no output/failure; its last line: before"),
        ("import os; os.kill(os.getpid(), 9)", r"algo-1 was killed by signal 9 \(SIGKILL\) and left no output/failure"),
        ("import nowhere", "exit code 1 .*ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_without_a_failure_file_the_exit_is_the_reason(tmp_path: Path, client: Any, program: str, reason: str) -> None:
    client.create_training_job(**request(tmp_path, program))
    assert re.search("^AlgorithmError: .*" + reason, ended(client)["FailureReason"])


def test_a_channel_without_objects_fails_the_job(tmp_path: Path, client: Any) -> None:
    uri = (tmp_path / "nowhere").as_uri()
    client.create_training_job(**request(tmp_path, "pass", InputDataConfig=[channel("train", uri)]))
    assert ended(client)["FailureReason"] == f"ClientError: Data download failed for channel train: no object under {uri}"


# Starts a child in a session of its own, and says its process ids.
WITH_CHILD = """
import os, pathlib, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
{}
pathlib.Path("pids.tmp").write_text(f"{{os.getpid()}} {{child.pid}}")
os.rename("pids.tmp", "pids")
time.sleep(600)
"""
POLITE = WITH_CHILD.format("signal.signal(signal.SIGTERM, lambda *_: (open('output/data/goodbye', 'w').write('bye'), sys.exit(0)))")
STUBBORN = WITH_CHILD.format("signal.signal(signal.SIGTERM, signal.SIG_IGN)")


def pids_of(base: Path) -> list[int]:
    eventually(lambda: (base / "pids").exists())
    return [int(pid) for pid in (base / "pids").read_text().split()]


def test_stop_lets_the_program_say_goodbye(tmp_path: Path, client: Any) -> None:
    client.create_training_job(**request(tmp_path, POLITE))
    pids = pids_of(tmp_path / "jobs/job/algo-1")
    client.stop_training_job(TrainingJobName="job")
    assert client.describe_training_job(TrainingJobName="job")["TrainingJobStatus"] in ("Stopping", "Stopped")
    done = ended(client)
    assert (done["TrainingJobStatus"], done["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert [step["Status"] for step in done["SecondaryStatusTransitions"]][2:] == ["Training", "Stopping", "Stopped"]
    assert read_tar(tmp_path / "out/job/output/output.tar.gz") == {"goodbye": "bye"}  # as the service keeps what is there
    assert all(gone(pid) for pid in pids)
    with pytest.raises(ClientError, match="is in status Stopped and cannot be stopped") as error:
        client.stop_training_job(TrainingJobName="job")
    assert code(error) == "ValidationException"


def test_stop_kills_what_does_not_go_within_the_grace(tmp_path: Path, client: Any) -> None:
    client.create_training_job(**request(tmp_path, STUBBORN, hosts=2))
    pids = pids_of(tmp_path / "jobs/job/algo-1") + pids_of(tmp_path / "jobs/job/algo-2")
    asked = time.monotonic()
    client.stop_training_job(TrainingJobName="job")
    assert ended(client)["SecondaryStatus"] == "Stopped"
    assert GRACE_S <= time.monotonic() - asked < GRACE_S + 5
    assert all(gone(pid) for pid in pids)


def test_the_time_limit_stops_a_job(tmp_path: Path, client: Any) -> None:
    client.create_training_job(**request(tmp_path, POLITE, StoppingCondition={"MaxRuntimeInSeconds": 1}))
    done = ended(client)
    assert (done["TrainingJobStatus"], done["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert all(gone(pid) for pid in pids_of(tmp_path / "jobs/job/algo-1"))


def test_children_left_behind_end_with_the_program(tmp_path: Path, client: Any) -> None:
    client.create_training_job(**request(tmp_path, WITH_CHILD.format("").replace("time.sleep(600)\n", "\n")))
    assert ended(client)["TrainingJobStatus"] == "Completed"
    assert all(gone(pid) for pid in pids_of(tmp_path / "jobs/job/algo-1"))


def test_leaving_the_endpoint_kills_its_jobs(tmp_path: Path) -> None:
    with LocalSageMaker(tmp_path / "jobs") as endpoint:
        client_of(endpoint.url).create_training_job(**request(tmp_path, STUBBORN))
        pids = pids_of(tmp_path / "jobs/job/algo-1")
        assert not any(gone(pid) for pid in pids)
        left = time.monotonic()
    assert time.monotonic() - left < 5
    assert all(gone(pid) for pid in pids)


def test_jobs_do_not_outlive_an_endpoint_that_is_killed(tmp_path: Path) -> None:
    server = f"""
import sys, time
from pathlib import Path
from pipelines.local.sagemaker import LocalSageMaker
with LocalSageMaker(Path({str(tmp_path / "jobs")!r})) as endpoint:
    print(endpoint.url, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        client_of(process.stdout.readline().strip()).create_training_job(**request(tmp_path, STUBBORN, hosts=2))
        pids = pids_of(tmp_path / "jobs/job/algo-1") + pids_of(tmp_path / "jobs/job/algo-2")
        os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: all(gone(pid) for pid in pids), within_s=5)


def test_log_lines_can_be_followed_whole_and_in_order(tmp_path: Path, client: Any, endpoint: LocalSageMaker) -> None:
    program = """
import pathlib, time
print("one"); print("tw", end="", flush=True)
open("half", "w")
while not pathlib.Path("go").exists(): time.sleep(0.01)
print("o"); print("three", end="")
"""
    client.create_training_job(**request(tmp_path, program))
    base = tmp_path / "jobs/job/algo-1"
    eventually(lambda: (base / "half").exists())
    logs = client_of(endpoint.url, "logs")
    group = {"logGroupName": "/aws/sagemaker/TrainingJobs"}
    (stream,) = logs.describe_log_streams(**group, logStreamNamePrefix="job/")["logStreams"]
    place = {**group, "logStreamName": stream["logStreamName"]}
    assert stream["logStreamName"].startswith("job/algo-1-")
    first = logs.get_log_events(**place, startFromHead=True)
    assert [event["message"] for event in first["events"]] == ["one"]
    (base / "go").touch()
    ended(client)
    second = logs.get_log_events(**place, nextToken=first["nextForwardToken"], limit=1)
    assert [event["message"] for event in second["events"]] == ["two"]
    third = logs.get_log_events(**place, nextToken=second["nextForwardToken"])
    assert [event["message"] for event in third["events"]] == ["three"]
    fourth = logs.get_log_events(**place, nextToken=third["nextForwardToken"])
    assert (fourth["events"], fourth["nextForwardToken"]) == ([], third["nextForwardToken"])
    with pytest.raises(ClientError) as error:
        logs.get_log_events(**group, logStreamName="job/algo-9-0")
    assert code(error) == "ResourceNotFoundException"


@pytest.mark.parametrize("mode", ["File", "FastFile"])
def test_channels_and_artifacts_may_lie_in_s3(tmp_path: Path, client: Any, s3: Any, mode: str) -> None:
    for key in ("day/train/a", "day/train/b", "day/train-old/c"):
        s3.put_object(Bucket="clicks", Key=key, Body=f"rows {key}".encode())
    client.create_training_job(
        **request(
            tmp_path,
            WRITES_EVERYTHING,
            hosts=2,
            OutputDataConfig={"S3OutputPath": "s3://clicks/jobs/"},
            InputDataConfig=[
                channel("folder", "s3://clicks/day/train/", mode, "ShardedByS3Key"),
                channel("object", "s3://clicks/day/train/a", mode),
                channel("prefix", "s3://clicks/day/train-", mode),
            ],
        )
    )
    done = ended(client)
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
    assert done["ModelArtifacts"]["S3ModelArtifacts"] == "s3://clicks/jobs/job/output/model.tar.gz"
    s3.download_file("clicks", "jobs/job/output/output.tar.gz", str(tmp_path / "output.tar.gz"))
    output = read_tar(tmp_path / "output.tar.gz")
    everywhere = {"object/a": "rows day/train/a", "prefix/train-old/c": "rows day/train-old/c"}
    assert json.loads(output["algo-1.json"])["data"] == everywhere | {"folder/a": "rows day/train/a"}
    assert json.loads(output["algo-2.json"])["data"] == everywhere | {"folder/b": "rows day/train/b"}


def test_an_object_cannot_be_laid_outside_its_channel(tmp_path: Path, client: Any, s3: Any) -> None:
    s3.put_object(Bucket="clicks", Key="day/../../../escaped", Body=b"x")
    client.create_training_job(**request(tmp_path, "pass", InputDataConfig=[channel("train", "s3://clicks/day/")]))
    assert "day/../../../escaped" in ended(client)["FailureReason"]
    assert not list(tmp_path.rglob("escaped"))
