"""The index of runs in MLflow: what it makes once, what it changes, and what it leaves out."""

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from components.promote.model_store import roll_back
from pipelines.runs import Run, Task

mlflow = pytest.importorskip("mlflow", reason="no MLflow here: make mlflow")


@pytest.fixture
def index(tmp_path: Path) -> Any:
    from pipelines.mlflow_index import Index
    from pipelines.ui_server import tracking_uri

    (tmp_path / ".mlflow").mkdir()
    return Index(tmp_path, tracking_uri(tmp_path))


def record(**changes: Any) -> Run:
    task = Task(name="preprocess", state="succeeded", started="2026-12-03T01:00:00+00:00", ended="2026-12-03T01:00:04+00:00")
    made = Run(
        run_id="20261203-010000-abcd",
        parameters={"name": "ads", "seed": 1, "notify": "", "preprocessing": "x" * 7000},
        state="succeeded",
        started="2026-12-03T01:00:00+00:00",
        ended="2026-12-03T01:01:00+00:00",
        tasks=(task,),
    )
    return replace(made, **changes)


def put(runs: Path, run: Run) -> Path:
    folder = runs / run.run_id
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(asdict(run)))
    return folder


def shown(index: Any) -> dict[str, Any]:
    found = index._mlflow.search_runs([index._mlflow.get_experiment_by_name("ads").experiment_id])
    return {each.info.run_name: each for each in found}


def test_a_second_pass_changes_nothing_and_a_changed_run_is_changed_in_place(index: Any, tmp_path: Path) -> None:
    me = psutil.Process()
    alive = {"pid": os.getpid(), "pid_started": me.create_time()}
    running = record(state="running", ended="", **alive)
    put(tmp_path, running)
    assert (index.update(), index.update()) == (1, 0)
    assert shown(index)[running.run_id].info.status == "RUNNING"
    put(tmp_path, record(**alive))
    assert (index.update(), index.update()) == (1, 0)
    found = shown(index)
    assert len(found) == 2
    run = found[running.run_id]
    assert (run.info.status, run.info.end_time - run.info.start_time) == ("FINISHED", 60_000)
    assert run.data.params["seed"] == "1"
    assert "notify" not in run.data.params
    assert found["preprocess"].data.tags["mlflow.parentRunId"] == run.info.run_id


def test_another_process_finds_what_was_indexed(index: Any, tmp_path: Path) -> None:
    from pipelines.mlflow_index import Index
    from pipelines.ui_server import tracking_uri

    put(tmp_path, record())
    assert index.update() == 1
    assert Index(tmp_path, tracking_uri(tmp_path)).update() == 0


def test_a_run_whose_process_was_killed_is_shown_as_killed_and_its_page_says_so(index: Any, tmp_path: Path) -> None:
    folder = put(tmp_path, record(state="running", ended="", pid=2**22 + 1, pid_started=1.0))
    index.update()
    assert shown(index)[record().run_id].info.status == "KILLED"
    assert "interrupted: its process has ended without a word" in (folder / "index.html").read_text()


def test_a_record_that_cannot_be_read_is_told_once_and_left_out(
    index: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, record())
    (tmp_path / "20261203-020000-beef").mkdir()
    (tmp_path / "20261203-020000-beef/run.json").write_text("{")
    index.update()
    index.update()
    assert len([each for each in caplog.records if "not valid JSON" in each.message]) == 1
    assert record().run_id in shown(index)


def test_the_champion_of_a_store_has_the_alias_after_a_rollback_too(index: Any, tmp_path: Path, store: str) -> None:
    put(tmp_path, record(parameters={"name": "ads", "store": store}))
    index.update()
    versions = index._mlflow.search_model_versions("name = 'deepfm'")
    assert sorted((str(each.version), each.tags["auc"]) for each in versions) == [("1", "0.700000"), ("2", "0.710000")]
    assert str(index._mlflow.get_model_version_by_alias("deepfm", "champion").version) == "2"
    roll_back(store, "deepfm", 1, "the night was bad")
    index.update()
    assert str(index._mlflow.get_model_version_by_alias("deepfm", "champion").version) == "1"
    assert len(index._mlflow.search_model_versions("name = 'deepfm'")) == 2


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_models_of_two_stores_are_two(index: Any, tmp_path: Path, store: str) -> None:
    shutil.copytree(store, tmp_path / "others")
    put(tmp_path, record(parameters={"name": "ads", "store": store}))
    put(tmp_path, record(run_id="20261203-020000-beef", parameters={"name": "ads", "store": str(tmp_path / "others")}))
    index.update()
    models = index._mlflow.search_registered_models()
    assert sorted(each.tags["ctrflow.store"] for each in models) == sorted([store, str(tmp_path / "others")])
    assert [str(each.aliases["champion"]) for each in models] == ["2", "2"]


def test_a_store_that_cannot_be_read_hides_no_run(index: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "models/ads/versions/1").mkdir(parents=True)
    (tmp_path / "models/ads/versions/1/version.json").write_text("{}")
    put(tmp_path, record(parameters={"name": "ads", "store": str(tmp_path / "models")}))
    index.update()
    index.update()
    assert record().run_id in shown(index)
    assert len([each for each in caplog.records if str(tmp_path / "models") in each.message]) == 1
