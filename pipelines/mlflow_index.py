"""Runs of this machine as MLflow shows them, their steps nested in them, and the models of the stores that they promoted into.

Everything is read from run folders and model stores, which stay what counts; MLflow's own folder can be removed and is made again.
A pass over them changes what is new alone, however often it is made:

    experiment           a model's name
      run <run id>       parameters, figures of all steps, index.html
        preprocess ...   figures and report.html of a step; of the training its loss, too
    registered model     a model's name; a version each of the store's, `champion` is the alias of the one in force

This module is imported where MLflow is installed, the extra `ui`.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from components.champion import read_standing, version_folder
from components.errors import InvalidConfig, WorkflowError
from components.promote.model_store import Version, model_names, read_versions
from components.storage import open_storage
from pipelines.run_page import INDEX, task_metrics, task_report, training_losses, write_run_page
from pipelines.runs import RUN, Run, Task, is_interrupted, read_run
from pipelines.ui_server import FOLDER

log = logging.getLogger(__name__)

CHAMPION = "champion"
# How MLflow calls the states of runs and steps.
STATUS = {"running": "RUNNING", "succeeded": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "interrupted": "KILLED"}
# Tags by which a pass finds what an earlier one has made, and sees whether it changed since.
RUN_TAG, TASK_TAG, CONTENT_TAG, VERSION_TAG, STORE_TAG = (
    f"ctrflow.{name}" for name in ("run", "task", "content", "version", "store")
)
# MLflow's limits: characters of a parameter's value, metrics in one request.
VALUE_CHARACTERS, BATCH = 6000, 1000


class Index:
    """What MLflow's folder has of a folder of runs."""

    def __init__(self, runs: Path, tracking_uri: str) -> None:
        """Opens, or begins, MLflow's database.

        Args:
            tracking_uri: of the database, sqlite:///...
        """
        self._runs = runs
        self._mlflow = MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
        self._experiments: dict[str, str] = {}
        # When a run that has ended was written, and the tag of a champion.json: what has not changed is not read again.
        self._ended: dict[Path, int] = {}
        self._tags: dict[tuple[str, str], str | None] = {}
        self._stores: dict[str, None] = {}
        self._warned: set[str] = set()

    def update(self) -> int:
        """One pass; gives how many runs were new or had changed. What cannot be read is told once, and left out."""
        changed = 0
        for path in sorted(self._runs.glob(f"*/{RUN}")):
            try:
                written = path.stat().st_mtime_ns
                if self._ended.get(path) == written:
                    continue
                run = read_run(path)
            except (InvalidConfig, FileNotFoundError) as error:
                self._warn(str(error))
                continue
            if isinstance(store := run.parameters.get("store"), str) and store:
                self._stores[store] = None
            changed += self._put_run(path.parent, run, _content(run))
            if run.state != "running":
                self._ended[path] = written
        for number, store in enumerate(self._stores):
            try:
                self._put_models(store, first=number == 0)
            except WorkflowError as error:
                self._warn(f"{store}: {error}")
        return changed

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            found = self._mlflow.get_experiment_by_name(name)
            # Else MLflow copies into the current folder.
            place = (self._runs / FOLDER / "artifacts").absolute().as_uri()
            self._experiments[name] = found.experiment_id if found else self._mlflow.create_experiment(name, place)
        return self._experiments[name]

    def _put_run(self, folder: Path, run: Run, content: str) -> bool:
        """A run and its steps; gives whether MLflow's had not been so already."""
        experiment = self._experiment(str(run.parameters.get("name") or "runs"))
        known = {
            found.data.tags[TASK_TAG]: found
            for found in self._mlflow.search_runs([experiment], f"tags.`{RUN_TAG}` = '{run.run_id}'", max_results=BATCH)
        }
        parent = known.get("")
        if parent and parent.data.tags.get(CONTENT_TAG) == content:
            return False
        alive = run.state == "running" and not is_interrupted(run)
        if run.state == "running" and not alive:
            # Nobody has written the page since the process was killed.
            write_run_page(folder, run)
        made = parent.info.run_id if parent else self._create(experiment, run, "", run.run_id, run.started, {})
        state = "interrupted" if run.state == "running" and not alive else run.state
        for task in run.tasks:
            nested = known.get(task.name)
            tags = {"mlflow.parentRunId": made}
            found = nested.info.run_id if nested else self._create(experiment, run, task.name, task.name, task.started, tags)
            self._put_task(folder, found, task, alive)
        ended = _ms(run.ended or run.started)
        figures = {f"{task.name}.{name}": value for task in run.tasks for name, value in task_metrics(folder, task.name).items()}
        self._mlflow.log_batch(made, metrics=_metrics(figures, ended), params=_params(run.parameters), tags=_note(run.error))
        if (folder / INDEX).is_file():
            self._mlflow.log_artifact(made, str(folder / INDEX))
        self._mlflow.update_run(made, status=STATUS[state])
        if state != "running":
            self._mlflow.set_terminated(made, STATUS[state], ended)
        # Last: a pass that was interrupted before is made again.
        self._mlflow.set_tag(made, CONTENT_TAG, content)
        return True

    def _create(self, experiment: str, run: Run, task: str, name: str, started: str, tags: Mapping[str, str]) -> str:
        own = {RUN_TAG: run.run_id, TASK_TAG: task, **tags}
        return str(self._mlflow.create_run(experiment, _ms(started), own, name).info.run_id)

    def _put_task(self, folder: Path, found: str, task: Task, alive: bool) -> None:
        ended = _ms(task.ended or task.started)
        metrics = _metrics(task_metrics(folder, task.name), ended)
        if task.name == "train":
            metrics += [Metric("loss", loss, ended, step) for step, loss in training_losses(folder)]
        for batch in _batches(metrics):
            self._mlflow.log_batch(found, metrics=batch)
        self._mlflow.log_batch(found, tags=_note(task.error or task.figures))
        if report := task_report(folder, task.name):
            self._mlflow.log_artifact(found, str(report))
        state = "interrupted" if task.state == "running" and not alive else task.state
        if state == "running":
            self._mlflow.update_run(found, status=STATUS[state])
        else:
            self._mlflow.set_terminated(found, STATUS[state], ended)

    def _put_models(self, store: str, *, first: bool) -> None:
        """The models of a store. Those of the first one have their own names; of another, a name that tells the store."""
        for name in model_names(store):
            standing = read_standing(open_storage(store), name)
            if standing.tag is not None and self._tags.get((store, name)) == standing.tag:
                continue
            shown = name if first else f"{name}-{hashlib.sha256(store.encode()).hexdigest()[:6]}"
            versions, champion = read_versions(store, name), standing.champion
            if not versions:
                continue
            try:
                model = self._mlflow.get_registered_model(shown)
            except MlflowException:
                model = self._mlflow.create_registered_model(shown, {STORE_TAG: store}, f"model {name} of {store}")
            known = {found.tags.get(VERSION_TAG): found for found in self._mlflow.search_model_versions(f"name = '{shown}'")}
            for version in versions:
                if str(version.version) not in known:
                    known[str(version.version)] = self._create_version(shown, store, version)
            there = model.aliases.get(CHAMPION)
            if champion is None:
                continue
            number = str(known[str(champion.version)].version)
            if str(there) != number:
                self._mlflow.set_registered_model_alias(shown, CHAMPION, number)
            # Last, as a pass that failed before is made again. Every version that is added changes champion.json.
            self._tags[store, name] = standing.tag

    def _create_version(self, shown: str, store: str, version: Version) -> Any:
        place = store if store.startswith("s3://") else Path(store).absolute().as_uri()
        source = f"{place}/{version_folder(version.name, version.version)}/model"
        tags = {VERSION_TAG: str(version.version), "auc": f"{version.auc:.6f}", "run": version.lineage.run_id}
        says = f"AUC {version.auc:.4f}, log loss {version.log_loss:.4f} when it was promoted, {version.created_at}"
        return self._mlflow.create_model_version(shown, source, tags=tags, description=says)


def _content(run: Run) -> str:
    """What a pass compares: the record, and whether its process still is."""
    return hashlib.sha256(f"{run!r} {is_interrupted(run)}".encode()).hexdigest()


def _ms(iso: str) -> int:
    return int(datetime.fromisoformat(iso).timestamp() * 1000)


def _metrics(figures: Mapping[str, float], at: int) -> list[Metric]:
    return [Metric(name, value, at, 0) for name, value in figures.items()]


def _params(parameters: Mapping[str, object]) -> list[Param]:
    # MLflow takes no empty value.
    return [Param(name, str(value)[:VALUE_CHARACTERS]) for name, value in parameters.items() if str(value)]


def _note(text: str) -> list[RunTag]:
    """What MLflow shows as a run's description."""
    return [RunTag("mlflow.note.content", text)] if text else []


def _batches(metrics: list[Metric]) -> Iterator[list[Metric]]:
    for first in range(0, len(metrics), BATCH):
        yield metrics[first : first + BATCH]
