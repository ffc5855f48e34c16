"""What kfp.local prints, taken apart: which task runs, its lines, how it ended, and why it failed."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_STARTED = re.compile(r"^\d\d:\d\d:\d\d\.\d+ - INFO - Executing task '(?P<task>[^']+)'")
_ENDED = re.compile(r"^\d\d:\d\d:\d\d\.\d+ - (?:INFO|ERROR) - Task '(?P<task>[^']+)' finished with status (?P<status>\w+)")
# The executor's lines around the step's own function: what lies between them is the step's work.
_WORK_BEGINS = "Looking for component "
_WORK_ENDS = "Wrote executor output file to"
_OUR_ERROR = re.compile(r"^(?:\s*)components\.errors\.(?P<kind>\w+): (?P<text>.*)$")
_ANY_ERROR = re.compile(r"^(?:\s*)(?P<text>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$")
# What the shell around a step says of it.
_KILLED = re.compile(r"^\s*Killed$")
_JOB = re.compile(r"^\S+ algo-\d+: (?:\d{4}-\d\d-\d\d [\d:,]+ )?")
# What C++ libraries log, and lines of JSON.
_NOISE = re.compile(r"^(?:[IWE]\d{4} \d\d:|WARNING: All log messages|\W*$)")
_PROGRESS = re.compile(r"step (\d+) of (\d+)(?:, loss ([-\d.]+))?, (\d+) examples/s$")
_PREFIX = re.compile(r"^\s*\[KFP Executor [^\]]*\]: ")

Kind = Literal["started", "line", "work_begins", "work_ends", "succeeded", "failed"]


@dataclass(frozen=True)
class Event:
    """One line; `task` is the task it belongs to, empty before the first."""

    kind: Kind
    task: str
    text: str


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Lines of kfp.local's output as events, in order."""
    task = ""
    for raw in lines:
        line = _ANSI.sub("", raw.rstrip("\n"))
        if started := _STARTED.match(line):
            task = started["task"]
            yield Event("started", task, line)
        elif (ended := _ENDED.match(line)) and ended["task"] == task:
            yield Event("succeeded" if ended["status"] == "SUCCESS" else "failed", task, line)
        elif _WORK_BEGINS in line and "[KFP Executor" in line:
            yield Event("work_begins", task, line)
        elif _WORK_ENDS in line:
            yield Event("work_ends", task, line)
        else:
            yield Event("line", task, line)


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training is. `loss` is text as it was logged, empty where none was."""

    step: int
    steps: int
    loss: str
    examples_per_s: int

    @property
    def words(self) -> str:
        loss = f", loss {self.loss}" if self.loss else ""
        return f"step {self.step:,} of {self.steps:,}{loss}, {self.examples_per_s:,} examples/s"


def training_progress(line: str) -> TrainingProgress | None:
    """What the training program's log says of it now and then (components/train/program/fit.py); None for any other line."""
    found = _PROGRESS.search(line)
    return TrainingProgress(int(found[1]), int(found[2]), found[3] or "", int(found[4])) if found else None


def message(line: str) -> str:
    """A log line without the executor's prefix."""
    return _PREFIX.sub("", line).strip()


def gist(said: str) -> str:
    """A message in few words: without the job's name and the time; empty where it says nothing to a person."""
    words = _JOB.sub("", said)
    return "" if _NOISE.match(words) else words


def reason(lines: Iterable[str]) -> str:
    """The one-line error of a failed task: our own error if there is one, else the last exception of the traceback."""
    found = ""
    for line in lines:
        if _KILLED.match(line):
            found = "its process was killed by signal 9 (SIGKILL); if nobody did that, memory ran out"
        if ours := _OUR_ERROR.match(line):
            return ours["text"]
        if other := _ANY_ERROR.match(line):
            found = other["text"]
    return found or "it ended without an error message"
