"""runs/<run id>/index.html: a run in one look, written whenever its record changes. Everything on it is read from the run's folder.

The page is one file that fetches nothing; its links are relative, so a run's folder can be moved or packed with them.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from components.documents import read_json
from components.errors import InvalidConfig
from components.reports import Link, Page, write_report
from components.step_graph import Step, StepState, graph_svg
from pipelines.runs import RUN, Run, Task, is_interrupted, read_run

INDEX, PIPELINE = "index.html", "pipeline.yaml"
REFRESH_S = 5


def task_folder(folder: Path, task: str) -> Path:
    """Where a task's outputs are: <task>/, and while the run goes on, or after it was killed, below the folder that KFP named."""
    gathered = folder / task
    return gathered if gathered.is_dir() else next((path for path in folder.glob(f"*/{task}") if path.is_dir()), gathered)


def task_metrics(folder: Path, task: str) -> dict[str, float]:
    """The numbers that a task gave KFP as Metrics, by name; empty where it gave none, or has not ended."""
    try:
        artifacts = read_json(task_folder(folder, task) / "executor_output.json")["artifacts"]
        given = artifacts["metrics"]["artifacts"][0]["metadata"]
    except (OSError, ValueError, KeyError, IndexError):
        return {}
    return {name: float(value) for name, value in given.items()}


def task_report(folder: Path, task: str) -> Path | None:
    """The task's page; None where it has left none."""
    found = [task_folder(folder, task) / name for name in ("report.html", "report")]
    return next((path for path in found if path.is_file()), None)


def pipeline_edges(pipeline: Path) -> dict[str, list[str]]:
    """What each step of a compiled pipeline waits for, in the order of the work; a group of steps stands for all of its steps.

    Raises:
        InvalidConfig: not a compiled pipeline.
    """
    try:
        document = next(yaml.load_all(pipeline.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        return _edges_of(document["root"]["dag"]["tasks"], document["components"])
    except FileNotFoundError:
        raise InvalidConfig(f"{pipeline}: no such file; ctrflow compile writes one") from None
    except (yaml.YAMLError, KeyError, TypeError, StopIteration, UnicodeDecodeError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidConfig(f"{pipeline}: not a compiled pipeline ({why}); ctrflow compile writes one") from error


def _edges_of(tasks: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    groups: dict[str, list[str]] = {}
    for name, task in tasks.items():
        inner = components[task["componentRef"]["name"]].get("dag")
        if inner:
            inside = _edges_of(inner["tasks"], components)
            groups[name] = list(inside)
            found |= inside
    for name, task in tasks.items():
        before = [each for other in task.get("dependentTasks", []) for each in groups.get(other, [other])]
        for step in groups.get(name, [name]):
            found[step] = [*found.get(step, []), *before]
    return found


def write_run_page(folder: Path, run: Run | None = None) -> Path:
    """Write index.html of a run's folder, whole or not at all; a browser that shows it of a run in progress reads it again.

    Args:
        run: its record; None reads run.json.
    Raises:
        InvalidConfig: there is no record, or it cannot be read.
    """
    path = folder / INDEX
    write_report(path, run_page(folder, run or read_run(folder / RUN)))
    return path


def run_page(folder: Path, run: Run) -> Page:
    tasks = {task.name: task for task in run.tasks}
    alive = run.state == "running" and not is_interrupted(run)
    page = Page(f"Run {run.run_id}", _summary(run, alive), refresh_s=REFRESH_S if alive else 0)
    if run.error:
        page.warning(run.error)
    if (folder / PIPELINE).is_file():
        edges = pipeline_edges(folder / PIPELINE)
        names = [*edges, *(name for name in tasks if name not in edges)]
        steps = [_step(folder, alive, name, edges.get(name, []), tasks.get(name)) for name in names]
        page.figure("Steps", graph_svg(steps))
    page.section("What each step found")
    page.table(
        ["step", "state", "took", "started (UTC)", "what matters", "report", "log"],
        [_row(folder, task, alive) for task in run.tasks],
    )
    _numbers(page, folder, run)
    _loss(page, folder)
    page.section("What it was given")
    page.table(["parameter", "value"], [[name, _text(value)] for name, value in run.parameters.items()])
    files = [Link(name, name) for name in (RUN, PIPELINE, "parameters.json", "logs/pipeline.log") if (folder / name).is_file()]
    page.section("Files")
    page.links(files)
    return page


def _summary(run: Run, alive: bool) -> str:
    if alive:
        return f"running since {_time(run.started)} UTC, {len(run.tasks)} steps begun; this page is written anew at every step"
    if run.state == "running":
        return f"interrupted: its process has ended without a word; it began on {_time(run.started)} UTC"
    took = _seconds(run.started, run.ended)
    return f"{run.state} after {took:,.1f} s, on {_time(run.ended)} UTC"


def _seconds(started: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()


def _time(iso: str) -> str:
    return iso[:19].replace("T", " ")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _state(task: Task, alive: bool) -> StepState:
    return "interrupted" if task.state == "running" and not alive else task.state


def _step(folder: Path, alive: bool, name: str, after: list[str], task: Task | None) -> Step:
    if task is None:
        return Step(name=name, after=after, state="waiting" if alive else "not run")
    report = task_report(folder, name)
    return Step(
        name=name,
        after=after,
        state=_state(task, alive),
        detail=f"{task.elapsed_s:,.1f} s" if task.elapsed_s else "",
        to=_relative(report, folder) if report else "",
    )


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _row(folder: Path, task: Task, alive: bool) -> list[str | Link]:
    report, logged = task_report(folder, task.name), folder / "logs" / f"{task.name}.log"
    return [
        task.name,
        _state(task, alive),
        f"{task.elapsed_s:,.1f} s" if task.ended else "–",
        _time(task.started)[11:],
        task.error or task.figures,
        Link("report", _relative(report, folder)) if report else "none",
        Link("log", _relative(logged, folder)) if logged.is_file() else "none",
    ]


def _numbers(page: Page, folder: Path, run: Run) -> None:
    rows = [
        [task.name, name.replace("_", " "), f"{value:,.6g}"]
        for task in run.tasks
        for name, value in task_metrics(folder, task.name).items()
    ]
    if rows:
        page.section("Figures")
        page.table(["step", "figure", "value"], rows)


def training_losses(folder: Path) -> list[tuple[int, float]]:
    """(step, loss) of the run's training; empty where it has not ended."""
    try:
        losses = read_json(task_folder(folder, "train") / "training")["losses"]
    except (OSError, ValueError, KeyError):
        return []
    return [(int(step), float(loss)) for step, loss in losses]


def _loss(page: Page, folder: Path) -> None:
    losses = training_losses(folder)
    if losses:
        page.section("Training")
        page.lines("Training loss", "step", "log loss", {"loss": [(float(step), loss) for step, loss in losses]})
