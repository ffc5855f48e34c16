"""Schedules of this machine: what fires when, and that neither a restart nor kill -9 loses or doubles a run.

The clock is moved forward by making a schedule as of days ago: its time has then come.
"""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from components.errors import InvalidConfig
from components.preprocess.config import PreprocessConfig
from pipelines.cron import parse_cron
from pipelines.local.schedule_store import LocalSchedule, ScheduleStore
from pipelines.local.serving import (
    MOST_ATTEMPTS,
    RunExecutor,
    carry_out,
    cron_line,
    only_server,
    outcome_of,
    run_id_of,
    systemd_unit,
)
from pipelines.recipe import Recipe

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOW = datetime(2026, 12, 2, 16, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> ScheduleStore:
    return ScheduleStore(tmp_path / "runs" / "schedules.db")


def put(store: ScheduleStore, name: str = "ads", *, cron: str = "0 3 * * *", now: datetime = NOW, **settings: Any) -> LocalSchedule:
    recipe = Recipe(name=name, **{"data": ("clicks.libsvm",), **settings})
    return store.put(name, parse_cron(cron), recipe, Path("recipe.yaml"), folder=store.path.parent.parent, now=now)


def test_a_schedule_is_there_again_in_another_process_s_eyes(store: ScheduleStore) -> None:
    made = put(store)
    assert made.next == datetime(2026, 12, 3, 3, 0, tzinfo=UTC)
    assert ScheduleStore(store.path).all() == [made]
    assert json.loads(made.task.recipe)["name"] == "ads"


def test_a_schedule_of_the_same_name_is_replaced(store: ScheduleStore) -> None:
    put(store)
    put(store, "others")
    put(store, cron="0 5 * * *", margin=0.01)
    assert [(each.name, each.next.hour if each.next else 0) for each in store.all()] == [("others", 3), ("ads", 5)]


def test_weekdays_are_those_of_kubeflow_pipelines(store: ScheduleStore) -> None:
    """APScheduler's own weekday 0 is Monday."""
    assert put(store, cron="0 0 3 * * 0").next == datetime(2026, 12, 6, 3, 0, tzinfo=UTC)


def test_pause_resume_delete(store: ScheduleStore) -> None:
    put(store)
    store.pause("ads")
    assert store.get("ads").next is None
    store.resume("ads")
    following = store.get("ads").next
    assert following is not None
    assert following > datetime.now(UTC)
    store.delete("ads")
    assert store.all() == []
    put(store, "deepfm")
    for act in (store.pause, store.resume, store.delete):
        with pytest.raises(InvalidConfig, match=r"schedule deepfn: not in .*; did you mean deepfm\?"):
            act("deepfn")


def test_a_time_is_noted_once_however_often_it_fires(store: ScheduleStore) -> None:
    made = put(store)
    assert {store.fire("ads", NOW, made.task), store.fire("ads", NOW, made.task)} == {"20261202-160000-ads"}
    (firing,) = store.firings()
    store.end(firing, "succeeded")
    store.fire("ads", NOW, made.task)
    assert [each.outcome for each in store.firings()] == ["succeeded"]


def test_times_that_passed_while_a_run_was_under_way_do_not_pile_up(store: ScheduleStore) -> None:
    made, other = put(store), put(store, "others")
    for hour in range(4):
        store.fire("ads", NOW + timedelta(hours=hour), made.task)
    store.begin(store.firings("ads")[0])
    store.fire("others", NOW, other.task)
    assert [each.run_id for each in store.due()] == ["20261202-160000-ads", "20261202-160000-others", "20261202-190000-ads"]
    assert [each.outcome for each in store.firings("ads")] == ["", "skipped", "skipped", ""]


def test_looking_at_schedules_fires_nothing(store: ScheduleStore) -> None:
    made = put(store, now=datetime.now(UTC) - timedelta(days=5))
    for _ in range(3):
        assert store.all() == [made]
    assert store.firings() == []


def test_days_that_a_stopped_server_missed_become_one_run(store: ScheduleStore) -> None:
    put(store, now=datetime.now(UTC) - timedelta(days=5))
    scheduler = store.scheduler(RunExecutor(store))
    scheduler.start()
    deadline = datetime.now(UTC) + timedelta(seconds=20)
    while not store.firings() and datetime.now(UTC) < deadline:
        time.sleep(0.02)
    scheduler.shutdown()
    (firing,) = store.firings()
    last = datetime.now(UTC).replace(hour=3, minute=0, second=0, microsecond=0)
    last = last if last <= datetime.now(UTC) else last - timedelta(days=1)
    assert firing.time == last.isoformat()
    assert store.get("ads").next == last + timedelta(days=1)


def record(store: ScheduleStore, run_id: str, **changes: Any) -> Path:
    path = store.path.parent / run_id / "run.json"
    path.parent.mkdir(parents=True)
    run = {"state": "running", "pid": 0, "pid_started": 0.0, "tasks": [{"name": "train", "state": "running"}], **changes}
    path.write_text(json.dumps(run))
    return path


def test_how_a_run_ended_is_read_from_its_record(store: ScheduleStore, tmp_path: Path) -> None:
    assert outcome_of(tmp_path / "none.json") == ""
    assert outcome_of(record(store, "a", state="failed")) == "failed"
    assert outcome_of(record(store, "b", state="stopped")) == ""
    assert outcome_of(record(store, "c")) == ""
    # Killed after its work was done, so it is not done twice.
    assert outcome_of(record(store, "d", tasks=[{"name": "promote", "state": "succeeded"}])) == "succeeded"


def test_a_run_that_was_done_is_not_begun_again_and_one_that_kills_its_server_is_given_up(store: ScheduleStore) -> None:
    made, said = put(store), list[str]()
    store.fire("ads", NOW, made.task)
    store.begin(store.firings()[0])
    record(store, "20261202-160000-ads", state="succeeded")
    carry_out(store, store.firings()[0], said.append)
    assert [(each.outcome, each.attempts) for each in store.firings()] == [("succeeded", 1)]
    assert said == []
    store.fire("ads", NOW + timedelta(days=1), made.task)
    for _ in range(MOST_ATTEMPTS):
        store.begin(store.firings(open_only=True)[0])
    carry_out(store, store.firings(open_only=True)[0], said.append)
    assert store.firings()[1].outcome == "interrupted"
    assert said[-1].endswith("was interrupted 3 times; given up")


def test_two_servers_of_one_store_are_one_too_many(store: ScheduleStore) -> None:
    with only_server(store.path):
        with pytest.raises(InvalidConfig, match="another ctrflow schedule serve fires these"), only_server(store.path):
            pass
    with only_server(store.path):
        pass


def test_kill_9_between_firing_and_finishing_neither_loses_nor_doubles_the_run(
    start: Callable[..., Any], ctrflow: Run, store: ScheduleStore, tmp_path: Path
) -> None:
    """The run is one that ends quickly: its third row is wrong."""
    (tmp_path / "clicks.libsvm").write_text("1 3:1 4:1\n0 5:1 7:1\n0 5:1 x:1\n")
    put(store, now=datetime.now(UTC) - timedelta(days=2), preprocessing=PreprocessConfig(format="libsvm"))

    server = start("schedule", "serve")
    server.wait_for(lambda: bool(list(tmp_path.glob("runs/2*-ads/run.json"))), 60)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(10)
    (open_firing,) = store.firings(open_only=True)
    assert open_firing.attempts == 1
    assert server.left_over(20) == []

    done = ctrflow("schedule", "serve", "--until-idle", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (firing,) = store.firings()
    assert (firing.outcome, firing.attempts, firing.time[:10]) == ("failed", 2, open_firing.time[:10])
    assert f"{firing.run_id}: was interrupted; it begins anew" in done.stdout
    runs = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("runs/2*/run.json")}
    assert sorted(runs) == [firing.run_id, run_id_of(firing, 2)]
    assert runs[firing.run_id]["state"] != "succeeded"
    again = runs[run_id_of(firing, 2)]
    assert again["schedule"] == "ads"
    assert again["parameters"]["run_date"] == firing.time[:10]
    assert "clicks.libsvm, line 3" in again["error"]

    quiet = ctrflow("schedule", "serve", "--until-idle", cwd=tmp_path)
    assert (quiet.returncode, len(store.firings())) == (0, 1), quiet.stdout
    shown = json.loads(ctrflow("schedule", "show", "ads", "--local", "--json", cwd=tmp_path).stdout)
    assert [(each["run_id"], each["outcome"]) for each in shown["firings"]] == [(firing.run_id, "failed")]
    listed = json.loads(ctrflow("runs", "list", "--json", "--schedule", "ads", cwd=tmp_path).stdout)
    assert [run["run_id"] for run in listed] == [run_id_of(firing, 2), firing.run_id]
    assert listed[0]["state"] == "FAILED"
    assert "line 3" in ctrflow("runs", "logs", listed[0]["run_id"], "preprocess", cwd=tmp_path).stdout


def test_ctrl_c_ends_the_server_and_what_begins_it_at_boot_is_printed(
    start: Callable[..., Any], ctrflow: Run, tmp_path: Path
) -> None:
    (tmp_path / "recipe.yaml").write_text("name: ads\n")
    made = ctrflow("schedule", "create", "--local", "--cron", "0 3 * * *", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("cron 0 0 3 * * * means: At 03:00 every day, in UTC; next 20")
    server = start("schedule", "serve")
    server.wait_for(lambda: "schedule ads: 0 0 3 * * *" in server.output(), 30)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(10) == 130
    unit = ctrflow("schedule", "serve", "--print", "systemd", cwd=tmp_path).stdout
    assert f"WorkingDirectory={tmp_path}\n" in unit
    assert f'"schedule" "serve" "--store" "{tmp_path}/runs/schedules.db"\n' in unit
    assert ctrflow("schedule", "serve", "--print", "cron", cwd=tmp_path).stdout.startswith(f"@reboot cd {tmp_path} && ")


def test_odd_folders_reach_the_server_through_systemd_and_cron_as_they_are() -> None:
    """As systemd.service(5) and crontab(5) have it; the unit was held against systemd-analyze verify."""
    folder = Path('/srv/50% "off" $HOME it\'s\\me')
    unit = systemd_unit(folder / "s.db", folder).splitlines()
    assert 'WorkingDirectory=/srv/50%% "off" $HOME it\'s\\me' in unit
    (start,) = [line for line in unit if line.startswith("ExecStart=")]
    assert start.endswith(r'''"--store" "/srv/50%% \"off\" $$HOME it's\\me/s.db"''')
    line = cron_line(folder / "s.db", folder)
    assert "%" not in line.replace(r"\%", "")
    words = shlex.split(line.replace(r"\%", "%"))
    serve = [sys.executable, "-m", "pipelines.command", "schedule", "serve", "--store", f"{folder}/s.db"]
    assert words == ["@reboot", "cd", str(folder), "&&", *serve, ">>", f"{folder}/s.db.log", "2>&1"]
