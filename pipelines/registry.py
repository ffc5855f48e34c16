"""Whether an image is there. Amazon's registry is asked; of others only the name can be checked from here."""

import os
import re
from typing import Any

from components.errors import InvalidConfig

_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<name>[^:@]+)"
    r"(?::(?P<tag>[^@]+))?(?:@(?P<digest>.+))?"
)


def check_exists(image: str, place: str) -> None:
    """Ask Amazon's registry for an image; one elsewhere passes.

    Raises:
        InvalidConfig: it is not there, its tag may be moved to another image, or the registry cannot be asked.
    """
    if not (found := _ECR.fullmatch(image)):
        return
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    client: Any = boto3.Session(region_name=found["region"]).client("ecr", endpoint_url=os.environ.get("AWS_ENDPOINT_URL_ECR"))
    where = {"registryId": found["account"], "repositoryName": found["name"]}
    which = {"imageDigest": found["digest"]} if found["digest"] else {"imageTag": found["tag"]}
    try:
        client.describe_images(**where, imageIds=[which])
        if found["digest"]:
            return
        (repository,) = client.describe_repositories(registryId=found["account"], repositoryNames=[found["name"]])["repositories"]
    except ClientError as error:
        raise InvalidConfig(f"{place} {image!r}: {error.response['Error'].get('Message', error)}; push it first") from error
    except BotoCoreError as error:
        raise InvalidConfig(f"{place} {image!r}: the registry could not be asked: {error}") from error
    if not repository["imageTagMutability"].startswith("IMMUTABLE"):
        raise InvalidConfig(
            f"{place} {image!r}: tags of that repository can be moved to another image; make them immutable "
            "(aws ecr put-image-tag-mutability), or name the image by digest"
        )
