"""Plans as requests: the five main ones pinned whole, against botocore's service model, and what is refused before it is sent."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import Stubber

from components.clients import sagemaker_client
from components.errors import InvalidConfig
from components.job_settings import JobSettings
from components.manifest import Manifest
from components.plan import Plan
from components.plan_jobs import plan_job, write_files
from components.records import Batch, Schema
from components.request_checks import check_request
from components.training_jobs import Channel, TrainingJob, create_request

SCHEMA = Schema(field_size=2, feature_size=8, id_base=0)
JOBS = JobSettings(
    image="111122223333.dkr.ecr.eu-west-1.amazonaws.com/ctrflow/python-training:1",
    role_arn="arn:aws:iam::111122223333:role/ctrflow-execution",
    instance_type="ml.m5.large",
    run_id="run-7",
    output_uri="s3://bucket/out",
    data_uri="s3://bucket/day",
    max_runtime_s=3600,
)
METRICS = [
    {"Name": "loss", "Regex": "step [0-9]+ of [0-9]+, loss ([0-9.]+)"},
    {"Name": "examples_per_s", "Regex": "step [0-9]+ of .* ([0-9]+) examples/s"},
    {"Name": "checkpoint_step", "Regex": "checkpoint of step ([0-9]+) written"},
    {"Name": "resumed_at_step", "Regex": "resuming at step ([0-9]+) of"},
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, dataset_of: Callable[..., Manifest], rows_of: Callable[..., Batch]) -> Path:
    """Nine shards of training rows."""
    folder = tmp_path_factory.mktemp("plan_jobs") / "set"
    dataset_of(folder, "blocks", [rows_of(4, SCHEMA)] * 9, [rows_of(4, SCHEMA)], SCHEMA)
    return folder


def channel(name: str, place: str, mode: str, kind: str = "S3Prefix", distribution: str = "FullyReplicated") -> dict[str, Any]:
    source = {"S3DataType": kind, "S3Uri": f"s3://bucket/{place}", "S3DataDistributionType": distribution}
    return {"ChannelName": name, "InputMode": mode, "DataSource": {"S3DataSource": source}}


def machines(kind: str, count: int) -> dict[str, Any]:
    return {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 30}


def files_in(mode: str, distribution: str = "FullyReplicated") -> list[dict[str, Any]]:
    manifest = channel("manifest", "day/manifest.json", "File")
    return [channel("train", "day/train", mode, distribution=distribution), manifest, channel("validation", "day/validation", mode)]


PIPE = [
    *(channel(f"train-{local}", "out/channels/*.manifest", "Pipe", "ManifestFile") for local in range(8)),
    channel("manifest", "day/manifest.json", "File"),
    channel("validation", "day/validation", "FastFile"),
]
RUN_TIME = {"MaxRuntimeInSeconds": 3600}
SPOT = {
    "StoppingCondition": {**RUN_TIME, "MaxWaitTimeInSeconds": 7200},
    "EnableManagedSpotTraining": True,
    "CheckpointConfig": {"S3Uri": "s3://bucket/out/checkpoints/run-7/train"},
}
# Plan, machines, channels, hyperparameters of placement, and what else the request has.
MAIN_PLANS = {
    "single CPU": (
        Plan(strategy="single", instance_type="ml.c7i.4xlarge"),
        machines("ml.c7i.4xlarge", 1),
        files_in("FastFile"),
        {"strategy": "single", "workers_per_host": "1", "batch_size": "1024"},
        {},
    ),
    "parameter servers on 4 CPU hosts": (
        Plan(strategy="parameter_server", instance_type="ml.c5.4xlarge", instance_count=4, input_mode="File"),
        machines("ml.c5.4xlarge", 4),
        files_in("File"),
        {"strategy": "parameter_server", "workers_per_host": "1", "batch_size": "1024"},
        {},
    ),
    "Horovod on 4 CPU hosts": (
        Plan(strategy="horovod", instance_type="ml.c5.9xlarge", instance_count=4, batch_size=256, s3_distribution="ShardedByS3Key"),
        machines("ml.c5.9xlarge", 4),
        files_in("FastFile", "ShardedByS3Key"),
        {"strategy": "horovod", "workers_per_host": "1", "batch_size": "256"},
        {},
    ),
    "Horovod on an 8-GPU host in Pipe mode": (
        Plan(strategy="horovod", instance_type="ml.g5.48xlarge", workers_per_host=8, batch_size=128, input_mode="Pipe"),
        machines("ml.g5.48xlarge", 1),
        PIPE,
        {"strategy": "horovod", "workers_per_host": "8", "batch_size": "128"},
        {},
    ),
    "spot": (
        Plan(strategy="single", instance_type="ml.c7i.4xlarge", use_spot=True),
        machines("ml.c7i.4xlarge", 1),
        files_in("FastFile"),
        {"strategy": "single", "workers_per_host": "1", "batch_size": "1024", "checkpoint_steps": "500"},
        SPOT,
    ),
}


@pytest.mark.parametrize("name", MAIN_PLANS)
def test_the_request_of_a_main_plan(name: str, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, resources, channels, placed, more = MAIN_PLANS[name]
    planned = plan_job(plan, dataset, JOBS, task="train")
    request = create_request(planned.job)
    settings = request.pop("HyperParameters")
    assert {key: settings[key] for key in placed} == placed
    assert all(isinstance(value, str) for value in settings.values())
    lists = iter(planned.files)
    channels = [json.loads(json.dumps(each)) for each in channels]
    for each in channels:
        source = each["DataSource"]["S3DataSource"]
        source["S3Uri"] = next(lists) if source["S3DataType"] == "ManifestFile" else source["S3Uri"]
    run_hash = request["Environment"]["CTRFLOW_REQUEST_HASH"]
    assert request == {
        "TrainingJobName": request["TrainingJobName"],
        "AlgorithmSpecification": {
            "TrainingImage": JOBS.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "-m", "components.train.program.launch"],
            "MetricDefinitions": METRICS,
        },
        "RoleArn": JOBS.role_arn,
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": resources,
        "StoppingCondition": RUN_TIME,
        "InputDataConfig": channels,
        "Environment": {"CTRFLOW_RUN_ID": "run-7", "CTRFLOW_REQUEST_HASH": run_hash},
        "Tags": [
            {"Key": "ctrflow:run-id", "Value": "run-7"},
            {"Key": "ctrflow:task", "Value": "train"},
            {"Key": "ctrflow:request-hash", "Value": run_hash},
        ],
        **more,
    }
    request["HyperParameters"] = settings
    check_request("CreateTrainingJob", request, file_uris=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", "http://127.0.0.1:9")
    client = sagemaker_client()
    with Stubber(client) as stub:  # refuses members that the service model lacks
        arn = "arn:aws:sagemaker:eu-west-1:111122223333:training-job/x"
        stub.add_response("create_training_job", {"TrainingJobArn": arn}, request)
        client.create_training_job(**request)


def test_a_worker_s_channel_in_pipe_mode_lists_every_wth_shard(dataset: Path, tmp_path: Path, s3: Any) -> None:
    plan = Plan(strategy="horovod", workers_per_host=4, input_mode="Pipe")
    planned = plan_job(plan, dataset, replace(JOBS, output_uri="s3://clicks/out"), task="train")
    write_files(planned)
    found = []
    for channel in planned.job.channels[:4]:
        bucket, _, key = channel.uri.removeprefix("s3://").partition("/")
        prefix, *names = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
        assert prefix == {"prefix": "s3://bucket/day/train/"}
        found.append([int(name[5:10]) for name in names])
    assert found == [[0, 4, 8], [1, 5], [2, 6], [3, 7]]
    local = plan_job(plan, dataset, replace(JOBS, output_uri=(tmp_path / "out put").as_uri()), task="train")
    write_files(local)
    assert len(list((tmp_path / "out put" / "channels").iterdir())) == 4


def test_one_worker_a_host_in_pipe_mode_has_the_whole_prefix(dataset: Path) -> None:
    planned = plan_job(Plan(strategy="single", input_mode="Pipe"), dataset, JOBS, task="train")
    assert planned.files == {}
    assert (planned.job.channels[0].name, planned.job.channels[0].uri) == ("train", "s3://bucket/day/train")


def test_network_keys_tags_and_environment_reach_the_request(dataset: Path) -> None:
    jobs = replace(
        JOBS,
        subnets=["subnet-1"],  # type: ignore[arg-type]  # as JSON gives it
        security_groups=("sg-1",),
        encrypt_between_hosts=True,
        kms_key="alias/clicks",
        tags={"team": "ads"},
        environment={"NCCL_DEBUG": "WARN"},
    )
    request = create_request(plan_job(Plan(strategy="single"), dataset, jobs, task="train").job)
    assert request["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    assert request["EnableNetworkIsolation"] is False
    assert request["EnableInterContainerTrafficEncryption"] is True
    assert request["OutputDataConfig"]["KmsKeyId"] == request["ResourceConfig"]["VolumeKmsKeyId"] == "alias/clicks"
    assert {"Key": "team", "Value": "ads"} in request["Tags"]
    assert request["Environment"]["NCCL_DEBUG"] == "WARN"
    check_request("CreateTrainingJob", request, file_uris=False)


@pytest.mark.parametrize(
    ("kind", "own"),
    [("ml.c5.4xlarge", False), ("ml.m5.large", False), ("ml.c6i.8xlarge", False), ("ml.p3.2xlarge", False)]
    + [(kind, True) for kind in ("ml.g4dn.xlarge", "ml.g5.48xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.r5d.large")],
)
def test_a_machine_with_disks_of_its_own_takes_no_key_for_them(dataset: Path, kind: str, own: bool) -> None:
    plan = Plan(strategy="single", instance_type=kind)
    request = create_request(plan_job(plan, dataset, replace(JOBS, kms_key="k"), task="train").job)
    assert ("VolumeKmsKeyId" not in request["ResourceConfig"]) == own


def test_the_service_may_choose_among_the_types(dataset: Path) -> None:
    plan = Plan(strategy="single", instance_type="ml.c7i.4xlarge", alternatives=("ml.c6i.4xlarge", "ml.c5.4xlarge"))
    request = create_request(plan_job(plan, dataset, replace(JOBS, capacity="preferences"), task="train").job)
    types = [{"InstanceType": each} for each in ("ml.c7i.4xlarge", "ml.c6i.4xlarge", "ml.c5.4xlarge")]
    assert request["ResourceConfig"] == {"InstanceCount": 1, "VolumeSizeInGB": 30, "InstancePreferences": types}
    check_request("CreateTrainingJob", request, file_uris=False)


def test_only_probes_keep_their_machines_warm_and_none_is_on_spot(dataset: Path) -> None:
    plan = Plan(strategy="single", use_spot=True)
    probe = create_request(plan_job(plan, dataset, replace(JOBS, keep_alive_s=900), task="probe-1", probe="both").job)
    assert probe["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 900
    assert probe["StoppingCondition"] == {"MaxRuntimeInSeconds": 600}
    assert "EnableManagedSpotTraining" not in probe
    train = create_request(plan_job(plan, dataset, replace(JOBS, keep_alive_s=900), task="train").job)
    assert "KeepAlivePeriodInSeconds" not in train["ResourceConfig"]


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ({"strategy": "parameter_server"}, "the workers of parameter_server read files"),
        ({"strategy": "horovod", "workers_per_host": 10}, "9 shards for 10 workers a host"),
    ],
)
def test_a_plan_that_cannot_be_piped_is_refused(dataset: Path, plan: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        plan_job(Plan(**plan, input_mode="Pipe"), dataset, JOBS, task="train")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"use_spot": True, "max_wait_s": 59, "checkpoint_uri": "s3://b/c"}, "max_wait_s 59"),
        ({"use_spot": True, "max_wait_s": 60}, "an interruption would lose everything"),
        ({"use_spot": True, "max_wait_s": 60, "checkpoint_uri": "s3://b/c", "keep_alive_s": 9}, "no warm pool"),
        ({"max_wait_s": 60}, "set use_spot"),
        ({"alternatives": ("ml.c5.xlarge",)}, "instance type ml.c5.xlarge is there more than once"),
        ({"alternatives": tuple("abcde"), "capacity": "preferences"}, "6 instance types, the service takes 5"),
        ({"channels": (Channel(name="a", uri="s3://b/k"), Channel(name="a", uri="s3://b/l"))}, "channel a is there more than once"),
    ],
)
def test_what_the_service_would_refuse_or_nobody_wants_is_refused(changes: dict[str, Any], named: str) -> None:
    what: dict[str, Any] = {
        "base_name": "x",
        "run_id": "1",
        "task": "t",
        "image": "i",
        "entrypoint": ("true",),
        "role_arn": "r",
        "instance_type": "ml.c5.xlarge",
        "instance_count": 1,
        "max_runtime_s": 60,
        "output_uri": "s3://b/o",
    }
    with pytest.raises(InvalidConfig, match=named):
        TrainingJob(**what | changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_wait_s": 3599}, "max_wait_s 3599"),
        ({"keep_alive_s": 21_601}, "keep_alive_s 21601"),
        ({"capacity": "any"}, "capacity 'any'"),
        ({"subnets": ("subnet-1",)}, "give both or neither"),
        ({"poll_s": 0}, "poll_s 0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        replace(JOBS, **changes)


def test_a_job_begins_with_the_champion_where_it_lies(dataset: Path) -> None:
    job = plan_job(Plan(strategy="single"), dataset, JOBS, task="train", champion="s3://models/deepfm/versions/3/model").job
    assert Channel(name="champion", uri="s3://models/deepfm/versions/3/model", input_mode="File") in job.channels
    assert job.hyperparameters["warm_start"] == "true"
