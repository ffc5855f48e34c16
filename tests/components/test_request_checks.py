"""What the service would refuse for its form is refused before it is sent, by name. Limits are from the API reference."""

import copy
from typing import Any

import pytest

from components.errors import InvalidConfig
from components.request_checks import check_request

GOOD: dict[str, Any] = {
    "TrainingJobName": "deepfm-train-1",
    "AlgorithmSpecification": {
        "TrainingImage": "example.com/ctrflow/training:1",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["python3", "-m", "components.train.program.launch"],
    },
    "RoleArn": "arn:aws:iam::000000000000:role/ctrflow",
    "HyperParameters": {"learning_rate": "0.0005"},
    "InputDataConfig": [
        {
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://clicks/day-1/train"}},
        }
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://clicks/jobs"},
    "ResourceConfig": {"InstanceType": "ml.c5.4xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    "Tags": [{"Key": "ctrflow:run-id", "Value": "täglich 3"}],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The good request with one value replaced; `path` is made of keys and list positions."""
    request = copy.deepcopy(GOOD)
    *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place: Any = request
    for part in way:
        place = place[part]
    place[last] = value
    return request


def test_a_good_request_passes() -> None:
    check_request("CreateTrainingJob", GOOD, file_uris=False)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("TrainingJobName", "deepfm_train", "TrainingJobName: 'deepfm_train'"),
        ("TrainingJobName", "-deepfm", "TrainingJobName: '-deepfm'"),
        ("TrainingJobName", "a" * 64, "TrainingJobName: 64 characters, at most 63"),
        ("TrainingJobName", "", "TrainingJobName"),
        ("TrainingJobName", "deepfm\n", "TrainingJobName: 'deepfm\\n' does not match"),
        ("RoleArn", "arn:aws:iam::12:role/short-account", "RoleArn"),
        ("ResourceConfig/InstanceType", "ml.c5.5xlarge", "ResourceConfig.InstanceType: 'ml.c5.5xlarge'"),
        ("ResourceConfig/InstanceType", "local", "ResourceConfig.InstanceType: 'local'"),
        ("ResourceConfig/InstanceCount", -1, "ResourceConfig.InstanceCount, value: -1"),
        ("ResourceConfig/InstanceCount", "2", "ResourceConfig.InstanceCount"),
        ("StoppingCondition/MaxRuntimeInSeconds", 0, "StoppingCondition.MaxRuntimeInSeconds, value: 0"),
        ("AlgorithmSpecification/TrainingInputMode", "Stream", "AlgorithmSpecification.TrainingInputMode: 'Stream'"),
        ("AlgorithmSpecification/ContainerEntrypoint", [], "AlgorithmSpecification.ContainerEntrypoint"),
        ("HyperParameters/learning_rate", "1" * 2501, "HyperParameters.learning_rate: 2501 characters, at most 2500"),
        ("HyperParameters/learning_rate", 0.0005, "HyperParameters"),
        ("InputDataConfig/0/ChannelName", "a b", "InputDataConfig[0].ChannelName: 'a b'"),
        ("InputDataConfig/0/DataSource/S3DataSource/S3Uri", "/data/train", "S3Uri: '/data/train'"),
        ("InputDataConfig", [], "InputDataConfig"),
        ("Tags/0/Value", "run <3>", "Tags[0].Value: 'run <3>'"),
        ("Instances", 2, "Instances"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(path: str, value: Any, named: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        check_request("CreateTrainingJob", changed(path, value), file_uris=False)
    assert named in str(refusal.value)
    assert str(refusal.value).startswith("CreateTrainingJob: ")
    assert "\n" not in str(refusal.value)


def test_all_problems_are_named_at_once() -> None:
    request = changed("TrainingJobName", "under_score") | {"RoleArn": "nobody at all, really"}
    with pytest.raises(InvalidConfig, match=r"TrainingJobName.*; RoleArn"):
        check_request("CreateTrainingJob", request, file_uris=False)


def test_a_missing_member_is_named() -> None:
    with pytest.raises(InvalidConfig, match="RoleArn"):
        check_request("CreateTrainingJob", {key: GOOD[key] for key in GOOD if key != "RoleArn"}, file_uris=False)


@pytest.mark.parametrize("path", ["InputDataConfig/0/DataSource/S3DataSource/S3Uri", "OutputDataConfig/S3OutputPath"])
def test_file_uris_are_for_the_local_endpoint_only(path: str) -> None:
    request = changed(path, "file:///data/with space")
    check_request("CreateTrainingJob", request, file_uris=True)
    with pytest.raises(InvalidConfig, match="file:///data/with space"):
        check_request("CreateTrainingJob", request, file_uris=False)
    with pytest.raises(InvalidConfig, match="file://data"):
        check_request("CreateTrainingJob", changed(path, "file://data"), file_uris=True)


def test_the_logs_service_is_checked_too() -> None:
    good = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamName": "job/algo-1-0"}
    check_request("GetLogEvents", good, file_uris=False, service="logs")
    with pytest.raises(InvalidConfig, match="logStreamName: 'a:b'"):
        check_request("GetLogEvents", good | {"logStreamName": "a:b"}, file_uris=False, service="logs")
