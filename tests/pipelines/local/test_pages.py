"""What a person sees of the same run in a real browser: its own page, and MLflow's."""

import importlib.util
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.run_page import task_metrics

pytestmark = pytest.mark.xdist_group("one-run")
First = tuple[Path, "subprocess.CompletedProcess[str]"]
TEXT = "document.body.innerText"


def newest(folder: Path) -> Path:
    return max((folder / "runs").glob("2*"))


def readable(browser: Any) -> bool:
    return bool(browser.value("document.documentElement.scrollWidth") <= 1280)


def test_the_page_of_a_finished_run_has_its_numbers_and_leads_to_every_report(browser: Any, first: First) -> None:
    run = newest(first[0])
    browser.open(run / "index.html")
    browser.screenshot("run-finished")
    assert browser.complaints() == []
    assert readable(browser)
    text = browser.value(TEXT)
    evaluation = json.loads((run / "evaluate/evaluation").read_text())
    assert f"AUC {evaluation['auc']:.4f}" in text
    assert "promoted as version 1" in text
    links = browser.value("[...document.querySelectorAll('td a')].filter(a => a.innerText == 'report').map(a => a.href)")
    # Every step has one, and none of them complains.
    assert len(links) >= 6
    for link in links:
        browser.open(link)
        assert browser.complaints() == []
        assert readable(browser)
        assert len(browser.value(TEXT)) > 200


def test_the_page_of_a_failed_run_says_which_step_and_why(browser: Any, ctrflow: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "clicks.libsvm").write_text("1 3:1 4:1\n0 5:1 x:1\n")
    assert ctrflow("run", "--data", "clicks.libsvm", "--format", "libsvm", cwd=tmp_path).returncode == 1
    browser.open(newest(tmp_path) / "index.html")
    browser.screenshot("run-failed")
    assert browser.complaints() == []
    text = browser.value(TEXT)
    assert "failed after" in text
    assert "clicks.libsvm, line 2: 'x:1'" in text
    assert "not run" in text


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="no MLflow here: make mlflow")
def test_mlflow_shows_the_run_its_steps_reports_and_champion(browser: Any, start: Callable[..., Any], first: First) -> None:
    from mlflow.tracking import MlflowClient

    run = newest(first[0])
    command = start("ui", "--runs", str(run.parent), "--port", "0", "--json")
    command.wait_for(lambda: "address" in command.output(), timeout_s=60)
    address = json.loads(next(line for line in command.output().splitlines() if "address" in line))["address"]
    client = MlflowClient(address, address)
    command.wait_for(lambda: any(one.name == "deepfm" for one in client.search_registered_models()))
    experiment = client.get_experiment_by_name("deepfm")
    assert experiment is not None
    found = {each.info.run_name: each for each in client.search_runs([experiment.experiment_id])}
    parent = found[run.name]
    assert parent.data.metrics["evaluate.auc"] == task_metrics(run, "evaluate")["auc"]
    assert found["train"].data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert {each.info.status for each in found.values()} == {"FINISHED"}
    losses = json.loads((run / "train/training").read_text())["losses"]
    drawn = client.get_metric_history(found["train"].info.run_id, "loss")
    assert [(each.step, each.value) for each in drawn] == [(step, loss) for step, loss in losses]
    assert client.get_model_version_by_alias("deepfm", "champion").version == "1"

    pages = f"{address}/#/experiments/{experiment.experiment_id}/runs"
    browser.open(f"{pages}/{parent.info.run_id}")
    browser.wait_for(f"{TEXT}.includes('evaluate.auc')")
    browser.screenshot("mlflow-run")
    assert f"{parent.data.metrics['evaluate.auc']:.4f}"[:5] in browser.value(TEXT)
    browser.open("about:blank")
    browser.open(f"{pages}/{found['evaluate'].info.run_id}/artifacts/report.html")
    # A frame of its own, which the page around it may not look into, but fetch.
    browser.wait_for("document.querySelector('iframe')?.src")
    fetched = browser.ask(
        "Runtime.evaluate",
        expression="fetch(document.querySelector('iframe').src).then(answer => answer.text())",
        awaitPromise=True,
        returnByValue=True,
    )
    assert fetched["result"]["value"] == (run / "evaluate/report.html").read_text()
    browser.screenshot("mlflow-report")
    assert not (command.cwd / "mlruns").exists()

    command.look()
    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(30) == 130, command.output()
    assert command.left_over() == []
