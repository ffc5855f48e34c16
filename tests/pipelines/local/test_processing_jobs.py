"""Processing jobs of the local endpoint against a real boto3 client; the programs are small Python scripts in real processes."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from components.request_checks import service_model
from pipelines.local.sagemaker import LocalSageMaker

LAST = ("Completed", "Failed", "Stopped")
# Says what the container sees, as an output file named by its host.
LOOKS = """
import json, os, pathlib, sys
base = pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"])
resources = json.loads((base / "config/resourceconfig.json").read_text())
data = {str(path.relative_to(base / "processing/input")): path.read_text()
        for path in sorted((base / "processing/input").rglob("*")) if path.is_file()}
seen = {"arguments": sys.argv[1:], "resources": resources, "data": data, "base": str(base), "greeting": os.environ.get("GREETING"),
        "request": json.loads((base / "config/processingjobconfig.json").read_text())}
(base / "processing/output" / (resources["current_host"] + ".json")).write_text(json.dumps(seen))
(base / "output/message").write_text(resources["current_host"] + " is done. ")
"""


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[LocalSageMaker]:
    with LocalSageMaker(tmp_path / "jobs", stop_grace_s=1.0) as running:
        yield running


@pytest.fixture
def client(endpoint: LocalSageMaker) -> Any:
    return boto3.client(
        "sagemaker",
        endpoint_url=endpoint.url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )


def an_input(name: str, uri: str, distribution: str = "FullyReplicated", **more: Any) -> dict[str, Any]:
    source = {"S3Uri": uri, "LocalPath": f"/opt/ml/processing/input/{name}", "S3DataType": "S3Prefix", "S3InputMode": "File"}
    return {"InputName": name, "S3Input": {**source, "S3DataDistributionType": distribution, **more}}


def an_output(uri: str, **more: Any) -> dict[str, Any]:
    target = {"S3Uri": uri, "LocalPath": "/opt/ml/processing/output", "S3UploadMode": "EndOfJob", **more}
    return {"Outputs": [{"OutputName": "out", "S3Output": target}]}


def request(tmp_path: Path, program: str, name: str = "job", *, hosts: int = 1, **more: Any) -> dict[str, Any]:
    """A request whose program travels as an input, as AWS's own script processors do it."""
    code = tmp_path / f"code-{name}"
    code.mkdir(exist_ok=True)
    (code / "app.py").write_text(program)
    inputs = [an_input("code", code.as_uri()), *more.pop("ProcessingInputs", [])]
    return {
        "ProcessingJobName": name,
        "AppSpecification": {
            "ImageUri": "example.com/ctrflow/steps:1",
            "ContainerEntrypoint": ["python3", "/opt/ml/processing/input/code/app.py"],
        },
        "ProcessingInputs": inputs,
        "ProcessingOutputConfig": an_output((tmp_path / "out").as_uri()),
        "ProcessingResources": {"ClusterConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": hosts, "VolumeSizeInGB": 30}},
        "RoleArn": "arn:aws:iam::000000000000:role/ctrflow",
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        **more,
    }


def ended(client: Any, name: str = "job") -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while (described := client.describe_processing_job(ProcessingJobName=name))["ProcessingJobStatus"] not in LAST:
        assert time.monotonic() < deadline, "it did not end in time"
        time.sleep(0.02)
    found: dict[str, Any] = described
    return found


def test_every_host_finds_inputs_configuration_and_arguments_as_in_a_container(tmp_path: Path, client: Any) -> None:
    days = tmp_path / "days"
    (days / "deep").mkdir(parents=True)
    for name in ("a", "b", "deep/c"):
        (days / name).write_text(f"rows {name}")
    wanted = request(
        tmp_path,
        LOOKS,
        hosts=2,
        ProcessingInputs=[an_input("all", days.as_uri()), an_input("shared out", days.as_uri(), "ShardedByS3Key")],
        Environment={"GREETING": "hello"},
    )
    wanted["AppSpecification"]["ContainerArguments"] = ["--rows", "/opt/ml/processing/input/all", "x/opt/ml/y"]
    arn = client.create_processing_job(**wanted)["ProcessingJobArn"]
    done = ended(client)
    assert done["ProcessingJobStatus"] == "Completed", done.get("FailureReason")
    assert done["ExitMessage"] == "algo-1 is done. algo-2 is done. "
    assert done["CreationTime"] <= done["ProcessingStartTime"] <= done["ProcessingEndTime"]
    everywhere = {"all/a": "rows a", "all/b": "rows b", "all/deep/c": "rows deep/c", "code/app.py": LOOKS}
    shares = [{"shared out/a": "rows a", "shared out/deep/c": "rows deep/c"}, {"shared out/b": "rows b"}]
    for host, share in zip(("algo-1", "algo-2"), shares, strict=True):
        seen = json.loads((tmp_path / "out" / f"{host}.json").read_text())
        assert seen["data"] == everywhere | share
        assert seen["resources"] == {"current_host": host, "hosts": ["algo-1", "algo-2"]}
        assert seen["arguments"] == ["--rows", f"{seen['base']}/processing/input/all", "x/opt/ml/y"]
        assert seen["greeting"] == "hello"
        assert seen["request"] == {**wanted, "ProcessingJobArn": arn}


def test_what_a_failed_job_left_is_not_uploaded_and_others_are_stopped(tmp_path: Path, client: Any) -> None:
    program = """
import json, os, pathlib, sys, time
base = pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"])
host = json.loads((base / "config/resourceconfig.json").read_text())["current_host"]
(base / "processing/output" / host).write_text("half")
(base / "output/message").write_text("x" * 2000)
if host == "algo-2": print("no rows"); sys.exit(7)
time.sleep(60)
"""
    client.create_processing_job(**request(tmp_path, program, hosts=2))
    done = ended(client)
    assert done["ProcessingJobStatus"] == "Failed"
    assert done["FailureReason"] == "AlgorithmError: algo-2 ended with exit code 7; its last line: no rows"
    assert done["ExitMessage"] == "x" * 1024  # the first KB
    assert not (tmp_path / "out").exists()


def test_a_job_can_be_stopped_once(tmp_path: Path, client: Any) -> None:
    client.create_processing_job(**request(tmp_path, "import time; time.sleep(60)"))
    client.stop_processing_job(ProcessingJobName="job")
    assert ended(client)["ProcessingJobStatus"] == "Stopped"
    with pytest.raises(ClientError, match="Processing job job is in status Stopped and cannot be stopped"):
        client.stop_processing_job(ProcessingJobName="job")


def test_an_input_without_objects_fails_the_job(tmp_path: Path, client: Any) -> None:
    uri = (tmp_path / "nowhere").as_uri()
    client.create_processing_job(**request(tmp_path, "pass", ProcessingInputs=[an_input("rows", uri)]))
    assert ended(client)["FailureReason"] == f"ClientError: Data download failed for input rows: no object under {uri}"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"ProcessingJobName": "under_score"}, "ProcessingJobName: 'under_score' does not match"),
        ({"AppSpecification": {"ImageUri": "i"}}, "an image's own entrypoint"),
        ({"NetworkConfig": {"EnableNetworkIsolation": True}}, "does not carry out NetworkConfig"),
        ({"ProcessingInputs": [an_input("r", "s3://b/k", S3InputMode="Pipe")]}, "input r: only S3InputMode File"),
        ({"ProcessingInputs": [an_input("r", "s3://b/k", S3DataType="ManifestFile")]}, "input r: only S3Input with S3DataType"),
        ({"ProcessingInputs": [an_input("r", "s3://b/k", S3CompressionType="Gzip")]}, "without decompression"),
        ({"ProcessingInputs": [an_input("r", "s3://b/k", LocalPath="/root")]}, "input r: a LocalPath that is not below"),
        ({"ProcessingOutputConfig": an_output("s3://b/k", LocalPath="/opt/ml/processing/../x")}, "output out: a LocalPath"),
        ({"ProcessingOutputConfig": an_output("s3://b/k", S3UploadMode="Continuous")}, "only S3UploadMode EndOfJob"),
    ],
)
def test_what_the_service_or_the_endpoint_cannot_do_is_refused(
    tmp_path: Path, client: Any, wrong: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ClientError, match=expected) as error:
        client.create_processing_job(**request(tmp_path, "pass", **wrong))
    assert error.value.response["Error"]["Code"] == "ValidationException"
    assert client.list_processing_jobs()["ProcessingJobSummaries"] == []


def test_a_training_job_and_a_processing_job_may_have_one_name(tmp_path: Path, client: Any) -> None:
    client.create_processing_job(**request(tmp_path, "pass", Tags=[{"Key": "run", "Value": "7"}]))
    with pytest.raises(ClientError, match="Processing job names must be unique") as error:
        client.create_processing_job(**request(tmp_path, "pass"))
    assert error.value.response["Error"]["Code"] == "ResourceInUse"
    with pytest.raises(ClientError, match="Training job job not found"):
        client.describe_training_job(TrainingJobName="job")
    assert client.list_training_jobs()["TrainingJobSummaries"] == []
    arn = ended(client)["ProcessingJobArn"]
    client.add_tags(ResourceArn=arn, Tags=[{"Key": "owner", "Value": "ads"}])
    assert client.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "run", "Value": "7"}, {"Key": "owner", "Value": "ads"}]
    (listed,) = client.list_processing_jobs(StatusEquals="Completed", NameContains="jo")["ProcessingJobSummaries"]
    assert (listed["ProcessingJobName"], listed["ProcessingJobArn"]) == ("job", arn)


def test_the_responses_have_the_shape_of_the_service_model(tmp_path: Path, client: Any, endpoint: LocalSageMaker) -> None:
    client.create_processing_job(**request(tmp_path, LOOKS))
    ended(client)
    for operation, body in (("DescribeProcessingJob", {"ProcessingJobName": "job"}), ("ListProcessingJobs", {})):
        reply = endpoint.answer(f"SageMaker.{operation}", json.dumps(body).encode())
        output = service_model("sagemaker").operation_model(operation).output_shape
        report = ParamValidator().validate(reply, output)
        assert not report.has_errors(), report.generate_report()
        assert reply.keys() <= output.members.keys()


def test_inputs_and_outputs_may_lie_in_s3(tmp_path: Path, client: Any, s3: Any) -> None:
    for key in ("day/a", "day/b"):
        s3.put_object(Bucket="clicks", Key=key, Body=f"rows {key}".encode())
    client.create_processing_job(
        **request(
            tmp_path,
            LOOKS,
            ProcessingInputs=[an_input("rows", "s3://clicks/day/")],
            ProcessingOutputConfig=an_output("s3://clicks/out/here/"),
        )
    )
    done = ended(client)
    assert done["ProcessingJobStatus"] == "Completed", done.get("FailureReason")
    (written,) = s3.list_objects_v2(Bucket="clicks", Prefix="out/")["Contents"]
    assert written["Key"] == "out/here/algo-1.json"
    seen = json.loads(s3.get_object(Bucket="clicks", Key=written["Key"])["Body"].read())
    assert {name: text for name, text in seen["data"].items() if name != "code/app.py"} == {
        "rows/a": "rows day/a",
        "rows/b": "rows day/b",
    }
