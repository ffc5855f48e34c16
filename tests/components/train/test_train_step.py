"""A completed job is not believed until its model is whole, from rank 0, agreed on by all ranks, and of this dataset."""

import hashlib
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.errors import InvalidConfig, TrainingJobFailed
from components.figures import known
from components.job_bills import Bill
from components.promote.lineage import lineage
from components.train.step import TrainStepConfig, _bill_rows, _billed, _fetch_model, _resumption, champion_to_start_from, figures
from components.training_jobs import FinishedJob

GRAPH = b"not a real graph, only bytes with a digest"


def job_with(folder: Path, *, without: str = "", graph: bytes = GRAPH, **changes: Any) -> FinishedJob:
    """A finished job whose model.tar.gz holds a model with these changes to model.json."""
    model = folder / "made"
    (model / "saved_model").mkdir(parents=True)
    (model / "saved_model" / "saved_model.pb").write_bytes(graph)
    card = {
        "format_version": 1,
        "strategy": "horovod",
        "rank": 0,
        "world_size": 2,
        "step": 50,
        "examples": 51200,
        "field_size": 39,
        "feature_size": 100,
        "id_base": 0,
        "data_digest": "the dataset",
        "config": {},
        "parameter_checksum": "c0ffee",
        "ranks_agreed": True,
        "metrics": {"final_loss": 0.5},
        "files": {"saved_model/saved_model.pb": {"bytes": len(GRAPH), "sha256": hashlib.sha256(GRAPH).hexdigest()}},
    }
    (model / "model.json").write_text(json.dumps({**card, **changes}))
    archive = folder / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(path for path in model.rglob("*") if path.is_file() and path.name != without):
            tar.add(path, arcname=str(path.relative_to(model)))
    uri = archive.as_uri()
    return FinishedJob(name="job-1", arn="arn", status="Completed", model_uri=uri, output_uri=uri, training_s=1.0, billable_s=1.0)


def test_a_sound_model_comes_home(tmp_path: Path) -> None:
    card = _fetch_model(job_with(tmp_path), tmp_path / "model", "the dataset")
    assert (card.rank, card.world_size, card.step) == (0, 2, 50)
    assert (tmp_path / "model" / "saved_model" / "saved_model.pb").read_bytes() == GRAPH


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"without": "model.json"}, "model.json"),
        ({"without": "saved_model.pb"}, "saved_model.pb"),
        ({"graph": GRAPH[::-1]}, "saved_model.pb"),
        ({"rank": 1}, "rank 1"),
        ({"ranks_agreed": False}, "2 ranks ended with different parameters"),
        ({"ranks_agreed": "false"}, "ranks_agreed 'false' is not bool"),
        ({"data_digest": "another day"}, "another day"),
    ],
)
def test_an_unsound_model_fails_the_job_by_name(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(TrainingJobFailed) as error:
        _fetch_model(job_with(tmp_path, **changes), tmp_path / "model", "the dataset")
    assert "job-1" in str(error.value)
    assert named in str(error.value)


def test_a_job_without_a_model_has_failed(tmp_path: Path) -> None:
    job = job_with(tmp_path)
    (tmp_path / "model.tar.gz").unlink()
    with pytest.raises(TrainingJobFailed, match="job-1"):
        _fetch_model(job, tmp_path / "model", "the dataset")


@pytest.mark.parametrize("wrong", [{"steps": -1}, {"epochs": 0}])
def test_impossible_lengths_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(wrong))):
        TrainStepConfig(**wrong)


def test_without_a_champion_yet_there_is_no_warm_start_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert champion_to_start_from(tmp_path, "deepfm", tmp_path) is None
    assert "no champion of deepfm" in caplog.text


BILL = Bill(
    instance_type="ml.c5.xlarge",
    instance_count=2,
    training_s=100.0,
    billable_s=30.0,
    instance_s=60.0,
    usd=0.0034,
    saving=0.7,
    interruptions=1,
)


@pytest.mark.parametrize(
    ("interruptions", "resumed_at", "before", "says"),
    [
        (0, 0, None, ""),
        (1, 300, 300, ""),
        (2, 600, 600, ""),
        (1, 0, None, "began again at step 0: no checkpoint was left"),
        (2, 0, 300, "resumed at step 0, although it had resumed at step 300 before"),
    ],
)
def test_an_interrupted_job_that_did_not_go_on_where_it_was_is_told_of(
    tmp_path: Path, interruptions: int, resumed_at: int, before: int | None, says: str
) -> None:
    metrics = {} if before is None else {"resumed_at_step": float(before)}
    job = replace(job_with(tmp_path), bill=replace(BILL, interruptions=interruptions), metrics=metrics)
    found = _resumption(job, resumed_at)
    assert says in found
    assert bool(found) is bool(says)


@pytest.mark.parametrize(
    ("bill", "loss", "shown"),
    [
        (BILL, 0.5, {"final_loss": 0.5, "billable_s": 30.0, "instance_s": 60.0, "usd": 0.0034, "interruptions": 1.0}),
        (replace(BILL, usd=None), None, {"billable_s": 30.0, "instance_s": 60.0, "interruptions": 1.0}),
        (None, float("nan"), {}),
    ],
)
def test_kfp_gets_the_rate_and_the_bill_as_far_as_they_are_known(
    tmp_path: Path, bill: Bill | None, loss: float | None, shown: dict[str, float]
) -> None:
    training, job = tmp_path / "training.json", replace(job_with(tmp_path), bill=bill)
    document = {"examples_per_s": 1000.0, "train_s": 20.0, "final_loss": loss, "job": _billed(job, "image")}
    training.write_text(json.dumps(document))
    assert known(figures(training)) == {"examples_per_s": 1000.0, "train_s": 20.0, **shown}


def test_training_json_and_the_report_say_what_the_job_cost_and_what_it_ran(tmp_path: Path) -> None:
    lacking = ("ml.c5.large: CapacityError",)
    job = replace(job_with(tmp_path), bill=BILL, passed_over=lacking, log_link="https://logs")
    image = "registry/ctrflow/training@sha256:" + "9" * 64
    training = tmp_path / "training.json"
    training.write_text(json.dumps({"job": _billed(job, image), "plan": {}}))
    written = json.loads(training.read_text())["job"]
    assert (written["bill"]["usd"], written["bill"]["saving"], written["passed_over"]) == (0.0034, 0.7, [*lacking])
    assert lineage(training, "the dataset", "2f0c").image_digest == "sha256:" + "9" * 64
    assert _bill_rows(job) == [
        ["no capacity", "ml.c5.large: CapacityError"],
        ["bill", "30 s of 2 x ml.c5.xlarge, 0.0034 USD"],
        ["saved by spot instances", "70%, 1 interruption(s)"],
        ["logs", "https://logs"],
    ]
