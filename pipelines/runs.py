"""The record of a run: runs/<run id>/run.json, written as things happen, so that it tells the truth after a crash too."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from components.storage import write_json_atomic

State = Literal["running", "succeeded", "failed", "stopped"]
RUN = "run.json"


def new_run_id(now: datetime | None = None) -> str:
    """Sorts by time, and differs between two runs of one second."""
    return f"{now or datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One step of a run. Times are ISO 8601 in UTC; `work_s` is the step's own work, without the start of its process."""

    name: str
    state: State
    started: str
    ended: str = ""
    elapsed_s: float = 0.0
    work_s: float = 0.0
    figures: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The document run.json."""

    run_id: str
    parameters: Mapping[str, object]
    state: State
    started: str
    ended: str = ""
    error: str = ""
    tasks: tuple[Task, ...] = field(default=())


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class RunRecord:
    """A run's folder and its run.json, kept up to date."""

    def __init__(self, runs: Path, run_id: str, parameters: Mapping[str, object]) -> None:
        self.folder = runs / run_id
        self.folder.mkdir(parents=True)
        self.run = Run(run_id=run_id, parameters=parameters, state="running", started=utc_now())
        self._write()

    def _write(self) -> None:
        write_json_atomic(self.folder / RUN, asdict(self.run))

    def put(self, task: Task) -> None:
        """Add a task, or replace the last one when it has the same name."""
        tasks = self.run.tasks
        if tasks and tasks[-1].name == task.name:
            tasks = tasks[:-1]
        self.run = replace(self.run, tasks=(*tasks, task))
        self._write()

    def end(self, state: State, error: str = "") -> None:
        """The run's last word; a task that was running ends with it."""
        if self.run.tasks and self.run.tasks[-1].state == "running":
            self.put(replace(self.run.tasks[-1], state=state, ended=utc_now(), error=error))
        self.run = replace(self.run, state=state, ended=utc_now(), error=error)
        self._write()
