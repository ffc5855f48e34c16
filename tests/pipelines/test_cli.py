"""Every step as a command on plain paths, and what the commands say to bad input."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_steps_one_by_one(ctrflow: Run, tmp_path: Path) -> None:
    def ok(*arguments: object) -> str:
        done = ctrflow(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "no model can beat AUC 0." in ok("sample", "clicks.tsv", "--rows", 20_000, "--seed", 3)
    assert "18,000 rows to train, 2,000 to validate" in ok("preprocess", "clicks.tsv", "dataset", "--format", "criteo")
    model = ("--embedding-size", 8, "--deep-layers", "16", "--batch-size", 256, "--learning-rate", "0.01")
    ok("profile", "dataset", "profile", "--budget-s", 3, *model)
    assert ok("select", "profile", "plan", "--strategy", "horovod").startswith("horovod")
    assert "17,920 examples" in ok("train", "dataset", "trained", "--plan", "plan/plan.json")
    assert json.loads((tmp_path / "trained/training.json").read_text())["world_size"] == 2
    assert "AUC 0.7" in ok("evaluate", "trained/model", "dataset", "evaluation")
    assert ok("promote", "trained/model", "evaluation", "models").startswith("promoted")
    assert json.loads((tmp_path / "models/deepfm/champion.json").read_text())["version"] == 1
    assert "12,800 examples" in ok("train", "dataset", "direct", "--strategy", "single", "--steps", 50, *model)
    for page in ("dataset", "profile/report", "plan/report", "trained/report", "evaluation/report", "evaluation/promotion/report"):
        assert (tmp_path / f"{page}.html").is_file()


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
