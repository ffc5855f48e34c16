"""Where a step's jobs find the dataset."""

import json

import pytest

from components.errors import InvalidConfig
from components.job_settings import JobSettings, settings_of_step

JOBS = {"image": "i:1", "instance_type": "ml.m5.large", "output_uri": "s3://bucket/out", "subnets": ["a"], "security_groups": ["b"]}


def of_step(dataset: str, **changes: object) -> JobSettings:
    return settings_of_step(json.dumps({**JOBS, **changes}), role="r", run_id="run-7", dataset=dataset)


def test_jobs_of_a_cluster_read_the_dataset_where_kubeflow_keeps_it() -> None:
    found = of_step("s3://bucket/root/retrain/1/preprocess/dataset")
    assert found.data_uri == "s3://bucket/root/retrain/1/preprocess/dataset"
    assert (found.role_arn, found.run_id, found.subnets) == ("r", "run-7", ("a",))


def test_a_place_that_is_given_counts_and_a_path_of_this_machine_is_none() -> None:
    assert of_step("s3://bucket/root/dataset", data_uri="s3://bucket/copy").data_uri == "s3://bucket/copy"
    assert of_step("/runs/1/preprocess/dataset").data_uri == ""


@pytest.mark.parametrize("uri", ["minio://mlpipeline/v2/artifacts/dataset", "gs://bucket/dataset"])
def test_a_store_that_sagemaker_does_not_read_is_refused_by_name(uri: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{uri}: SageMaker reads s3:// alone; set a pipeline root in S3"):
        of_step(uri)
