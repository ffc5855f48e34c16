"""Every step as a command on plain paths, and what the commands say to bad input."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ("--embedding-size", "8", "--deep-layers", "16", "--batch-size", "256")


def test_the_steps_one_by_one(ctrflow: Run, tmp_path: Path) -> None:
    def ok(*arguments: object) -> str:
        done = ctrflow(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "no model can beat AUC 0." in ok("sample", "clicks.tsv", "--rows", 20_000, "--seed", 3)
    found = re.search(r"([\d,]+) rows to train, ([\d,]+) to validate", ok("preprocess", "clicks.tsv", "dataset"))
    assert found
    train, validation = (int(number.replace(",", "")) for number in found.groups())
    # Rows are held out one by one; the standard deviation is 42.
    assert train + validation == 20_000
    assert abs(validation - 2000) < 170
    model = ("--embedding-size", 8, "--deep-layers", "16", "--batch-size", 256, "--learning-rate", "0.01")
    ok("profile", "dataset", "profile", "--budget-s", 3, *model)
    profile = json.loads((tmp_path / "profile/profile.json").read_text())
    # The budget is over when the first job ends, which measures three parts and is one job.
    assert [probe["kind"] for probe in profile["probes"]] == ["both", "compute", "input"]
    assert len({probe["job_name"] for probe in profile["probes"]}) == 1
    assert all(probe["rate_low"] < probe["examples_per_s"] < probe["rate_high"] for probe in profile["probes"])
    assert sum(probe["job_s"] for probe in profile["probes"]) <= profile["cost_s"]
    assert (profile["scaling"], profile["expected_s"], profile["cost_usd"]) == ([], 3, None)
    assert "Not tried, the budget was used up: horovod, 1 host x 2 workers" in (tmp_path / "profile/report.html").read_text()
    assert ok("select", "profile", "plan", "--strategy", "horovod").startswith("horovod")
    assert "17,920 examples" in ok("train", "dataset", "trained", "--plan", "plan/plan.json")
    assert json.loads((tmp_path / "trained/training.json").read_text())["world_size"] == 2
    assert 0.7 < json.loads(ok("evaluate", "trained/model", "dataset", "evaluation", "--json"))["auc"] < 0.8
    assert json.loads(ok("promote", "trained/model", "evaluation", "models", "--json"))["promoted"] is True
    assert json.loads((tmp_path / "models/deepfm/champion.json").read_text())["version"] == 1
    assert "12,800 examples" in ok("train", "dataset", "direct", "--strategy", "single", "--steps", 50, *model)
    ok("train", "dataset", "two-hosts", "--strategy", "horovod", "--hosts", 2, "--steps", 50, *model)
    single, ring = (json.loads((tmp_path / out / "training.json").read_text()) for out in ("direct", "two-hosts"))
    assert (ring["hosts"], ring["workers_per_host"], ring["world_size"]) == (2, 1, 2)
    assert ring["final_loss"] == pytest.approx(single["final_loss"], rel=1e-4)
    for page in ("dataset", "profile/report", "plan/report", "trained/report", "evaluation/report", "evaluation/promotion/report"):
        assert (tmp_path / f"{page}.html").is_file()


def test_training_goes_on_from_a_model_whose_vocabulary_has_grown_since(ctrflow: Run, tmp_path: Path) -> None:
    rows = "".join(f"{row % 2} {row % 30}:1 {30 + row % 50}:1\n" for row in range(400))
    (tmp_path / "clicks.libsvm").write_text(rows)

    def ok(*arguments: object) -> str:
        done = ctrflow(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stderr

    for day, ids in (("monday", 100), ("tuesday", 130)):
        ok("preprocess", "clicks.libsvm", day, "--format", "libsvm", "--feature-size", ids)
    # One optimizer that steps by the gradient, at no rate: what the second training ends with is what it began with.
    learned = ("--embedding-size", 4, "--deep-layers", 8, "--batch-size", 64, "--optimizer", "sgd")
    ok("train", "monday", "first", *learned, "--steps", 5, "--learning-rate", 0.1)
    log = ok("train", "tuesday", "second", *learned, "--steps", 2, "--learning-rate", 1e-12, "--warm-start", "first/model")
    first, second = (np.load(tmp_path / name / "model/weights.npz") for name in ("first", "second"))
    np.testing.assert_allclose(second["table"][:100], first["table"], atol=1e-9)
    assert second["table"].shape[0] == 130
    checksum = json.loads((tmp_path / "first/model/model.json").read_text())["parameter_checksum"]
    found = json.loads((tmp_path / "second/training.json").read_text())["warm_start"]
    assert found == {"rows_kept": 100, "rows_new": 30, "champion_checksum": checksum}
    assert f"warm start from champion {checksum[:12]}: 100 rows kept, 30 new" in log


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("preprocess", "none.tsv", "out"), "none.tsv: no such file"),
        (("preprocess", "empty.tsv", "out"), "empty.tsv: the file is empty (0 bytes)"),
        (("preprocess", "bad.tsv", "out"), "bad.tsv, line 1: 40 columns expected (with label), "),
        (("preprocess", "bad.libsvm", "out", "--format", "libsvm"), "bad.libsvm, line 2: 'x:1' is not id:value"),
        (("preprocess", "bad.libsvm", "out", "--format", "tfrecord"), "bad.libsvm, record 0: not a TFRecord file"),
        (("preprocess", "bad.libsvm", "kept", "--format", "libsvm"), "bad.libsvm, line 2"),
        (("preprocess", "bad.tsv", "out", "--validation-fraction", "1.5"), "validation_fraction 1.5: must be between 0 and 1"),
        (("train", "nowhere", "out"), "nowhere: no manifest.json there, so it is not a dataset"),
        (("train", "nowhere", "out", "--deep-layers", "a"), "--deep-layers 'a': whole numbers separated by commas"),
        (("train", "nowhere", "out", "--plan", "plan.json", "--epochs", "2"), "--epochs with --plan: the plan decides that"),
        (("profile", "nowhere", "out"), "nowhere: no manifest.json there"),
        (("select", "nowhere", "out"), "nowhere: no such profile"),
        (("evaluate", "nowhere", "nowhere", "out"), "nowhere: no manifest.json there"),
        (("promote", "nowhere", "nowhere", "store"), "nowhere"),
        (("sample", "out", "--rows", "3"), "3"),
        (("run", "--data", "none.tsv"), "step preprocess failed: "),
        (("preprocess", "bad.tsv"), "Missing argument 'INPUTS...'; see ctrflow preprocess --help"),
        (("preproces", "bad.tsv", "out"), "No such command 'preproces'"),
        (("run", "--sample-row", "5"), "No such option '--sample-row'"),
        (("train", "dataset", "out", "--steps", "many"), "Invalid value for '--steps': 'many' is not a valid integer"),
        (("run", "--name", "a/b"), "name 'a/b': 1 to 63 letters"),
        (("run", "--margin", "3"), "margin 3.0: an AUC difference in 0..0.5 is expected"),
        (("run", "--policy", '{"minimum_row": 5}'), "policy: 'minimum_row' is unknown; did you mean minimum_rows?"),
        (("run", "--models", "gs://clicks/models"), "gs://clicks/models: a local folder or s3://bucket/folder is expected"),
        (("run", "--seed", "99999999999"), "seed 99999999999: must be in 0..4294967295"),
        (("run", "--strategy", "horovod", "--batch-size", "255"), "batch_size 255: must be a multiple of the 2 workers"),
        (("sample", "bad.tsv/clicks.tsv"), "a file is in the way"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line_and_leaves_nothing(ctrflow: Run, tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "bad.tsv").write_text("label,I1\n1,2\n")
    (tmp_path / "bad.libsvm").write_text("1 3:1 4:1\n0 5:1 x:1\n")
    done = ctrflow(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("ctrflow: ")
    assert says in line
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"empty.tsv", "bad.tsv", "bad.libsvm", "runs"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_modules_are_imported_ends_in_silence(tmp_path: Path, number: signal.Signals) -> None:
    """The signal comes from a module that stands in the place of one that the command line imports."""
    (tmp_path / "click.py").write_text(f"import os\nos.kill(os.getpid(), {number.value})\n")
    program = f"import sys; from pipelines.command import main; sys.path.insert(0, {str(tmp_path)!r}); main()"
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_sample_is_written_is_one_line_and_leaves_nothing(
    start: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    command = start("run", "--sample-rows", "400000")
    command.wait_for(lambda: bool(list(tmp_path.glob("runs/sample/.clicks*"))))
    command.process.send_signal(number)
    assert command.process.wait(10) == 128 + number
    assert command.output() == f"ctrflow: stopped by {number.name}; everything that ran has ended\n"
    assert list(tmp_path.glob("runs/sample/*")) == []


def test_a_closed_terminal_ends_a_training_and_its_processes(start: Callable[..., Any], ctrflow: Run, tmp_path: Path) -> None:
    assert ctrflow("sample", "clicks.tsv", "--rows", 2000, cwd=tmp_path).returncode == 0
    assert ctrflow("preprocess", "clicks.tsv", "dataset", cwd=tmp_path).returncode == 0
    command = start("train", "dataset", "trained", "--epochs", "1000", *SMALL)
    command.wait_for(command.trains)
    command.process.send_signal(signal.SIGHUP)
    assert command.process.wait(20) == 129, command.output()
    assert command.output().splitlines()[-1] == "ctrflow: stopped by SIGHUP; everything that ran has ended"
    assert "Traceback" not in command.output()
    assert command.left_over() == []
    assert not (tmp_path / "trained").exists()


def test_no_proxy_profile_or_odd_folder_name_comes_between_the_steps_of_one_machine(
    ctrflow: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my python3 [ünï] runs"
    (folder / "tmp dir").mkdir(parents=True)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("TMPDIR", str(folder / "tmp dir"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "rubbish")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.delenv("HOME", raising=False)
    done = ctrflow("run", "--sample-rows", 5000, *SMALL, "--strategy", "parameter_server", "--profile-budget-s", 3, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((folder / "tmp dir").iterdir()) == []


def test_an_unknown_aws_profile_is_one_line(ctrflow: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ctrflow("sample", "clicks.tsv", "--rows", 200, cwd=tmp_path).returncode == 0
    assert ctrflow("preprocess", "clicks.tsv", "dataset", cwd=tmp_path).returncode == 0
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    done = ctrflow("train", "dataset", "trained", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ctrflow: AWS settings of this environment: The config profile (nowhere)")
