"""The command line as a user starts it: a process of its own, in a folder of its own."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from components.champion import Change, read_standing
from components.promote.gate import Rule
from components.promote.lineage import Lineage
from components.promote.model_store import Version, add_version, now, opened, put_in_force
from components.storage import open_storage

COMMAND = [str(Path(sys.executable).with_name("ctrflow"))]
# A model small enough that a test does not wait for its training.
SMALL = ["--embedding-size", "8", "--deep-layers", "16", "--batch-size", "256"]


class Started:
    """A running command, and every process below it that was ever seen."""

    def __init__(self, arguments: list[str], cwd: Path) -> None:
        self.cwd = cwd
        self._output = (cwd / "output.txt").open("w+")
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=cwd, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True
        )
        self.seen: dict[int, psutil.Process] = {}

    def look(self) -> list[psutil.Process]:
        """Descendants that run now."""
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self.seen.update({child.pid: child for child in found})
        return found

    def trains(self) -> bool:
        """Whether a process of a training job runs; others below the command come and go meanwhile."""
        for child in self.look():
            with suppress(psutil.NoSuchProcess):
                if "components.train.program" in child.cmdline():
                    return True
        return False

    def run_record(self) -> dict[str, Any] | None:
        found = sorted(self.cwd.glob("runs/2*/run.json"))
        return json.loads(found[-1].read_text()) if found else None

    def wait_for(self, true: Callable[[], bool], timeout_s: float = 240.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            self.look()
            time.sleep(0.05)

    def wait_for_step(self, name: str) -> None:
        def reached() -> bool:
            record = self.run_record()
            return bool(record and record["tasks"] and record["tasks"][-1]["name"] == name)

        self.wait_for(reached)

    def left_over(self, deadline_s: float = 5.0) -> list[psutil.Process]:
        """Processes seen below the command that still run, zombies excepted."""
        _, alive = psutil.wait_procs([child for child in self.seen.values() if child.is_running()], timeout=deadline_s)
        return [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]

    def output(self) -> str:
        return (self.cwd / "output.txt").read_text()

    def kill(self) -> None:
        self.look()
        for process in [*self.seen.values(), psutil.Process(self.process.pid)] if self.process.poll() is None else []:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()
        self._output.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Start `ctrflow` with these arguments in `tmp_path`; what is left of it is killed at the end."""
    started: list[Started] = []

    def run(*arguments: str) -> Started:
        started.append(Started(list(arguments), tmp_path))
        return started[-1]

    yield run
    for one in started:
        one.kill()


@pytest.fixture(scope="session")
def ctrflow() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run `ctrflow` to its end."""

    def run(*arguments: object, cwd: Path, timeout_s: float = 240.0) -> "subprocess.CompletedProcess[str]":
        texts = [str(argument) for argument in arguments]
        environment = {name: value for name, value in os.environ.items() if name != "AWS_ENDPOINT_URL_SAGEMAKER"}
        return subprocess.run([*COMMAND, *texts], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s)

    return run


@pytest.fixture
def said() -> Callable[..., Any]:
    """Run a command in this process: exit code, standard output (parsed with --json) and standard error."""
    from click.testing import CliRunner

    from pipelines.cli import main

    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        output = json.loads(done.stdout) if "--json" in arguments and done.exit_code == 0 else done.stdout
        return done.exit_code, output, done.stderr

    return run


def write_model(folder: Path, text: str) -> tuple[Path, str]:
    """A model folder that is never loaded, and its digest."""
    (folder / "saved_model").mkdir(parents=True)
    (folder / "saved_model" / "saved_model.pb").write_text(text)
    entry = {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    numbers = {"rank": 0, "world_size": 1, "step": 1, "examples": 1, "field_size": 1, "feature_size": 1, "id_base": 0}
    words = {"format_version": 1, "strategy": "single", "data_digest": "d", "parameter_checksum": "0", "ranks_agreed": True}
    card = {**numbers, **words, "config": {}, "metrics": {}, "files": {"saved_model/saved_model.pb": entry}}
    (folder / "model.json").write_text(json.dumps(card))
    return folder, hashlib.sha256((folder / "model.json").read_bytes()).hexdigest()


def add_to_store(store: str, root: Path, text: str, auc: float) -> Version:
    """One more version, and in force."""
    model, digest = write_model(root / text, text)
    evaluation = root / f"{text}.json"
    evaluation.write_text("{}")
    origin = Lineage(
        data_digest=f"data {text}", plan={"workers": 2}, code="0.1", job_name="", job_arn="", image="", image_digest="", run_id="r"
    )
    version = Version(
        name="deepfm",
        version=1,
        model_digest=digest,
        evaluation_digest=hashlib.sha256(b"{}").hexdigest(),
        bytes=len(text),
        auc=auc,
        log_loss=0.4,
        champion_before=None,
        lineage=origin,
        rules=(Rule(rule="size", passed=True, sentence="small"),),
        created_at=now(),
        created_by="me@here",
    )
    storage = open_storage(store)
    standing = opened(storage, "deepfm", read_standing(storage, "deepfm"))
    added = add_version(storage, version, model, evaluation)
    change = Change(
        version=added.version, model_digest=digest, action="promoted", at=now(), by="me@here", run_id="r", reason="better"
    )
    put_in_force(storage, standing, added, change)
    return added


@pytest.fixture
def add() -> Callable[[str, Path, str, float], Version]:
    """What adds a version to a store, and puts it in force: store, folder for its files, its text, its AUC."""
    return add_to_store


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of two versions of a model, here and in S3."""
    place = str(tmp_path / "models")
    if request.param == "s3":
        request.getfixturevalue("s3")
        place = "s3://clicks/models"
    for text, auc in (("one", 0.7), ("second", 0.71)):
        add_to_store(place, tmp_path / "made", text, auc)
    return place
