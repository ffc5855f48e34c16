"""The whole pipeline on this machine, as a user runs it: real steps, real training jobs, signals and kills."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from sklearn.metrics import log_loss

from components.preprocess.keys import below, row_keys
from pipelines.run_page import task_metrics

Run = Callable[..., "subprocess.CompletedProcess[str]"]
MODEL = ("--embedding-size", "8", "--deep-layers", "16", "--batch-size", "256", "--learning-rate", "0.01")
# The shortest run: no race, and no more probes than profiling needs.
SHORT = (*MODEL, "--strategy", "single", "--profile-budget-s", "3")
# Together on one worker of pytest-xdist: another would make the same run again.
OF_ONE_RUN = pytest.mark.xdist_group("one-run")
STEPS = ["preprocess", "profile-utilization", "select-strategy", "train", "evaluate", "promote"]
TASKS = [*STEPS, "finish"]


def newest(folder: Path) -> tuple[Path, dict[str, Any]]:
    run = max(folder.glob("runs/2*"))
    return run, json.loads((run / "run.json").read_text())


@OF_ONE_RUN
def test_raw_clicks_become_a_promoted_model(first: tuple[Path, "subprocess.CompletedProcess[str]"]) -> None:
    folder, done = first
    assert done.returncode == 0, done.stdout + done.stderr
    run, record = newest(folder)
    assert record["state"] == "succeeded"
    assert [(task["name"], task["state"]) for task in record["tasks"]] == [(task, "succeeded") for task in TASKS]
    assert all((run / step / "report.html").is_file() and (run / "logs" / f"{step}.log").is_file() for step in STEPS)
    champion = json.loads((folder / "models/deepfm/champion.json").read_text())
    assert champion["version"] == 1
    assert (folder / "models/deepfm/versions/1/model/saved_model/saved_model.pb").is_file()


@OF_ONE_RUN
def test_every_step_gives_kubeflow_its_figures(first: tuple[Path, "subprocess.CompletedProcess[str]"]) -> None:
    run, record = newest(first[0])
    given = {step: task_metrics(run, step) for step in STEPS}
    # By its rows' keys a tenth of 20,000 rows is held out, and not to the row.
    rows = given["preprocess"]
    assert (rows["train_rows"] + rows["validation_rows"], rows["rejected_rows"], rows["ids"]) == (20_000, 0, 200_052)
    assert given["profile-utilization"]["input_alone_examples_per_s"] > 0
    assert 0 < given["profile-utilization"]["utilization"] < 1.5
    assert given["select-strategy"]["batch_size"] * given["select-strategy"]["workers_per_host"] >= 256
    assert given["train"]["examples_per_s"] > 0
    assert 0.5 < given["evaluate"]["auc"] < 1
    promoted = given["promote"]
    assert (promoted["promoted"], promoted["version"], promoted["rules_passed"]) == (1, 1, promoted["rules"])
    assert record["state"] == "succeeded"


@OF_ONE_RUN
def test_the_race_was_run_with_real_ranks_and_servers(first: tuple[Path, "subprocess.CompletedProcess[str]"]) -> None:
    run, _ = newest(first[0])
    rungs = {rung["name"]: rung for rung in json.loads((run / "select-strategy/plan").read_text())["rungs"]}
    assert {"horovod", "parameter_server", "choice"} <= rungs.keys()
    hosts = {path.name for path in (run / "jobs").glob("ctrflow-race-parameter-server-*/algo-*") if path.is_dir()}
    assert hosts == {"algo-1", "algo-2"}


@OF_ONE_RUN
def test_one_line_a_step_then_a_table(first: tuple[Path, "subprocess.CompletedProcess[str]"]) -> None:
    _, done = first
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:8]] == TASKS
    assert "20,000 rows" in lines[1]
    for word in ("outside the steps' own work", "examples/s", "the best reachable is", "promoted", "report.html"):
        assert word in done.stdout
    assert "KFP Executor" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@OF_ONE_RUN
def test_the_shipped_recipe_compiled_runs_here_and_starts_from_and_meets_the_first_ones_champion_in_s3(
    first: tuple[Path, "subprocess.CompletedProcess[str]"], ctrflow: Run, s3: Any
) -> None:
    folder, _ = first
    for path in (each for each in (folder / "models").rglob("*") if each.is_file() and not each.name.startswith(".")):
        s3.upload_file(str(path), "clicks", path.relative_to(folder).as_posix())
    assert ctrflow("init", cwd=folder).returncode == 0
    assert ctrflow("compile", "retrain.yaml", "--recipe", "recipe.yaml", cwd=folder).returncode == 0
    changes = [f"--set=learning.{change}" for change in ("embedding_size=8", "deep_layers=[16]", "batch_size=256")]
    changes += ["--set=learning.learning_rate=0.01", "--set=strategy=single", "--set=profile_budget_s=3", "--set=warm_start=true"]
    changes += ["--set=models=s3://clicks/models", "--set=margin=0.5"]
    recipe = ("--recipe", "recipe.yaml", "--set", "sample_rows=20000", *changes)
    done = ctrflow("run", *recipe, "--pipeline", "retrain.yaml", "--json", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    run, record = newest(folder)
    assert json.loads(done.stdout) == record
    evaluation = json.loads((run / "evaluate/evaluation").read_text())
    assert evaluation["champion"]["version"] == 1
    assert evaluation["champion"]["auc"] > 0.6
    plan = json.loads((run / "select-strategy/plan").read_text())
    assert plan["strategy"] == "single"
    champion = json.loads((folder / "models/deepfm/versions/1/model/model.json").read_text())
    # Raw Criteo logs have a table of 200,000 ids for hashed tokens, and 52 others, unless told otherwise.
    kept = {"rows_kept": 200_052, "rows_new": 0, "champion_checksum": champion["parameter_checksum"]}
    assert json.loads((run / "train/training").read_text())["warm_start"] == kept
    assert "200052 rows kept, 0 new" in (run / "logs/train.log").read_text()
    promotion = json.loads((run / "promote/promotion").read_text())
    assert (promotion["promoted"], promotion["version"], promotion["champion_before"]) == (True, 2, 1), promotion["reason"]
    assert json.load(s3.get_object(Bucket="clicks", Key="models/deepfm/champion.json")["Body"])["version"] == 2
    assert not (folder / "models/deepfm/versions/2").exists()


def test_a_table_becomes_a_model_that_scores_its_raw_rows_as_it_was_evaluated(ctrflow: Run, tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    price, country = draw.integers(0, 100, 4000), draw.choice(["DE", "FR", "São Tomé, São"], 4000)
    clicks = (draw.random(4000) < np.where(country == "DE", 0.7, 0.2)).astype(int)
    labels = [str(click) for click in clicks]
    labels[17] = "7"
    cells = zip(labels, price.tolist(), country.tolist(), strict=True)
    (tmp_path / "day.csv").write_text("it's,click,price,country\n" + "".join(f'x,{a},{b},"{c}"\n' for a, b, c in cells))
    (tmp_path / "raw.csv").write_text(
        "price,country\n" + "".join(f'{a},"{b}"\n' for a, b in zip(price.tolist(), country.tolist(), strict=True))
    )
    columns = {"label": "click", "numeric": ["price"], "categorical": ["country"], "ignored": ["it's"]}
    (tmp_path / "columns.json").write_text(json.dumps(columns))
    table = ("--data", "day.csv", "--format", "csv", "--columns", "columns.json", "--categories", "vocabulary")
    done = ctrflow("run", *table, "--on-bad-row", "skip", *SHORT, "--epochs", 3, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    run, record = newest(tmp_path)
    # The user's file is not needed where the step runs.
    assert json.loads(json.loads(record["parameters"]["preprocessing"])["columns"]) == columns
    assert json.loads((run / "preprocess/dataset/manifest.json").read_text())["sources"][0]["rejected"] == {"label": 1}
    model = tmp_path / "models/deepfm/versions/1/model"
    assert (model / "transform.json").read_bytes() == (run / "preprocess/dataset/transform.json").read_bytes()

    done = ctrflow("score", model, "raw.csv", "--format", "csv", "--out", "scores.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "scores.csv: 4,000 rows scored\n"
    scores = np.loadtxt(tmp_path / "scores.csv", delimiter=",", skiprows=1)[:, 1]
    # Rows validate by a key of seed, file and line; the first row stands in line 2.
    held_out = below(row_keys(1, 0, np.arange(2, 4002)), 0.1) & (np.arange(4000) != 17)
    evaluation = json.loads((run / "evaluate/evaluation").read_text())
    assert evaluation["rows"] == held_out.sum()
    assert log_loss(clicks[held_out], scores[held_out]) == pytest.approx(evaluation["log_loss"], rel=1e-5)


def test_bad_data_ends_the_run_with_one_line_and_no_dataset(ctrflow: Run, tmp_path: Path) -> None:
    (tmp_path / "clicks.libsvm").write_text("1 3:1 4:1\n0 5:1 x:1\n")
    done = ctrflow("run", "--data", "clicks.libsvm", "--format", "libsvm", cwd=tmp_path)
    run, record = newest(tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ctrflow: step preprocess failed: {tmp_path}/clicks.libsvm, line 2: 'x:1'")
    assert done.stderr.strip().endswith(f"log: {run}/logs/preprocess.log")
    assert len(done.stderr.splitlines()) == 1
    assert record["state"] == "failed"
    assert not (run / "preprocess/dataset").exists()
    assert not (tmp_path / "models").exists()


def test_verbose_prints_every_line_of_a_step(ctrflow: Run, tmp_path: Path) -> None:
    (tmp_path / "clicks.libsvm").write_text("1 3:1 4:1\n0 5:1 x:1\n")
    done = ctrflow("run", "--data", "clicks.libsvm", "--format", "libsvm", "--verbose", cwd=tmp_path)
    run, _ = newest(tmp_path)
    logged = (run / "logs/preprocess.log").read_text()
    assert "Traceback (most recent call last)" in logged
    assert "Traceback (most recent call last)" in done.stdout
    assert done.returncode == 1


def groups_of(processes: Iterable[psutil.Process]) -> set[int]:
    """Process groups of those that run; others of this machine come and go meanwhile."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.add(os.getpgid(process.pid))
    return found


@pytest.mark.parametrize("step", ["preprocess", "profile-utilization", "select-strategy", "train", "evaluate"])
def test_ctrl_c_in_the_middle_of_a_step_leaves_nothing_running(start: Callable[..., Any], step: str) -> None:
    epochs = "1000" if step == "train" else "1"
    choice = (*MODEL, "--profile-budget-s", "3") if step == "select-strategy" else SHORT
    command = start("run", "--sample-rows", "60000", *choice, "--epochs", epochs)
    command.wait_for_step(step)
    if step in ("profile-utilization", "select-strategy", "train"):
        command.wait_for(command.trains)
    groups = groups_of(command.look())
    assert len(groups) >= 1
    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(30) == 130, command.output()
    assert command.left_over() == []
    assert not groups & groups_of(psutil.process_iter())
    record = command.run_record()
    assert (record["state"], record["tasks"][-1]["state"]) == ("stopped", "stopped")
    assert "everything that ran has ended" in command.output()
    assert not (command.cwd / "models/deepfm/champion.json").exists()


@pytest.mark.parametrize(
    ("strategy", "role", "reason"),
    [
        ("horovod", "rank 1", "rank 1 was killed by signal 9 (SIGKILL)"),
        ("parameter_server", "ps 1", "parameter server 1 was killed by signal 9 (SIGKILL)"),
    ],
)
def test_a_killed_training_process_fails_the_run_by_name(start: Callable[..., Any], strategy: str, role: str, reason: str) -> None:
    command = start("run", "--sample-rows", "20000", *MODEL, "--profile-budget-s", "3", "--strategy", strategy, "--epochs", "1000")
    command.wait_for_step("train")

    def victims() -> list[psutil.Process]:
        found = []
        for child in command.look():
            try:
                if child.environ().get("CTRFLOW_ROLE") == role:
                    found.append(child)
            except psutil.Error:
                continue
        return found

    def training() -> bool:
        return bool(victims()) and any(
            "left out" in log.read_text() for log in command.cwd.glob("runs/2*/jobs/ctrflow-train-*/algo-1.log")
        )

    command.wait_for(training)
    victims()[0].kill()
    assert command.process.wait(30) == 1, command.output()
    assert reason in command.output().splitlines()[-1]
    assert command.output().splitlines()[-1].startswith("ctrflow: step train failed: ")
    assert command.left_over() == []
    assert not (command.cwd / "models").exists()
