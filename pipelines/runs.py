"""The record of a run: runs/<run id>/run.json, written as things happen, so that it tells the truth after a crash too."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import psutil

from components.documents import read_json, settings_of
from components.errors import InvalidConfig
from components.plain_names import MOST, check_plain
from components.storage import write_json_atomic

State = Literal["running", "succeeded", "failed", "stopped"]
RUN = "run.json"


def new_run_id(now: datetime | None = None) -> str:
    """Sorts by time, and differs between two runs of one second."""
    return f"{now or datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def check_run_id(run_id: str) -> None:
    """A run's id is its folder's name. One that a schedule began is called <time>-<schedule>, and after an interruption so with -2.

    Raises:
        InvalidConfig: no plain name.
    """
    check_plain("run", run_id, MOST + len("20261202-160000-") + len("-2"))


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
    """The document run.json.

    `pid` and `pid_started` (seconds since 1970) are of the process that runs it, `schedule` of whoever began it; empty: a person.
    """

    run_id: str
    schedule: str = ""
    pid: int = 0
    pid_started: float = 0.0
    parameters: Mapping[str, object]
    state: State
    started: str
    ended: str = ""
    error: str = ""
    tasks: tuple[Task, ...] = field(default=())


def process_is(pid: int, started: float) -> bool:
    """Whether a process still is the one that began at that time: numbers of processes come again."""
    try:
        return pid > 0 and abs(psutil.Process(pid).create_time() - started) < 1.0
    except psutil.Error:
        return False


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def read_run(path: Path) -> Run:
    """The record at `path`.

    Raises:
        InvalidConfig: missing, or no such record.
    """
    try:
        document = read_json(path)
    except FileNotFoundError:
        raise InvalidConfig(f"{path}: no such file; ctrflow run writes one") from None
    except ValueError as error:
        raise InvalidConfig(f"{path}: not valid JSON ({error}); remove the run's folder, or restore the file") from error
    if not isinstance(document, dict) or not isinstance(document.get("tasks"), list):
        raise InvalidConfig(f"{path}: not the record of a run; remove the run's folder, or restore the file")
    tasks = tuple(settings_of(Task, task, f"{path}: tasks") for task in document["tasks"])
    return replace(settings_of(Run, {**document, "tasks": []}, str(path)), tasks=tasks)


def is_interrupted(run: Run) -> bool:
    """Whether a run that has no end has lost its process: it was killed, or the machine went down."""
    return run.state == "running" and not process_is(run.pid, run.pid_started)


class RunRecord:
    """A run's folder and its run.json, kept up to date; `written` is told of every change, after it was written."""

    def __init__(
        self,
        runs: Path,
        run_id: str,
        parameters: Mapping[str, object],
        *,
        schedule: str = "",
        written: Callable[[Path, Run], object],
    ) -> None:
        self._written = written
        self.folder = runs / run_id
        try:
            self.folder.mkdir(parents=True)
        except FileExistsError:
            raise InvalidConfig(f"run {run_id}: {self.folder} is there already; choose another --run-id, or leave it out") from None
        me = psutil.Process()
        self.run = Run(
            run_id=run_id,
            schedule=schedule,
            pid=me.pid,
            pid_started=me.create_time(),
            parameters=parameters,
            state="running",
            started=utc_now(),
        )
        self._write()

    def _write(self) -> None:
        write_json_atomic(self.folder / RUN, asdict(self.run))
        self._written(self.folder, self.run)

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
