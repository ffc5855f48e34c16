"""Where AWS's Spark container lies. Expected registries: available_images.md of aws/sagemaker-spark-container."""

import pytest

from components.errors import InvalidConfig
from components.spark_image import spark_image


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("us-east-1", "173754725891.dkr.ecr.us-east-1.amazonaws.com"),
        ("us-west-2", "153931337802.dkr.ecr.us-west-2.amazonaws.com"),
        ("eu-central-1", "906073651304.dkr.ecr.eu-central-1.amazonaws.com"),
        ("eu-south-1", "753923664805.dkr.ecr.eu-south-1.amazonaws.com"),
        ("ap-northeast-1", "411782140378.dkr.ecr.ap-northeast-1.amazonaws.com"),
        ("sa-east-1", "737130764395.dkr.ecr.sa-east-1.amazonaws.com"),
        ("cn-north-1", "671472414489.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("cn-northwest-1", "844356804704.dkr.ecr.cn-northwest-1.amazonaws.com.cn"),
    ],
)
def test_each_region_has_its_own_registry(region: str, registry: str) -> None:
    assert spark_image(region) == f"{registry}/sagemaker-spark-processing:3.5-cpu-py312-v1.4"


def test_an_unknown_region_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"region moon-1: .* name its image with --spark-image"):
        spark_image("moon-1")
