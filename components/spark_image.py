"""The image of AWS's Spark container for Processing jobs, by region.

Registries: aws/sagemaker-python-sdk, image_uri_config/spark.json of sagemaker-core at commit 0dfbd3c, Spark 3.5, 2026-12-02; the
domains are those of botocore's partitions. The tag is a release of aws/sagemaker-spark-container whose Python (3.12) runs this
code; that of the other line (3.9) does not.
"""

import csv
from pathlib import Path

from components.errors import InvalidConfig

REGISTRIES = Path(__file__).with_name("spark_registries.csv")
REPOSITORY, TAG = "sagemaker-spark-processing", "3.5-cpu-py312-v1.4"


def spark_image(region: str) -> str:
    """The image's whole name.

    Raises:
        InvalidConfig: no registry of that region is known.
    """
    with REGISTRIES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["region"] == region:
                return f"{row['account']}.dkr.ecr.{region}.{row['domain']}/{REPOSITORY}:{TAG}"
    raise InvalidConfig(f"region {region}: AWS's Spark container is not known there; name its image with --spark-image")
