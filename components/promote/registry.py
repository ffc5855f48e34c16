"""A mirror of promoted models in SageMaker's Model Registry, for those who approve or deploy there. The store stays the truth.

A package is recognised by the model's digest, so that mirroring twice leaves one package.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from components.champion import version_folder
from components.clients import sagemaker_client
from components.errors import InvalidConfig
from components.promote.model_store import Version
from components.s3 import without_secrets

Approval = Literal["PendingManualApproval", "Approved"]


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """What became of mirroring a version. `problem` is empty when the registry has it, as `arn`; a retry is always safe."""

    group: str
    arn: str
    problem: str


def mirror(store: str, version: Version, group: str, approval: Approval) -> Mirror:
    """Make sure that a group of the registry has a package of this version. AWS and its settings never raise: a promotion stands.

    Args:
        store: URI of the model store; the package names the model's files where they are in S3.
    """
    try:
        client = sagemaker_client()
        _make_group(client, group, version.name)
        arn = _find(client, group, version.model_digest)
        if arn is None:
            arn = client.create_model_package(**package_request(store, version, group, approval))["ModelPackageArn"]
        return Mirror(group=group, arn=arn, problem="")
    except (ClientError, BotoCoreError, InvalidConfig) as error:
        return Mirror(group=group, arn="", problem=without_secrets(" ".join(str(error).split()))[:300])


def package_request(store: str, version: Version, group: str, approval: Approval) -> dict[str, Any]:
    """The CreateModelPackage request. AWS takes a request with the same token for the same one."""
    properties = {
        "model": version.name,
        "version": str(version.version),
        "model_digest": version.model_digest,
        "location": f"{store}/{version_folder(version.name, version.version)}/model",
        **_known(
            {
                "data_digest": version.lineage.data_digest,
                "code": version.lineage.code,
                "job_arn": version.lineage.job_arn,
                "image": version.lineage.image,
                "run_id": version.lineage.run_id,
                "auc": f"{version.auc:.6f}",
                "log_loss": f"{version.log_loss:.6f}",
            }
        ),
    }
    return {
        "ModelPackageGroupName": group,
        "ModelPackageDescription": _description(version),
        "ModelApprovalStatus": approval,
        # Values have at most 256 characters there.
        "CustomerMetadataProperties": {key: value[:256] for key, value in properties.items()},
        "ClientToken": version.model_digest[:36],
    }


def _description(version: Version) -> str:
    return f"{version.name} version {version.version}, model {version.model_digest}"


def _known(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if value}


def _make_group(client: Any, group: str, name: str) -> None:
    try:
        client.describe_model_package_group(ModelPackageGroupName=group)
    except ClientError as error:
        if "does not exist" not in str(error):
            raise
        client.create_model_package_group(ModelPackageGroupName=group, ModelPackageGroupDescription=f"versions of {name}")


def _find(client: Any, group: str, digest: str) -> str | None:
    """The package of a model; listings show descriptions, so that nothing needs to be asked of each."""
    pages = client.get_paginator("list_model_packages").paginate(ModelPackageGroupName=group)
    for page in pages:
        for package in page["ModelPackageSummaryList"]:
            if package.get("ModelPackageDescription", "").endswith(f"model {digest}"):
                return str(package["ModelPackageArn"])
    return None
