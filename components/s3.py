"""Objects in S3 and S3-compatible stores: which of them a URI means, and what is said when that cannot be found out.

    s3://clicks/logs/day1.gz         this object
    s3://clicks/logs                 no such object: those directly below logs/, as of a folder; with "/" at its end never an object
    s3://clicks/day=*/**/part-*.gz   as local globs: * ? [] within a name, ** over any number of folders

Credentials, region, retries and endpoint (AWS_ENDPOINT_URL_S3) are boto3's own configuration, nothing is invented. Apart from
storage.py, which a training container imports, too, and that has no boto3.
"""

import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from components.errors import InvalidConfig, InvalidRecords, WorkflowError
from components.storage import S3Object, is_marker

_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
_UNREACHABLE = (EndpointConnectionError, ConnectTimeoutError, HTTPClientError)
_NEEDED = (
    "s3:ListBucket on the bucket, s3:GetObject on its objects, s3:PutObject where something is written, "
    "and kms:Decrypt and kms:GenerateDataKey where a key encrypts them"
)
# What an endpoint's URL, or one that was signed, may give away.
_SECRET = re.compile(r"(//)[^/@\s]+(?=@)|(X-Amz-(?:Signature|Credential|Security-Token)=)[^&\s]+")
_SIGN_IN = "set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where a role gives them"
REPLACED = "was replaced after it had been listed; run again when nothing writes there any more"
# What S3 answers, by its code; a HEAD has no body and answers with the status alone.
_OF_CREDENTIALS = {
    "AccessDenied": f"access denied; these credentials need {_NEEDED}",
    "403": f"access denied; these credentials need {_NEEDED}",
    "AllAccessDisabled": "the bucket's owner disabled all access to it",
    "InvalidAccessKeyId": f"S3 does not know the access key; {_SIGN_IN}",
    "SignatureDoesNotMatch": f"the secret key does not belong to the access key; {_SIGN_IN}",
    "InvalidToken": f"the session token is not valid; {_SIGN_IN}",
    "ExpiredToken": "the credentials have expired; sign in again",
    "RequestTimeTooSkewed": "the clock of this machine is wrong, so that S3 takes no signature of it; set it",
}
_OF_DATA = {
    "NoSuchBucket": "no such bucket; correct its name, or AWS_ENDPOINT_URL_S3 if another store was meant",
    "NoSuchKey": "was removed after it had been listed; run again when nothing writes there any more",
    "404": "was removed after it had been listed; run again when nothing writes there any more",
    "PreconditionFailed": REPLACED,
    "412": REPLACED,
    "InvalidObjectState": "is archived; restore it first",
}
_WRONG_REGION = ("301", "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")


def s3_client() -> Any:
    """A client by the standard settings of the environment.

    Raises:
        InvalidConfig: settings that name no profile, or make no endpoint.
    """
    try:
        # Botocore would wait a minute for an address where nobody is, and that several times.
        return boto3.Session().client("s3", config=Config(connect_timeout=5))
    except (BotoCoreError, ValueError) as error:
        raise InvalidConfig(
            f"AWS settings of this environment: {_line(error)}; correct AWS_* variables and ~/.aws/config"
        ) from error


@contextmanager
def answered(uri: str) -> Iterator[None]:
    """Whatever S3 answers but success, or what keeps it from answering, becomes one line about `uri`.

    Raises:
        InvalidConfig: credentials, permissions, region, endpoint.
        InvalidRecords: what was asked for is not there.
    """
    try:
        yield
    except ClientError as error:
        raise _refused(uri, error) from error
    except _CREDENTIALS as error:
        raise InvalidConfig(f"{uri}: no usable AWS credentials ({_line(error)}); {_SIGN_IN}") from error
    except _UNREACHABLE as error:
        raise InvalidConfig(f"{uri}: S3 cannot be reached ({_line(error)}); check the network and AWS_ENDPOINT_URL_S3") from error
    except BotoCoreError as error:
        raise InvalidConfig(f"{uri}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return without_secrets(" ".join(str(error).split()))[:300]


def without_secrets(text: str) -> str:
    """A text from boto3 without passwords in URLs and without signatures, fit for a log."""
    return _SECRET.sub(lambda found: f"{found[1] or found[2]}***", text)


def _refused(uri: str, error: ClientError) -> WorkflowError:
    code, message = error.response.get("Error", {}).get("Code", ""), error.response.get("Error", {}).get("Message", "")
    if code in _WRONG_REGION:
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = headers.get("x-amz-bucket-region") or error.response["Error"].get("Region")
        where = f"is in region {region}; set AWS_REGION={region}" if region else "is in another region; set AWS_REGION to its own"
        return InvalidConfig(f"{uri}: the bucket {where}")
    if code in _OF_CREDENTIALS:
        return InvalidConfig(f"{uri}: {_OF_CREDENTIALS[code]}")
    if code in _OF_DATA:
        return InvalidRecords(f"{uri}: {_OF_DATA[code]}")
    return InvalidRecords(f"{uri}: S3 answers {code} ({without_secrets(' '.join(message.split()))[:200]}); try again")


def find_objects(uri: str) -> list[S3Object]:
    """The objects that a URI means, sorted as local paths are; markers of other programs are not among them unless named.

    Raises:
        InvalidRecords: there are none, or they are a ctrflow dataset.
        InvalidConfig: S3 cannot be asked.
    """
    bucket, key = bucket_and_key(uri)
    client, folder = s3_client(), key if key.endswith("/") or not key else f"{key}/"
    with answered(uri):
        exact, refused = _exact(client, bucket, key)
        if exact and exact.size:
            return [exact]
        objects, folders = list_objects(client, bucket, folder, delimiter="/")
        if f"{folder}train/" in folders and "manifest.json" in [each.name for each in objects]:
            raise InvalidRecords(f"{uri}: already a ctrflow dataset; give the files that it was made from")
        found = objects
        if glob.has_magic(key) and not objects and not folders:
            found = [each for each in list_objects(client, bucket, _fixed(key))[0] if _matches(each.key.split("/"), key.split("/"))]
        if data := [each for each in found if not is_marker(each.name)]:
            return sorted(data, key=lambda each: each.key.split("/"))
        if exact:
            return [exact]
        if refused:
            raise refused
    raise InvalidRecords(f"{uri}: {_nothing(uri, key, bool(objects), bool(folders))}")


def bucket_and_key(uri: str) -> tuple[str, str]:
    """The two parts of s3://bucket/key.

    Raises:
        InvalidConfig: no bucket is named, or a pattern instead of one.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket or glob.has_magic(bucket):
        raise InvalidConfig(f"{uri}: s3://bucket/key is expected, with one whole bucket name")
    return bucket, key


def _nothing(uri: str, key: str, markers: bool, folders: bool) -> str:
    """Why a URI means no object."""
    if folders:
        return f"no objects in this folder; give '{uri.rstrip('/')}/**/*' to read the folders in it"
    if markers:
        return "no objects in this folder; names that start with . or _ do not count"
    return "no such object or folder" + (", and no object matches it" if glob.has_magic(key) else "")


def _exact(client: Any, bucket: str, key: str) -> tuple[S3Object | None, ClientError | None]:
    """The object of this very key, or why it was not shown. Asked for by itself, so that it takes no right to list others."""
    if not key or key.endswith("/"):
        return None, None
    try:
        found = client.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        # What is wrong with credentials or bucket, the listing says better. Who may list is told 404 for what is not there.
        return None, None if error.response["Error"]["Code"] == "404" else error
    return S3Object(bucket=bucket, key=key, size=found["ContentLength"], etag=found["ETag"]), None


def list_objects(client: Any, bucket: str, prefix: str, delimiter: str = "") -> tuple[list[S3Object], list[str]]:
    """Objects below a prefix without those that stand for folders, and with a delimiter the folders directly below it."""
    objects: list[S3Object] = []
    folders: list[str] = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, Delimiter=delimiter):
        folders += [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
        for entry in page.get("Contents", ()):
            # Consoles make an object "logs/" for an empty folder, and EMR one "logs_$folder$".
            if not entry["Key"].endswith(("/", "_$folder$")):
                objects.append(S3Object(bucket=bucket, key=entry["Key"], size=entry["Size"], etag=entry["ETag"]))
    return objects, folders


def _fixed(pattern: str) -> str:
    """What every key that matches begins with."""
    return pattern[: next(place for place, letter in enumerate(pattern) if letter in "*?[")]


def _matches(names: list[str], patterns: list[str]) -> bool:
    """Whether a path fits a glob, as Python's glob has it: hidden names only where the pattern begins with a dot, too."""
    if not patterns:
        return not names
    if patterns[0] == "**" and (_matches(names, patterns[1:]) or (names and names[0][:1] != "." and _matches(names[1:], patterns))):
        return True
    if not names or patterns[0] == "**":
        return False
    hidden = names[0].startswith(".") and not patterns[0].startswith(".")
    return not hidden and fnmatchcase(names[0], patterns[0]) and _matches(names[1:], patterns[1:])
