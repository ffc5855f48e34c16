"""What is seen of a run while it goes on: on a terminal, which FORCE_COLOR makes rich believe in, and in a log."""

import re
from dataclasses import replace

import pytest

from pipelines import console
from pipelines.console import RunConsole
from pipelines.local.task_log import message
from pipelines.runs import Task

# As the local runner hands it on: what the operator follows of the job's log.
LINE = "[KFP Executor 2026-12-03 05:16:00,427 INFO]: ctrflow-train-7f algo-1: 2026-12-03 05:16:00 rank 0: step {}, 91234 examples/s"
BEGUN = Task(name="train", state="running", started="2026-12-02T19:49:50.632+00:00")
ENDED = replace(BEGUN, state="succeeded", elapsed_s=9.0, figures="loss 0.4")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")


def train(shown: RunConsole, *lines: str) -> None:
    listener = shown.listener()
    listener.began(BEGUN)
    for line in lines:
        listener.said("train", message(line))
        shown._progress.refresh()
    listener.ended(ENDED)


def plain(text: str) -> list[str]:
    return [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "\n").splitlines() if line.strip()]


def test_a_terminal_shows_steps_loss_rate_and_time_left(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    running = [LINE.format(f"{step} of 17500, loss 0.46{step}") for step in (100, 101, 102)]
    train(RunConsole(verbose=False), "created", *running, LINE.format("17500 of 17500"))
    seen = plain(capsys.readouterr().out)
    assert any(re.search(r"train +0:00:0\d +created$", line) for line in seen)
    assert any(
        re.search(r"train 0:00:0\d .*step 102 of 17,500, loss 0.46102, 91,234 examples/s \d:\d\d:\d\d left$", line) for line in seen
    )
    assert seen[-1] == "train                   9.0 s  loss 0.4"


def test_a_second_step_begins_at_nothing(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    shown = RunConsole(verbose=False)
    train(shown, LINE.format("9 of 9"))
    capsys.readouterr()
    shown.listener().began(replace(BEGUN, name="evaluate"))
    shown._progress.refresh()
    shown.stop()
    seen = plain(capsys.readouterr().out)
    assert any(re.search(r"evaluate 0:00:00$", line) for line in seen), seen
    assert not any("examples/s" in line for line in seen)


def test_a_log_gets_plain_lines_and_few(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [LINE.format(f"{step} of 9, loss 0.4") for step in (1, 2)]
    train(RunConsole(verbose=False), "created", *lines)
    assert capsys.readouterr().out == "train                   9.0 s  loss 0.4\n"
    monkeypatch.setattr(console, "PLAIN_EVERY_S", 0.0)
    train(RunConsole(verbose=False), "created", *lines)
    first = "train                step 1 of 9, loss 0.4, 91,234 examples/s"
    assert capsys.readouterr().out.splitlines()[0] == first
