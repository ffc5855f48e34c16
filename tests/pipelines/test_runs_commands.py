"""ctrflow runs, of this machine's runs, made as runs leave them; those of a cluster are in contract/."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.runs import RunRecord, Task

Said = Callable[..., Any]
TASK = Task(name="train", state="running", started="2026-12-02T19:49:50.632+00:00")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(run_id: str, schedule: str = "", *, at: int = 0) -> RunRecord:
    """A run of this process, which wrote its record `at` seconds after 1970."""
    record = RunRecord(Path("runs"), run_id, {"name": "ads"}, schedule=schedule, written=lambda folder, run: None)
    record.put(TASK)
    os.utime(record.folder / "run.json", (at, at))
    return record


def test_the_newest_of_a_schedule_are_those_of_it_alone(said: Said) -> None:
    for at, (run_id, schedule) in enumerate([("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("own", "")]):
        made(run_id, schedule, at=at)
    _, listed, _ = said("runs", "list", "--schedule", "a", "--most", "2", "--json")
    assert [run["run_id"] for run in listed] == ["a3", "a2"]
    _, listed, _ = said("runs", "list", "--most", "2", "--json")
    assert [run["run_id"] for run in listed] == ["own", "b1"]


def test_a_run_shown_and_its_logs(said: Said) -> None:
    record = made("r1")
    (record.folder / "logs").mkdir()
    (record.folder / "logs/train.log").write_text("step 1\n")
    record.end("failed", "step train failed: no rows")
    summary = {
        "run_id": "r1",
        "name": "ads",
        "state": "FAILED",
        "error": "step train failed: no rows",
        "steps": {"train": "FAILED"},
    }
    _, (listed,), _ = said("runs", "list", "--json")
    assert summary.items() <= listed.items()
    assert sorted(listed) == ["created", "ended", "error", "name", "run_id", "schedule", "state", "steps"]
    assert said("runs", "show", "r1", "--json")[1] == json.loads((record.folder / "run.json").read_text())
    assert "  train                 FAILED" in said("runs", "show", "r1")[1].splitlines()
    assert said("runs", "logs", "r1", "train", "--json")[1] == {"train": "step 1\n"}
    assert said("runs", "logs", "r1", "trian")[2].startswith("ctrflow: run r1: no log of trian; ")


def test_terminate_ends_the_process_of_the_run_of_that_name_and_no_other(said: Said) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            record = made("nightly-run")
            document = json.loads((record.folder / "run.json").read_text())
            document |= {"pid": process.pid, "pid_started": psutil.Process(process.pid).create_time()}
            (record.folder / "run.json").write_text(json.dumps(document))
            code, told, errors = said("runs", "terminate", "nightly-run", "--json")
            assert (code, told) == (0, {"run_id": "nightly-run", "asked": True, "jobs": []}), errors
            assert process.wait(10) == -signal.SIGTERM
        finally:
            process.kill()
    assert said("runs", "show", "nightly-run")[0] == 0
    assert said("runs", "terminate", "nightly-run")[2].startswith("ctrflow: run nightly-run: is not running")
    assert said("runs", "retry", "nightly-run")[2].startswith("ctrflow: run nightly-run: only runs of a cluster go on; ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs", "show", "../x"),
        ("runs", "logs", "/etc"),
        ("runs", "terminate", ".."),
        ("run", "--run-id", "../x"),
        ("schedule", "create", "--local", "--cron", "0 3 * * *", "--name", "../x"),
    ],
    ids=" ".join,
)
def test_a_name_that_leads_elsewhere_is_refused_in_one_line(said: Said, folder: Path, arguments: tuple[str, ...]) -> None:
    (folder / "x").mkdir()
    (folder / "x/run.json").write_text("{}")
    (folder / "recipe.yaml").write_text("sample_rows: 200\n")
    code, _, errors = said(*arguments)
    assert code == 1
    most = 63 if "schedule" in arguments else 81
    assert errors.splitlines()[-1].endswith(
        f": 1 to {most} letters, digits, dots, dashes or underscores, the first a letter or digit"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["recipe.yaml", "x"]


def test_a_run_is_opened_in_the_browser_and_its_page_says_what_has_become_of_it(
    said: Said, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {folder}/opened\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    made("r1")
    assert said("runs", "show", "r1", "--open")[0] == 0
    page = folder / "runs/r1/index.html"
    assert (folder / "opened").read_text().strip() == page.as_uri()
    assert "running since" in page.read_text()
