"""Schedules of this machine and what they fired, in one SQLite file: APScheduler's table of schedules, and one of firings.

A firing has its run's name as key, which is made of the schedule's name and the time it fired for: the same time cannot fire twice,
whoever crashes in between. It is done when its run has ended; what is not done is done after a restart.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from apscheduler.executors.base import BaseExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger

from components.errors import InvalidConfig, hint_for
from pipelines.cron import Cron
from pipelines.recipe import Recipe

JOB = "pipelines.local.schedule_store:fired"
FIRINGS = sql.Table(
    "firings",
    sql.MetaData(),
    sql.Column("run_id", sql.Text, primary_key=True),
    sql.Column("schedule", sql.Text, nullable=False),
    sql.Column("time", sql.Text, nullable=False),
    sql.Column("task", sql.Text, nullable=False),
    sql.Column("attempts", sql.Integer, nullable=False, default=0),
    sql.Column("outcome", sql.Text, nullable=False, default=""),
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a schedule runs: a recipe, as it was when the schedule was made, in a folder where its relative paths begin."""

    recipe: str
    recipe_digest: str
    recipe_path: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class Firing:
    """One time of a schedule. `outcome` is empty until its run has ended; `attempts` counts the runs that were begun for it."""

    run_id: str
    schedule: str
    time: str
    task: Task
    attempts: int
    outcome: str


@dataclass(frozen=True, kw_only=True)
class LocalSchedule:
    """A schedule as it is stored. `next` is empty while it is paused."""

    name: str
    cron: Cron
    next: datetime | None
    task: Task


class Editor(BaseScheduler):  # type: ignore[misc]  # APScheduler has no types
    """A scheduler that changes its store and fires nothing; a paused one would, once more when it is shut down."""

    def wakeup(self) -> None:
        """Nobody sleeps."""

    def shutdown(self, wait: bool = True) -> None:
        super().shutdown(wait)


class CronTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """The times of an expression as KFP reads it, which APScheduler's own trigger reads otherwise (its week begins on Monday)."""

    def __init__(self, cron: Cron) -> None:
        self.cron = cron

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        return next(self.cron.times(previous_fire_time or now))


def fired(**task: str) -> None:
    """What APScheduler thinks a schedule calls; its executor runs the task instead."""


def firing_id(schedule: str, time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y%m%d-%H%M%S}-{schedule}"


class ScheduleStore:
    """The SQLite file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._engine = sql.create_engine(f"sqlite:///{path.absolute()}", connect_args={"timeout": 30})
        FIRINGS.metadata.create_all(self._engine)

    def scheduler(self, executor: BaseExecutor) -> BackgroundScheduler:
        """APScheduler on this file, which hands what fires to `executor`."""
        return BackgroundScheduler(executors={"default": executor}, **self._settings())

    def _settings(self) -> dict[str, Any]:
        """Times that were missed become one run, and a run that is late is not left out."""
        return {
            "jobstores": {"default": SQLAlchemyJobStore(engine=self._engine)},
            "job_defaults": {"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            "timezone": UTC,
        }

    @contextmanager
    def _editing(self) -> Iterator[Editor]:
        scheduler = Editor(**self._settings())
        scheduler.start(paused=True)
        try:
            yield scheduler
        finally:
            scheduler.shutdown(wait=False)

    def put(self, name: str, cron: Cron, recipe: Recipe, recipe_path: Path, *, folder: Path, now: datetime) -> LocalSchedule:
        """The schedule of that name, in the place of an earlier one."""
        task = Task(
            recipe=json.dumps(asdict(recipe)), recipe_digest=recipe.digest(), recipe_path=str(recipe_path), folder=str(folder)
        )
        trigger = CronTrigger(cron)
        with self._editing() as scheduler:
            scheduler.add_job(
                JOB,
                trigger,
                id=name,
                kwargs=asdict(task),
                next_run_time=trigger.get_next_fire_time(None, now),
                replace_existing=True,
            )
        return self.get(name)

    def all(self) -> list[LocalSchedule]:
        with self._editing() as scheduler:
            jobs = scheduler.get_jobs()
            return [
                LocalSchedule(name=job.id, cron=job.trigger.cron, next=job.next_run_time, task=Task(**job.kwargs)) for job in jobs
            ]

    def get(self, name: str) -> LocalSchedule:
        """The schedule of a name.

        Raises:
            InvalidConfig: there is none.
        """
        every = {each.name: each for each in self.all()}
        if name not in every:
            hint = hint_for(name, every) if every else "ctrflow schedule create --local makes one"
            raise InvalidConfig(f"schedule {name}: not in {self.path}; {hint}")
        return every[name]

    def pause(self, name: str) -> None:
        self.get(name)
        with self._editing() as scheduler:
            scheduler.pause_job(name)

    def resume(self, name: str) -> None:
        """Fires at its next time from now on; what was missed meanwhile is not made up for."""
        self.get(name)
        with self._editing() as scheduler:
            scheduler.resume_job(name)

    def delete(self, name: str) -> None:
        self.get(name)
        with self._editing() as scheduler, self._engine.begin() as connection:
            with suppress(JobLookupError):  # somebody else was quicker
                scheduler.remove_job(name)
            waiting = sql.and_(FIRINGS.c.schedule == name, FIRINGS.c.outcome == "", FIRINGS.c.attempts == 0)
            connection.execute(sql.delete(FIRINGS).where(waiting))

    def fire(self, name: str, time: datetime, task: Task) -> str:
        """Note that a schedule has fired for a time; its run's name. A time that was noted before stays as it is."""
        run_id = firing_id(name, time)
        row = {"run_id": run_id, "schedule": name, "time": time.astimezone(UTC).isoformat(), "task": json.dumps(asdict(task))}
        with self._engine.begin() as connection:
            connection.execute(sql.insert(FIRINGS).prefix_with("OR IGNORE"), {**row, "attempts": 0, "outcome": ""})
        return run_id

    def firings(self, schedule: str = "", *, open_only: bool = False) -> list[Firing]:
        """The earliest first."""
        query = sql.select(FIRINGS).order_by(FIRINGS.c.time)
        if schedule:
            query = query.where(FIRINGS.c.schedule == schedule)
        if open_only:
            query = query.where(FIRINGS.c.outcome == "")
        with self._engine.connect() as connection:
            return [_firing(row._mapping) for row in connection.execute(query)]

    def due(self) -> list[Firing]:
        """What is to be run, the earliest first; of a schedule's times that were waited for in vain the latest is left."""
        waiting = self.firings(open_only=True)
        latest = {firing.schedule: firing.run_id for firing in waiting}
        for firing in waiting:
            if not firing.attempts and firing.run_id != latest[firing.schedule]:
                self.end(firing, "skipped")
        return [firing for firing in waiting if firing.attempts or firing.run_id == latest[firing.schedule]]

    def begin(self, firing: Firing) -> None:
        """One more attempt is made of it."""
        self._change(firing, attempts=firing.attempts + 1)

    def end(self, firing: Firing, outcome: str) -> None:
        """Its run has ended."""
        self._change(firing, outcome=outcome)

    def _change(self, firing: Firing, **values: Any) -> None:
        with self._engine.begin() as connection:
            connection.execute(sql.update(FIRINGS).where(FIRINGS.c.run_id == firing.run_id).values(**values))


def _firing(row: Any) -> Firing:
    return Firing(
        run_id=row["run_id"],
        schedule=row["schedule"],
        time=row["time"],
        task=Task(**json.loads(row["task"])),
        attempts=row["attempts"],
        outcome=row["outcome"],
    )
