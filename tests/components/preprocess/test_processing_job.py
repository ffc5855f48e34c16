"""preprocess as a Processing job, run at the local endpoint: the same dataset as on this machine, byte by byte."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import boto3
import pytest
from moto.server import ThreadedMotoServer

from components.errors import InvalidConfig, InvalidRecords, ProcessingJobFailed
from components.manifest import read_manifest
from components.preprocess import in_container
from components.preprocess.config import PreprocessConfig
from components.preprocess.in_container import Delivery, Engine, Task, carry_out, gather_shards, read_task, task_environment
from components.preprocess.processing_job import Placement, location, preprocess_job, preprocess_on_sagemaker
from components.preprocess.step import preprocess
from components.processing_jobs import create_request
from components.request_checks import check_request
from components.spark_image import spark_image

LIBSVM = PreprocessConfig(format="libsvm", feature_size=100, seed=3, shards=2, processes=1)
TABLE = PreprocessConfig(format="csv", columns="label=click; numeric=price; categorical=country", processes=1)
WHERE = Placement(
    image="ctrflow/python-steps:1",
    role_arn="arn:aws:iam::000000000000:role/ctrflow",
    instance_type="ml.m5.4xlarge",
    run_id="2f0c",
    max_runtime_s=60,
)


def libsvm(path: Path, rows: int, start: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{int(n % 4 == 0)} {n}:1 {50 + n % 7}:{n / 4}\n" for n in range(start, start + rows)))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_job_makes_the_dataset_and_the_report_that_this_machine_makes(tmp_path: Path, client: Any) -> None:
    libsvm(tmp_path / "logs/b.libsvm", 20), libsvm(tmp_path / "logs/a.libsvm", 20, start=20)
    (tmp_path / "logs/_SUCCESS").write_text("a marker")
    alone = libsvm(tmp_path / "day 2.libsvm", 10, start=25)  # the same rows again, so that there is a warning with its name
    inputs = [str(tmp_path / "logs"), str(alone)]
    here, there = tmp_path / "here" / "day", tmp_path / "there" / "day"
    manifest = preprocess(LIBSVM, inputs, here, here.with_name("day.html"))
    done = preprocess_on_sagemaker(LIBSVM, inputs, str(there), WHERE, client)
    assert done.exit_message == f"{manifest.train.examples} rows to train, {manifest.validation.examples} to validate"
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert [source.path for source in read_manifest(there).sources] == [
        str(tmp_path / "logs" / "a.libsvm"),
        str(tmp_path / "logs" / "b.libsvm"),
        str(alone),
    ]
    # Asked again, the job that ran is found; nothing is paid for twice.
    assert preprocess_on_sagemaker(LIBSVM, inputs, str(there), WHERE, client) == done


def test_columns_and_an_earlier_transform_travel_with_the_job(tmp_path: Path, client: Any) -> None:
    day1, day2 = tmp_path / "day1.csv", tmp_path / "day2.csv"
    day1.write_text("click,price,country\n" + "".join(f"{n % 2},{n},{'de' if n % 3 else 'fr'}\n" for n in range(30)))
    day2.write_text("click,price,country\n1,2,de\n0,4,it\n1,8,fr\n0,2,de\n")
    columns = tmp_path / "columns.json"
    columns.write_text(json.dumps({"label": "click", "numeric": ["price"], "categorical": ["country"]}))
    preprocess(replace(TABLE, columns=str(columns)), [str(day1)], tmp_path / "one", tmp_path / "one.html")
    settings = replace(TABLE, columns=str(columns), transform=str(tmp_path / "one" / "transform.json"))
    preprocess(settings, [str(day2)], tmp_path / "here" / "two", tmp_path / "here" / "two.html")
    preprocess_on_sagemaker(settings, [str(day2)], str(tmp_path / "there" / "two"), WHERE, client)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_a_bad_row_is_named_as_the_user_knows_it_and_nothing_is_left(tmp_path: Path, client: Any) -> None:
    bad = libsvm(tmp_path / "bad.libsvm", 5)
    bad.write_text(bad.read_text() + "2 7:1 8:1\n")
    with pytest.raises(ProcessingJobFailed) as failure:
        preprocess_on_sagemaker(LIBSVM, [str(bad)], str(tmp_path / "there" / "day"), WHERE, client)
    assert f"its exit message: {bad}, line 6: " in str(failure.value)
    assert not (tmp_path / "there").exists()


def test_inputs_and_dataset_lie_in_s3(tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    for name, value in {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.get_host_and_port()[1]}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="clicks")
    rows = libsvm(tmp_path / "rows", 20).read_bytes()
    for key in ("day/1/a", "day/1/deep/b", "day/10"):
        s3.put_object(Bucket="clicks", Key=key, Body=rows)
    inputs, out = ["s3://clicks/day/1/", "s3://clicks/day/10"], "s3://clicks/sets/day1"
    preprocess_on_sagemaker(LIBSVM, inputs, out, WHERE, client)
    keys = {entry["Key"] for entry in s3.list_objects_v2(Bucket="clicks", Prefix="sets/")["Contents"]}
    assert {"sets/day1.html", "sets/day1/manifest.json", "sets/day1/train/part-00000.tfrecord"} <= keys
    manifest = json.loads(s3.get_object(Bucket="clicks", Key="sets/day1/manifest.json")["Body"].read())
    assert [source["path"] for source in manifest["sources"]] == [
        "s3://clicks/day/1/a",
        "s3://clicks/day/1/deep/b",
        "s3://clicks/day/10",
    ]
    with pytest.raises(ProcessingJobFailed, match="s3://clicks/day/1: not one object but 3, such as 1/a; end it with /"):
        preprocess_on_sagemaker(LIBSVM, ["s3://clicks/day/1"], out, WHERE, client)
    server.stop()


def test_the_request_is_what_the_service_takes(tmp_path: Path) -> None:
    job = preprocess_job(LIBSVM, ["s3://logs/day1/", "s3://logs/day2"], "s3://sets/ads/day1", WHERE)
    request = create_request(job)
    check_request("CreateProcessingJob", request, file_uris=False)
    assert request["AppSpecification"] == {
        "ImageUri": "ctrflow/python-steps:1",
        "ContainerEntrypoint": ["python3", "-m", "components.preprocess.in_container"],
    }
    inputs = [(each["S3Input"]["S3Uri"], each["S3Input"]["LocalPath"]) for each in request["ProcessingInputs"]]
    assert inputs == [("s3://logs/day1/", "/opt/ml/processing/input/0"), ("s3://logs/day2", "/opt/ml/processing/input/1")]
    (output,) = request["ProcessingOutputConfig"]["Outputs"]
    assert (output["S3Output"]["S3Uri"], output["S3Output"]["LocalPath"]) == ("s3://sets/ads/", "/opt/ml/processing/output")
    assert request["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 1


def test_the_request_for_spark_is_what_its_container_takes(tmp_path: Path) -> None:
    image = spark_image("eu-west-1")
    where = replace(WHERE, engine="spark", image=image, instance_count=4, code_uri="s3://code/ctrflow/")
    request = create_request(preprocess_job(LIBSVM, ["s3://logs/day1/"], "s3://sets/ads/day1", where))
    check_request("CreateProcessingJob", request, file_uris=False)
    entrypoint = request["AppSpecification"].pop("ContainerEntrypoint")
    assert request["AppSpecification"] == {"ImageUri": image}
    assert entrypoint[:2] == ["bash", "-c"]
    subprocess.run(["bash", "-n", *entrypoint[1:]], check=True)  # it is a program of the shell
    installed, submitted, gathered = entrypoint[2].split(" && ")
    assert installed == "python3 -m pip install --no-deps --ignore-requires-python /opt/ml/processing/input/code/*.whl"
    # smspark-submit takes a file and not a module, and it is not known where Python puts it.
    assert submitted.startswith("smspark-submit $(python3 -c ")
    echo = submitted.replace("smspark-submit", "echo").replace("python3", sys.executable)
    located = subprocess.run(["bash", "-c", echo], capture_output=True, text=True)
    assert located.stdout.strip() == in_container.__file__
    assert gathered == "python3 -m components.preprocess.in_container gather"
    inputs = [(each["S3Input"]["S3Uri"], each["S3Input"]["LocalPath"]) for each in request["ProcessingInputs"]]
    assert inputs[1:] == [("s3://code/ctrflow/", "/opt/ml/processing/input/code")]
    # Every host reads every file at the same path.
    assert {each["S3Input"]["S3DataDistributionType"] for each in request["ProcessingInputs"]} == {"FullyReplicated"}
    assert request["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 4
    assert read_task(request["Environment"]).engine == "spark"


def test_sparks_container_is_not_at_the_local_endpoint(tmp_path: Path, client: Any) -> None:
    where = replace(WHERE, engine="spark", code_uri="s3://code/ctrflow/")
    with pytest.raises(InvalidConfig, match="does not run at the local endpoint; leave out --on sagemaker to run Spark here"):
        preprocess_on_sagemaker(LIBSVM, [str(tmp_path)], str(tmp_path / "day"), where, client)
    assert client.list_processing_jobs()["ProcessingJobSummaries"] == []


def test_machines_and_code_are_for_spark() -> None:
    with pytest.raises(InvalidConfig, match="4 machines, code '': for Spark; say --engine spark"):
        replace(WHERE, instance_count=4)
    with pytest.raises(InvalidConfig, match="code 's3://code/ctrflow': Spark's hosts need a prefix in S3 with wheels"):
        replace(WHERE, engine="spark", code_uri="s3://code/ctrflow")


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None or shutil.which("java") is None, reason="needs pyspark and Java")
@pytest.mark.xdist_group("spark")
def test_spark_makes_the_same_dataset_in_a_container(
    tmp_path: Path, submit_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join([*submit_options, "pyspark-shell"]))
    for engine in get_args(Engine):
        rows = libsvm(tmp_path / engine / "processing/input/0/day.libsvm", 40)
        assert rows.is_file()
        (tmp_path / engine / "processing/output").mkdir()
        task = Task(inputs=("s3://logs/day.libsvm",), name="day1", settings=LIBSVM, engine=engine)
        carry_out(task, tmp_path / engine, master="local[2]")
    made = [contents(tmp_path / engine / "processing/output") for engine in get_args(Engine)]
    assert made[0] == made[1]
    assert [source.path for source in read_manifest(tmp_path / "spark/processing/output/day1").sources] == ["s3://logs/day.libsvm"]


def test_shards_of_a_host_without_the_driver_are_put_where_the_driver_has_its_own(tmp_path: Path) -> None:
    (tmp_path / ".day1.x7f/train").mkdir(parents=True)
    (tmp_path / ".day1.x7f/train/part-00003.tfrecord").write_text("rows")
    (tmp_path / ".day1.scratch.0a").mkdir()
    (tmp_path / ".day10.x7f").mkdir()
    gather_shards(tmp_path / "day1")
    assert contents(tmp_path) == {"day1/train/part-00003.tfrecord": b"rows"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".day10.x7f", "day1"]
    gather_shards(tmp_path / "day1")  # as on the driver's host, where nothing is left to do
    assert contents(tmp_path) == {"day1/train/part-00003.tfrecord": b"rows"}


@pytest.mark.parametrize("config", [LIBSVM, replace(TABLE, names=("click", "price", "Größe"), separator=";")])
def test_a_task_survives_its_journey(config: PreprocessConfig) -> None:
    task = Task(inputs=("s3://b/it's here/", 's3://b/"x" $y \\ z'), name="day1", settings=config)
    environment = task_environment(task)
    assert all(len(value) <= 256 for value in environment.values())
    assert read_task({"PATH": "/bin", **environment}) == task


def test_a_task_that_a_job_cannot_carry_is_refused() -> None:
    many = Task(inputs=tuple(f"s3://bucket/{'x' * 100}/{n}" for n in range(300)), name="day1", settings=LIBSVM)
    with pytest.raises(InvalidConfig, match=r"inputs and settings take \d+ characters and a job carries 23040; name fewer"):
        task_environment(many)
    with pytest.raises(InvalidConfig, match="CTRFLOW_PREPROCESS_0 is not set; start this program with ctrflow preprocess"):
        read_task({})
    document = {**asdict(replace(many, inputs=())), "shards": 3}
    with pytest.raises(InvalidConfig, match="'shards' is unknown"):
        read_task({f"CTRFLOW_PREPROCESS_{n}": part for n, part in enumerate(re.findall(".{1,256}", json.dumps(document)))})


@pytest.mark.parametrize(
    ("text", "local", "expected"),
    [
        ("s3://b/day1/", False, "s3://b/day1/"),
        ("s3://b/day1/*.gz", False, "takes whole prefixes and no patterns"),
        ("logs/day1", False, "read and write s3:// only; copy it there first"),
        ("file:///logs", False, "read and write s3:// only"),
        ("gs://b/day1", True, "read and write s3:// only"),
        ("file:///logs/x", True, "file:///logs/x"),
        ("/no where", True, "file:///no%20where"),
        ("/proc", True, "file:///proc/"),
    ],
)
def test_what_a_job_reaches(text: str, local: bool, expected: str) -> None:
    if expected.startswith(("s3:", "file:")):
        assert location(text, local=local) == expected
    else:
        with pytest.raises(InvalidConfig, match=re.escape(expected)):
            location(text, local=local)


@pytest.mark.parametrize("out", ["s3://bucket", ""])
def test_a_dataset_has_a_name_below_its_bucket(out: str) -> None:
    with pytest.raises(InvalidConfig, match="names no dataset; give one below the bucket"):
        preprocess_job(LIBSVM, ["s3://logs/day1/"], out, WHERE)


def test_names_of_files_are_given_back(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").touch()
    whole = Delivery(uri="s3://b/x/", folder=folder)
    assert whole.named(f"{folder}/deep/a, line 3: bad; {tmp_path}/1/b") == f"s3://b/x/deep/a, line 3: bad; {tmp_path}/1/b"
    with pytest.raises(InvalidRecords, match="s3://b/x: not one object but 1, such as deep/a"):
        _ = Delivery(uri="s3://b/x", folder=folder).argument
