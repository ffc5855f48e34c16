"""The promote step on real folders: what the store holds afterwards, also when runs race or die."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from components import local_storage, s3_storage
from components.champion import champion_model, check_champion, read_champion, read_standing
from components.errors import InvalidConfig, NotPromotable
from components.manifest import manifest_digest
from components.model_files import model_digest, read_model
from components.promote import step
from components.promote.lineage import lineage
from components.promote.model_store import read_versions
from components.promote.policy import Policy
from components.promote.step import PromoteConfig, Promotion, promote
from components.storage import open_storage

Content = Callable[[Path], dict[str, bytes]]


class Place(Protocol):
    """See conftest.py."""

    root: Path
    store: Any
    out: Path
    report: Path

    def candidate(self, name: str, auc: float = 0.78, **changes: Any) -> tuple[Path, Path]: ...
    def promote(self, candidate: tuple[Path, Path], **settings: Any) -> Promotion: ...


def versions(place: Place) -> list[str]:
    return open_storage(place.store).folders("deepfm/versions")


def test_the_first_model_becomes_version_1(place: Place, content: Content) -> None:
    candidate = place.candidate("one")
    found = place.promote(candidate)
    assert (found.promoted, found.version, found.champion_before) == (True, 1, None)
    champion = read_champion(place.store, "deepfm")
    assert champion is not None
    assert (champion.version, champion.auc, champion.log_loss, champion.run_id) == (1, 0.78, 0.47, "run-1")
    assert (champion.model_digest, champion.data_digest) == (model_digest(candidate[0]), "d" * 64)
    copy = champion_model(place.store, champion)
    assert content(copy) == content(candidate[0])
    read_model(copy)
    assert content(copy.parent).keys() - {f"model/{name}" for name in content(copy)} == {"evaluation.json", "version.json"}


def test_promotion_json_and_report_say_what_happened(place: Place) -> None:
    found = place.promote(place.candidate("one"))
    document = json.loads(place.out.read_text())
    assert document["format_version"] == 1
    assert (document["promoted"], document["version"], document["champion_before"]) == (True, 1, None)
    assert document["reason"] == found.reason
    assert len(document["rules"]) == 16
    assert all(set(rule) == {"rule", "passed", "sentence"} and rule["passed"] for rule in document["rules"])
    page = place.report.read_text()
    assert "Promoted: version 1 is in force" in page
    assert "3 rows rejected" in page


def test_a_better_model_follows_and_the_old_version_stays(place: Place, content: Content) -> None:
    place.promote(place.candidate("one"))
    before = content(place.store / "deepfm" / "versions" / "1")
    found = place.promote(place.candidate("two", auc=0.79))
    assert (found.promoted, found.version, found.champion_before) == (True, 2, 1)
    assert versions(place) == ["1", "2"]
    assert content(place.store / "deepfm" / "versions" / "1") == before


def test_a_worse_model_changes_nothing_and_is_no_error(place: Place, content: Content) -> None:
    place.promote(place.candidate("one"))
    before = content(place.store)
    found = place.promote(place.candidate("two", auc=0.70))
    assert (found.promoted, found.version, found.champion_before) == (False, None, 1)
    assert "0.7000 against 0.7800" in found.reason
    assert "version 1 stays in force" in found.reason
    assert content(place.store) == before
    assert json.loads(place.out.read_text())["promoted"] is False
    assert "Not promoted" in place.report.read_text()


def test_a_worse_model_is_an_error_when_promotion_is_required(place: Place) -> None:
    place.promote(place.candidate("one"))
    with pytest.raises(NotPromotable, match="beyond the margin"):
        place.promote(place.candidate("two", auc=0.70), require_promotion=True)
    assert json.loads(place.out.read_text())["promoted"] is False


def test_the_margin_is_a_setting(place: Place) -> None:
    place.promote(place.candidate("one"))
    assert place.promote(place.candidate("two", auc=0.75), margin=0.05).version == 2


def test_an_undefined_auc_keeps_the_champion(place: Place) -> None:
    place.promote(place.candidate("one"))
    model, evaluation = place.candidate("two")
    document = json.loads(evaluation.read_text())
    evaluation.write_text(json.dumps({**document, "auc": None, "auc_reason": "no positive rows (0 of 50)"}))
    found = place.promote((model, evaluation))
    assert not found.promoted
    assert "cannot decide" in found.reason
    assert "version 1 stays in force" in found.reason
    assert versions(place) == ["1"]


def test_promoting_the_same_model_twice_changes_nothing(place: Place, content: Content) -> None:
    candidate = place.candidate("one")
    place.promote(candidate)
    before = content(place.store)
    found = place.promote(candidate)
    assert (found.promoted, found.version) == (True, 1)
    assert content(place.store) == before


def test_an_evaluation_against_a_former_champion_must_be_repeated(place: Place) -> None:
    late = place.candidate("late", auc=0.9)
    place.promote(place.candidate("one"))
    found = place.promote(late)
    assert not found.promoted
    assert "evaluate again" in found.reason


def test_numbers_are_not_used_twice_and_leftovers_of_killed_runs_go(place: Place) -> None:
    folder = place.store / "deepfm" / "versions"
    (folder / "7").mkdir(parents=True)
    (folder / ".publishing.half").mkdir()
    (folder / ".publishing.half" / "part").touch()
    # What desktops and file servers leave in folders is not ours to remove.
    (folder / ".DS_Store").touch()
    (folder / ".snapshot").mkdir()
    assert place.promote(place.candidate("one")).version == 8
    assert sorted(path.name for path in folder.iterdir()) == [".DS_Store", ".lock", ".snapshot", "7", "8"]
    # Not even that of a champion whose folder somebody removed, once another version is in force.
    place.promote(place.candidate("two", auc=0.79))
    place.promote(place.candidate("three", auc=0.8))
    shutil.rmtree(folder / "9")
    write = read_standing(open_storage(place.store), "deepfm")
    assert write.champion is not None
    assert [change.version for change in write.champion.history] == [8, 9, 10]
    assert place.promote(place.candidate("four", auc=0.81)).version == 11


def test_history_and_lineage_are_kept(any_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTRFLOW_COMMIT", "c0ffee")
    training = any_place.root / "training.json"
    image = "registry/ctrflow/training@sha256:" + "9" * 64
    job = {"name": "job-1", "arn": "arn:aws:sagemaker:us-east-1:1:training-job/job-1", "image": image}
    training.write_text(json.dumps({"job": job, "plan": {"strategy": "horovod"}}))
    any_place.promote(any_place.candidate("one"), training=training)
    any_place.promote(any_place.candidate("two", auc=0.79))
    champion = read_champion(any_place.store, "deepfm")
    assert champion is not None
    assert [(change.version, change.action, change.run_id) for change in champion.history] == [
        (1, "promoted", "run-1"),
        (2, "promoted", "run-1"),
    ]
    assert all("@" in change.by and change.at.endswith("+00:00") for change in champion.history)
    first, second = read_versions(any_place.store, "deepfm")
    assert (first.champion_before, second.champion_before) == (None, 1)
    assert first.lineage.data_digest == "d" * 64
    assert first.lineage.plan == {"strategy": "horovod"}
    assert (first.lineage.job_name, first.lineage.job_arn) == (job["name"], job["arn"])
    assert (first.lineage.image, first.lineage.image_digest) == (image, "sha256:" + "9" * 64)
    assert first.lineage.code.endswith("+c0ffee")
    assert second.lineage.job_arn == ""
    assert [rule.passed for rule in first.rules] == [True] * 16


def test_a_promoted_model_arrives_in_the_registry_as_the_policy_says(
    place: Place, s3: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", s3_endpoint)
    policy = Policy(registry_group="clicks", registry_approval="Approved")
    candidate = place.candidate("one")
    first, again = place.promote(candidate, policy=policy), place.promote(candidate, policy=policy)
    assert not place.promote(place.candidate("worse", auc=0.7), policy=policy).promoted
    assert first.mirror is not None
    assert (first.mirror.problem, again.mirror) == ("", first.mirror)
    client = boto3.client("sagemaker", endpoint_url=s3_endpoint, region_name="us-east-1")
    (package,) = client.list_model_packages(ModelPackageGroupName="clicks")["ModelPackageSummaryList"]
    assert (package["ModelPackageArn"], package["ModelApprovalStatus"]) == (first.mirror.arn, "Approved")


def test_a_registry_that_cannot_be_asked_leaves_the_promotion_and_says_how_to_try_again(
    place: Place, s3: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    found = place.promote(place.candidate("one"), policy=Policy(registry_group="clicks", registry_approval="Approved"))
    assert (found.promoted, found.version) == (True, 1)
    assert check_champion(place.store, "deepfm") is not None
    mirror = json.loads(place.out.read_text())["mirror"]
    assert (mirror["arn"], "You must specify a region" in mirror["problem"]) == ("", True)
    assert "not in model package group clicks: AWS settings" in place.report.read_text()
    assert f"ctrflow models mirror {place.store} --name deepfm --version 1 --group clicks --approved" in caplog.text


def test_a_training_json_that_is_none_is_an_error(place: Place) -> None:
    for name, text in (("absent", None), ("list", "[]"), ("job", '{"job": 3}'), ("half", "{")):
        path = place.root / f"{name}.json"
        if text is not None:
            path.write_text(text)
        with pytest.raises(NotPromotable, match=f"{name}.json: not a training.json"):
            lineage(path, "d", "")


def test_who_loses_the_race_decides_again_and_stops_with_the_reason(any_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another promotion comes into force after the first has decided and copied its model."""
    any_place.promote(any_place.candidate("one"))
    mine, other = any_place.candidate("mine", auc=0.79), any_place.candidate("other", auc=0.80)
    real, others = step.put_in_force, []

    def late(*arguments: Any) -> Any:
        if not others:
            others.append("begun")
            others.append(any_place.promote(other))
        return real(*arguments)

    monkeypatch.setattr(step, "put_in_force", late)
    found = any_place.promote(mine)
    assert not found.promoted
    assert "compared with version 1, but version 3 is in force now; evaluate again" in found.reason
    champion = read_champion(any_place.store, "deepfm")
    assert champion is not None
    assert champion.model_digest == model_digest(other[0])
    assert (others[1].promoted, others[1].version) == (True, 3)
    assert [change.version for change in champion.history] == [1, 3]


def test_of_two_first_models_one_wins(any_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = any_place.candidate("mine"), any_place.candidate("other")
    real, others = step.opened, []

    def late(*arguments: Any) -> Any:
        if not others:
            others.append("begun")
            others.append(any_place.promote(other))
        return real(*arguments)

    monkeypatch.setattr(step, "opened", late)
    found = any_place.promote(mine)
    assert not found.promoted
    assert "compared with no champion, but version 1 is in force now; evaluate again" in found.reason
    assert others[1].version == 1


def dies(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def last_swap_dies(self: Any, name: str, *rest: Any) -> None:
    if name.endswith("version.json"):
        dies()
    SWAP(self, name, *rest)


PUT = step.put_in_force
SWAP = s3_storage.S3Storage.swap
LOCAL_POINTS = [
    (step, "add_version", dies),
    (local_storage, "_copy", dies),
    (Path, "rename", dies),
    (step, "put_in_force", dies),
    (os, "replace", dies),
    (step, "_mirrored", dies),
]
S3_POINTS = [
    (step, "add_version", dies),
    (s3_storage, "send_files", dies),
    (s3_storage.S3Storage, "swap", last_swap_dies),
    (step, "put_in_force", dies),
    (step, "_mirrored", dies),
]


def test_a_crash_at_any_point_leaves_the_old_champion_in_force_and_the_next_try_succeeds(
    any_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each point a fork of this process, which has decided already, kills itself as kill -9 does."""
    any_place.promote(any_place.candidate("one"))
    before = read_champion(any_place.store, "deepfm")
    real = step.bring_into_force
    for number, (owner, name, replacement) in enumerate(LOCAL_POINTS if isinstance(any_place.store, Path) else S3_POINTS):

        def forked(*arguments: Any, at: Any = (owner, name, replacement)) -> Any:
            child = os.fork()
            if child == 0:
                setattr(*at)
                real(*arguments)
                os._exit(3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            raise InterruptedError

        candidate = any_place.candidate(f"killed{number}", auc=0.79)
        monkeypatch.setattr(step, "bring_into_force", forked)
        with pytest.raises(InterruptedError):
            any_place.promote(candidate)
        after = read_champion(any_place.store, "deepfm")
        if name == "_mirrored":
            assert after is not None
            assert after.model_digest == model_digest(candidate[0])
        else:
            assert after == before
            check_champion(any_place.store, "deepfm")
    # The last one was in force already, and its retry says so and makes no other version.
    there = versions(any_place)
    monkeypatch.setattr(step, "bring_into_force", real)
    found = any_place.promote(candidate)
    assert found.promoted
    assert versions(any_place) == there
    if isinstance(any_place.store, Path):
        assert not list(any_place.store.glob("deepfm/versions/.publishing.*"))
        assert [path.name for path in (any_place.store / "deepfm").iterdir() if path.name.startswith(".champion")] == []


def test_what_a_killed_try_copied_is_taken_by_the_next(any_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = any_place.candidate("one")

    def fails(*_: Any) -> Any:
        raise InterruptedError

    monkeypatch.setattr(step, "put_in_force", fails)
    with pytest.raises(InterruptedError):
        any_place.promote(candidate)
    assert read_champion(any_place.store, "deepfm") is None
    monkeypatch.setattr(step, "put_in_force", PUT)
    assert any_place.promote(candidate).version == 1
    assert versions(any_place) == ["1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("{", "not valid JSON"),
        ("[]", "format_version 1 is expected"),
        ('{"format_version": 1}', "missing or unknown keys: .*auc"),
    ],
)
def test_a_damaged_evaluation_is_an_error(place: Place, text: str | None, message: str) -> None:
    model, evaluation = place.candidate("one")
    if text is None:
        evaluation.unlink()
    else:
        evaluation.write_text(text)
    with pytest.raises(NotPromotable, match=f"one.json: {message}"):
        place.promote((model, evaluation))
    assert not place.store.exists()


def test_an_evaluation_with_a_text_for_a_number_is_an_error(place: Place) -> None:
    model, evaluation = place.candidate("one")
    evaluation.write_text(json.dumps({**json.loads(evaluation.read_text()), "auc": "0.9"}))
    with pytest.raises(NotPromotable, match=r"auc is '0.9', a number is expected"):
        place.promote((model, evaluation))


def test_a_damaged_model_is_an_error_and_never_reaches_the_store(place: Place) -> None:
    model, evaluation = place.candidate("one")
    content = bytearray((model / "weights.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (model / "weights.npz").write_bytes(content)
    with pytest.raises(NotPromotable, match=r"weights\.npz: damaged"):
        place.promote((model, evaluation))
    assert not place.store.exists()
    assert not place.out.exists()


@pytest.mark.parametrize("change", ["another file", "no file", "another model"])
def test_a_model_that_changes_after_it_was_read_never_reaches_the_store(
    any_place: Place, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    (model, evaluation), other = any_place.candidate("one"), any_place.candidate("other")[0]
    weights, real = model / "weights.npz", step.opened

    def changes(*arguments: Any) -> Any:
        if change == "no file":
            weights.unlink()
        else:
            shutil.copy(other / ("weights.npz" if change == "another file" else "model.json"), model)
        return real(*arguments)

    monkeypatch.setattr(step, "opened", changes)
    with pytest.raises(NotPromotable, match="one: could not be copied as it was evaluated"):
        any_place.promote((model, evaluation))
    assert read_champion(any_place.store, "deepfm") is None
    assert read_versions(any_place.store, "deepfm") == ()
    assert not any_place.out.exists()


def test_workers_that_disagreed_are_not_promoted(place: Place) -> None:
    found = place.promote(place.candidate("one", ranks_agreed=False))
    assert not found.promoted
    assert "no model is in force" in found.reason
    assert read_champion(place.store, "deepfm") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not valid JSON"), ('{"version": 1}', "not a champion.json")],
)
def test_a_damaged_store_is_an_error(place: Place, text: str, message: str) -> None:
    candidate = place.candidate("one")
    (place.store / "deepfm").mkdir(parents=True)
    (place.store / "deepfm" / "champion.json").write_text(text)
    with pytest.raises(NotPromotable, match=message):
        place.promote(candidate)


def test_a_champion_with_a_wrong_value_is_an_error(place: Place) -> None:
    place.promote(place.candidate("one"))
    path = place.store / "deepfm" / "champion.json"
    path.write_text(path.read_text().replace('"name": "deepfm"', '"name": null'))
    with pytest.raises(NotPromotable, match="name None is not str"):
        read_champion(place.store, "deepfm")


def test_a_champion_json_that_was_lost_lets_nobody_in_unopposed(any_place: Place) -> None:
    any_place.promote(any_place.candidate("one"))
    late = any_place.candidate("two")
    if isinstance(any_place.store, Path):
        (any_place.store / "deepfm" / "champion.json").unlink()
    else:
        import boto3

        boto3.client("s3").delete_object(Bucket="clicks", Key="models/deepfm/champion.json")
    with pytest.raises(
        NotPromotable, match=r"is missing, but versions 1 are there; put a version in force: ctrflow models rollback"
    ):
        any_place.promote(late)
    with pytest.raises(NotPromotable, match="is missing, but versions 1 are there"):
        check_champion(any_place.store, "deepfm")
    assert versions(any_place) == ["1"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("flip", r"weights\.npz: damaged, it differs from model\.json"),
        ("remove", r"weights\.npz: missing"),
        ("add", r"strange: not listed in model\.json"),
        ("card", r"model\.json: is not that of version 1"),
    ],
)
def test_damaged_files_of_the_champion_are_noticed_before_a_run_trains(
    any_place: Place, s3: Any, damage: str, message: str
) -> None:
    any_place.promote(any_place.candidate("one"))
    assert check_champion(any_place.store, "deepfm") is not None
    for name in {"card": ["model.json"], "add": ["strange"]}.get(damage, ["weights.npz"]):
        if isinstance(any_place.store, Path):
            path = any_place.store / "deepfm/versions/1/model" / name
            content = path.read_bytes() if path.exists() else b"\0"
            path.unlink() if damage == "remove" else path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        else:
            key = f"models/deepfm/versions/1/model/{name}"
            s3.delete_object(Bucket="clicks", Key=key) if damage == "remove" else s3.put_object(Bucket="clicks", Key=key, Body=b"x")
    with pytest.raises(NotPromotable, match=message + ".*ctrflow models rollback"):
        check_champion(any_place.store, "deepfm")


def test_a_store_without_a_champion_has_nothing_to_check(any_place: Place) -> None:
    assert check_champion(any_place.store, "deepfm") is None


@pytest.mark.parametrize(
    ("weights", "rule"),
    [
        ({"table": np.array([[1.0, np.nan]], np.float32)}, "weights are finite"),
        ({"table": np.ones((2, 2), np.float32), "dense_0": np.array([np.inf])}, "weights are finite"),
        ({"table": np.ones((2, 2), np.float32), "dense_0": np.float32(3.0)}, None),
        ({"table": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))}, None),
    ],
)
def test_weights_are_read_bit_by_bit(place: Place, weights: dict[str, Any], rule: str | None) -> None:
    found = place.promote(place.candidate("one", weights=weights))
    assert [rule.rule for rule in found.rules if not rule.passed] == ([rule] if rule else [])


def test_scores_other_than_the_evaluations_are_not_promoted(place: Place) -> None:
    model, evaluation = place.candidate("one")
    document = json.loads(evaluation.read_text())
    document["sample"][3]["score"] *= 1.001
    evaluation.write_text(json.dumps(document))
    found = place.promote((model, evaluation))
    assert [rule.rule for rule in found.rules if not rule.passed] == ["SavedModel scores as evaluated"]
    assert "8 rows are up to 1.0e-03 off the evaluation's" in found.reason


def test_weights_other_than_the_training_stated_are_not_promoted(place: Place) -> None:
    found = place.promote(place.candidate("one", parameter_checksum="0" * 64))
    assert [rule.rule for rule in found.rules if not rule.passed] == ["workers agree"]


def test_another_transform_than_the_datasets_is_not_promoted(place: Place, dataset_of: Any, rows_of: Any) -> None:
    from components.records import Schema

    schema = Schema(field_size=3, feature_size=50)
    manifest = dataset_of(place.root / "data", "blocks", [rows_of(4, schema)], [rows_of(4, schema)], schema)
    (place.root / "data" / "transform.json").write_text("{}")
    digest = manifest_digest(manifest)
    model, evaluation = place.candidate("one", data_digest=digest)
    evaluation.write_text(json.dumps({**json.loads(evaluation.read_text()), "data_digest": digest}))
    config = PromoteConfig()
    found = promote(config, model, evaluation, place.store, place.out, place.report, dataset=place.root / "data")
    assert [rule.rule for rule in found.rules if not rule.passed] == ["data and transform"]
    assert "not with the transform of its dataset: it has none" in found.reason


def test_a_champion_whose_version_is_gone_is_an_error(place: Place) -> None:
    place.promote(place.candidate("one"))
    (place.store / "deepfm" / "versions" / "1").rename(place.root / "away")
    with pytest.raises(NotPromotable, match="names version 1, which is not in the store"):
        read_champion(place.store, "deepfm")


@pytest.mark.parametrize("settings", [{"name": "a/b"}, {"name": ".."}, {"margin": -1.0}])
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        PromoteConfig(**settings)
