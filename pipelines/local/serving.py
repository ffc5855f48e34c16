"""`ctrflow schedule serve`: fires this machine's schedules, one run at a time, in the foreground.

While a run takes longer than its schedule's times are apart, they do not pile up: the latest of them runs next.

A firing is noted before APScheduler moves its schedule on, and done when its run has ended: a server that is killed in between
leaves it open, and the next one begins it anew. Runs end with their server, so that never two of one firing run.
"""

import ctypes
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from apscheduler.executors.base import BaseExecutor

from components.documents import read_json
from components.errors import InvalidConfig
from components.storage import write_text_atomic
from pipelines.local.execute import PR_SET_PDEATHSIG
from pipelines.local.schedule_store import Firing, ScheduleStore, Task
from pipelines.runs import RUN, process_is

# How often the file is looked at for schedules that another command has made.
LOOK_S = 2.0
MOST_ATTEMPTS = 3
STOP_S = 40.0
SERVE = ("-m", "pipelines.command", "schedule", "serve")
LIBC = ctypes.CDLL(None)


class RunExecutor(BaseExecutor):  # type: ignore[misc]  # APScheduler has no types
    """Notes what fires; the server's loop runs it."""

    def __init__(self, store: ScheduleStore) -> None:
        super().__init__()
        self._store = store

    def submit_job(self, job: Any, run_times: list[datetime]) -> None:
        """APScheduler moves the schedule on when this returns. How many run at a time is not its business."""
        self._do_submit_job(job, run_times)

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        for each in run_times:
            self._store.fire(job.id, each, Task(**job.kwargs))


@contextmanager
def only_server(store: Path) -> Iterator[None]:
    """Hold the store's lock, which ends with the process.

    Raises:
        InvalidConfig: another server holds it.
    """
    with store.with_name(f"{store.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidConfig(f"{store}: another ctrflow schedule serve fires these; stop it, or name another --store") from None
        yield


def serve(store: ScheduleStore, say: Callable[[str], None], *, until_idle: bool = False) -> None:
    """Fire and run until a signal comes, or, `until_idle`, until nothing is due."""
    with only_server(store.path):
        scheduler = store.scheduler(RunExecutor(store))
        scheduler.start()
        try:
            while True:
                scheduler.wakeup()
                time.sleep(LOOK_S / 4)
                waiting = store.due()
                for firing in waiting[:1]:
                    carry_out(store, firing, say)
                if until_idle and not waiting:
                    return
                if not waiting:
                    time.sleep(LOOK_S)
        finally:
            scheduler.shutdown(wait=False)


def carry_out(store: ScheduleStore, firing: Firing, say: Callable[[str], None]) -> None:
    """The run of a firing, or what is left to do of it after a crash."""
    runs = Path(firing.task.folder) / json.loads(firing.task.recipe)["runs"]
    if firing.attempts:
        outcome = outcome_of(runs / run_id_of(firing, firing.attempts) / RUN)
        if outcome:
            store.end(firing, outcome)
            return
        say(f"{firing.run_id}: was interrupted; it begins anew")
    if firing.attempts >= MOST_ATTEMPTS:
        store.end(firing, "interrupted")
        say(f"{firing.run_id}: was interrupted {MOST_ATTEMPTS} times; given up")
        return
    store.begin(firing)
    run_id = run_id_of(firing, firing.attempts + 1)
    say(f"{run_id}: begins, for {firing.time}")
    code = run(firing, run_id, runs)
    outcome = "succeeded" if code == 0 else outcome_of(runs / run_id / RUN) or ("stopped" if code in (130, 143) else "failed")
    store.end(firing, outcome)
    say(f"{run_id}: {outcome}")


def run_id_of(firing: Firing, attempt: int) -> str:
    return firing.run_id if attempt == 1 else f"{firing.run_id}-{attempt}"


def outcome_of(record: Path) -> str:
    """How a run ended; empty when it was interrupted, or never came to write its record.

    A run that was killed after its last step has done its work. One that was stopped, while its server was too, has not.
    """
    try:
        run = read_json(record)
    except (OSError, ValueError):
        return ""
    if run["state"] in ("succeeded", "failed"):
        return str(run["state"])
    while process_is(run["pid"], run["pid_started"]):  # its server was killed a moment ago, and it is on its way out
        time.sleep(0.1)
    done = {task["name"] for task in run["tasks"] if task["state"] == "succeeded"}
    return "succeeded" if "promote" in done else ""


def run(firing: Firing, run_id: str, runs: Path) -> int:
    """`ctrflow run` in a process that ends when this one does; its exit code."""
    recipe = runs / "schedules" / f"{run_id}.json"
    write_text_atomic(recipe, firing.task.recipe)
    command = [sys.executable, "-m", "pipelines.command", "run", "--recipe", str(recipe), "--run-id", run_id]
    command += ["--schedule", firing.schedule]
    if not json.loads(firing.task.recipe)["run_date"]:
        # The day that it fired for, also where it runs late or again.
        command += ["--set", f"run_date={firing.time[:10]}"]
    parent = os.getpid()

    def end_with_server() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    log = (runs / "schedules" / f"{run_id}.log").open("w")
    process = subprocess.Popen(
        command,
        cwd=firing.task.folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=end_with_server,
        start_new_session=True,
    )
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.close()
        recipe.unlink(missing_ok=True)


def systemd_unit(store: Path, folder: Path) -> str:
    """A unit of a user's systemd that serves the schedules of a store.

    Source: systemd.unit(5), systemd.service(5): % begins a specifier and $ a variable, words are quoted, a folder is not.
    """
    program = [sys.executable, *SERVE, "--store", str(store)]
    start = " ".join('"{}"'.format(re.sub(r'(["\\])', r"\\\1", word)) for word in program).replace("%", "%%").replace("$", "$$")
    return f"""# ~/.config/systemd/user/ctrflow.service; then: systemctl --user enable --now ctrflow; loginctl enable-linger
[Unit]
Description=ctrflow schedules of {str(store).replace("%", "%%")}

[Service]
WorkingDirectory={str(folder).replace("%", "%%")}
ExecStart={start}
Restart=always
# The run that is under way stops its jobs first.
KillMode=mixed
TimeoutStopSec=60

[Install]
WantedBy=default.target
"""


def cron_line(store: Path, folder: Path) -> str:
    """A line of a crontab: cron is to start the server, which keeps the schedules' own times.

    Source: crontab(5): % ends the command unless it stands after a backslash, which cron takes away before the shell reads it.
    """
    serve = shlex.join([sys.executable, *SERVE, "--store", str(store)])
    line = f"@reboot cd {shlex.quote(str(folder))} && {serve} >> {shlex.quote(f'{store}.log')} 2>&1\n"
    return line.replace("%", r"\%")
