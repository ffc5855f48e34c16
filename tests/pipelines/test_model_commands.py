"""ctrflow models on stores whose versions were written by the store's own code; what is printed, and what the store holds after."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from components.champion import read_champion
from components.promote.model_store import Version
from pipelines.cli import main

Add = Callable[[str, Path, str, float], Version]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["models", *map(str, arguments)])


def document(*arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*arguments: object) -> str:
    done = run(*arguments)
    assert done.exit_code == 1, done.output
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_list_show_and_diff(store: str) -> None:
    listed = document("list", store)["versions"]
    assert [(row["name"], row["version"], row["auc"], row["in_force"]) for row in listed] == [
        ("deepfm", 1, 0.7, False),
        ("deepfm", 2, 0.71, True),
    ]
    lines = run("list", store).stdout.splitlines()
    assert [line.endswith("in force") for line in lines] == [False, True]
    shown = document("show", store)
    assert (shown["version"], shown["in_force"], shown["lineage"]["data_digest"]) == (2, True, "data second")
    assert [change["action"] for change in document("show", store, "--version", 1)["changes"]] == ["promoted"]
    assert "passed  size: small" in run("show", store).stdout
    differing = document("diff", store, 1, 2)
    assert differing["auc"] == {"1": 0.7, "2": 0.71}
    assert differing["lineage.data_digest"] == {"1": "data one", "2": "data second"}
    assert "lineage.plan.workers" not in differing
    assert 'lineage.data_digest: "data one" -> "data second"' in run("diff", store, 1, 2).stdout
    assert f"{store}: no version 7 of deepfm; there are: 1, 2" in refused("show", store, "--version", 7)
    assert "no versions there" in refused("list", f"{store}/nowhere")


def test_rollback_keeps_the_history_and_refuses_damage(store: str, add: Add, tmp_path: Path) -> None:
    assert run("rollback", store, "--to", 1, "--reason", "clicks fell").stdout == "version 1 of deepfm is in force\n"
    champion = read_champion(store, "deepfm")
    assert champion is not None
    assert (champion.version, champion.auc, champion.data_digest) == (1, 0.7, "data one")
    assert [(change.version, change.action, change.reason) for change in champion.history] == [
        (1, "promoted", "better"),
        (2, "promoted", "better"),
        (1, "rolled back", "clicks fell"),
    ]
    assert "version 1 of deepfm is in force already" in refused("rollback", store, "--to", 1)
    # The next version does not get the number of one that was.
    assert add(store, tmp_path / "made", "third", 0.72).version == 3


def test_rollback_refuses_a_damaged_version_and_mends_a_lost_champion(add: Add, tmp_path: Path) -> None:
    store = str(tmp_path / "models")
    for text in ("one", "second"):
        add(store, tmp_path / "made", text, 0.7)
    folder = tmp_path / "models" / "deepfm"
    (folder / "champion.json").write_text("{")
    (folder / "versions/1/model/saved_model/saved_model.pb").write_text("eno")
    assert "damaged, it differs from model.json" in refused("rollback", store, "--to", 1)
    assert (folder / "champion.json").read_text() == "{"
    assert document("rollback", store, "--to", 2)["version"] == 2
    champion = read_champion(store, "deepfm")
    assert champion is not None
    assert [(change.version, "not valid JSON" in change.reason) for change in champion.history] == [(2, True)]
    (folder / "champion.json").unlink()
    assert "is missing, but versions 1, 2 are there" in refused("show", store)
    assert run("rollback", store, "--to", 2).exit_code == 0


def test_export_copies_a_sound_model(store: str, tmp_path: Path) -> None:
    out = tmp_path / "out" / "model"
    assert document("export", store, out, "--version", 1)["version"] == 1
    assert (out / "saved_model" / "saved_model.pb").read_text() == "one"
    assert "exists and is not an empty folder" in refused("export", store, out)
    assert run("export", store, tmp_path / "latest").exit_code == 0
    assert (tmp_path / "latest" / "saved_model" / "saved_model.pb").read_text() == "second"
    if not store.startswith("s3://"):
        (Path(store) / "deepfm/versions/2/model/saved_model/saved_model.pb").write_text("dnoces")
        assert "damaged" in refused("export", store, tmp_path / "again")
        assert [path.name for path in tmp_path.iterdir() if "again" in path.name] == []


def test_a_mirror_in_the_registry_is_made_once(store: str, s3: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    # An address where nobody is.
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", s3_endpoint.replace(s3_endpoint.rpartition(":")[2], "9"))
    assert "the store is as it was, try again" in refused("mirror", store, "--group", "clicks")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", s3_endpoint)
    first = document("mirror", store, "--group", "clicks")
    assert document("mirror", store, "--group", "clicks") == first
    other = document("mirror", store, "--group", "clicks", "--version", 1, "--approved")
    assert other["arn"] != first["arn"]
    client = boto3.client("sagemaker", endpoint_url=s3_endpoint, region_name="us-east-1")
    found = client.list_model_packages(ModelPackageGroupName="clicks")["ModelPackageSummaryList"]
    assert {package["ModelPackageArn"]: package["ModelApprovalStatus"] for package in found} == {
        first["arn"]: "PendingManualApproval",
        other["arn"]: "Approved",
    }
    properties = client.describe_model_package(ModelPackageName=first["arn"])["CustomerMetadataProperties"]
    assert properties["location"] == f"{store}/deepfm/versions/2/model"
    assert (properties["version"], properties["data_digest"]) == ("2", "data second")
