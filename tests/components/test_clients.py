"""Clients of AWS are set up as AWS's own tools are: by its environment variables and its configuration file."""

from pathlib import Path

import pytest
from botocore.credentials import RefreshableCredentials

from components.clients import logs_client, sagemaker_client
from components.errors import InvalidConfig
from components.s3 import s3_client


@pytest.fixture(autouse=True)
def at_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment with a region and keys that are nobody's; no call is made with them."""
    for name in ("AWS_ENDPOINT_URL_SAGEMAKER", "AWS_ENDPOINT_URL_S3", "AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    settings = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-west-2"}
    for name, value in {**settings, "AWS_CONFIG_FILE": str(tmp_path / "config")}.items():
        monkeypatch.setenv(name, value)


def retries() -> tuple[str, int]:
    found = sagemaker_client().meta.config.retries
    return found["mode"], found["total_max_attempts"]


def test_calls_are_tried_eight_times_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert retries() == ("standard", 8)
    (tmp_path / "config").write_text("[default]\nretry_mode = adaptive\nmax_attempts = 5\n")
    assert retries() == ("adaptive", 5)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
    assert retries() == ("adaptive", 3)


def test_region_and_fips_lead_to_the_hosts_that_aws_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")
    # Source: AWS General Reference, endpoints of SageMaker and CloudWatch Logs.
    assert sagemaker_client().meta.endpoint_url == "https://api-fips.sagemaker.us-west-2.amazonaws.com"
    assert logs_client(sagemaker_client()).meta.endpoint_url == "https://logs-fips.us-west-2.amazonaws.com"
    assert "fips" in s3_client().meta.endpoint_url


def test_a_role_is_assumed_with_credentials_that_renew_themselves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3_endpoint: str
) -> None:
    # moto answers for STS too.
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3_endpoint)
    monkeypatch.setenv("AWS_PROFILE", "operator")
    for name in ("AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text("[base]\naws_access_key_id = x\naws_secret_access_key = x\n")
    role = "arn:aws:iam::111122223333:role/ctrflow-operator"
    (tmp_path / "config").write_text(f"[profile operator]\nrole_arn = {role}\nsource_profile = base\nregion = eu-west-1\n")
    client = sagemaker_client()
    assert client.meta.region_name == "eu-west-1"
    credentials = client._request_signer._credentials
    assert credentials.method == "assume-role"
    assert credentials.get_frozen_credentials().token
    # Such credentials ask again by themselves, 15 minutes before they end.
    assert isinstance(credentials, RefreshableCredentials)
    assert credentials.refresh_needed(refresh_in=24 * 3600)
    assert not credentials.refresh_needed()


def test_a_profile_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(InvalidConfig, match=r"The config profile \(nobody\) could not be found; correct AWS_\* variables"):
        sagemaker_client()
