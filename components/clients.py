"""Clients of AWS, or of the local endpoint that AWS_ENDPOINT_URL_SAGEMAKER names. Standard AWS configuration, nothing invented."""

import os
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from components.errors import InvalidConfig


def sagemaker_client() -> Any:
    """A SageMaker client of the environment's account and region, or of the local endpoint that it names."""
    return _client("sagemaker", os.environ.get("AWS_ENDPOINT_URL_SAGEMAKER"))


def sns_client(region: str) -> Any:
    """An SNS client of a topic's own region."""
    try:
        return boto3.Session(region_name=region).client("sns", endpoint_url=os.environ.get("AWS_ENDPOINT_URL_SNS"))
    except (BotoCoreError, ValueError) as error:
        raise InvalidConfig(f"AWS settings of this environment: {error}; correct AWS_* variables and ~/.aws/config") from error


def use_region(region: str) -> None:
    """Make a region the environment's, for this process; empty leaves it as it is."""
    if region:
        os.environ["AWS_DEFAULT_REGION"] = region


def _client(service: str, endpoint: str | None) -> Any:
    local = endpoint is not None and not is_aws(endpoint)
    who = {}
    if local:  # any signature will do, and the user's own credentials stay out of it
        who = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
    try:
        # No proxy leads to this machine's own loopback. None asks the environment for one.
        config = Config(retries=_retries(local), connect_timeout=5, read_timeout=30, proxies={} if local else None)
        return boto3.Session().client(service, endpoint_url=endpoint, config=config, **who)
    except (BotoCoreError, ValueError) as error:  # such as an AWS_PROFILE that is not there, no region, or a malformed endpoint
        raise InvalidConfig(f"AWS settings of this environment: {error}; correct AWS_* variables and ~/.aws/config") from error


def _retries(local: bool) -> dict[str, Any] | None:
    """How often a call is tried; None where the environment or ~/.aws/config says it, as for any other client of AWS."""
    if local:  # it answers or is gone
        return {"mode": "standard", "total_max_attempts": 2}
    if {"AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"} & os.environ.keys():
        return None
    if {"retry_mode", "max_attempts"} & botocore.session.get_session().get_scoped_config().keys():
        return None
    # These outlast 13 s of throttling.
    return {"mode": "standard", "total_max_attempts": 8}


def logs_client(sagemaker: Any) -> Any:
    """A CloudWatch Logs client beside a SageMaker client: the local endpoint serves both."""
    endpoint = sagemaker.meta.endpoint_url
    return _client("logs", None if is_aws(endpoint) else endpoint)


def is_aws(endpoint: str) -> bool:
    """Whether an endpoint is AWS's own."""
    return (urlsplit(endpoint).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))
