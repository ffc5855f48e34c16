"""Runs as people and programs see them, of this machine and of a cluster alike."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from components.documents import read_json
from components.errors import InvalidConfig, hint_for
from pipelines.runs import RUN, check_run_id, process_is

_CLUSTER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_cluster_run(run_id: str) -> bool:
    """Whether an id is one that Kubeflow Pipelines gives."""
    return bool(_CLUSTER.fullmatch(run_id))


def run_document(run: Any) -> dict[str, Any]:
    """A run of Kubeflow Pipelines."""
    from pipelines.submission import steps

    return {
        "run_id": run.run_id,
        "name": run.display_name,
        "state": run.state or "PENDING",
        "created": _text(run.created_at),
        "ended": _text(run.finished_at),
        "schedule": run.recurring_run_id or "",
        "error": run.error.message if run.error else "",
        "steps": steps(run),
    }


def _text(time: datetime | None) -> str:
    # An end that has not come is the first second of 1970.
    return time.isoformat() if time and time.year > 1970 else ""


def local_runs(runs: Path, most: int, schedule: str = "") -> list[dict[str, Any]]:
    """The newest records of this machine's runs, of one schedule if it is named; one that cannot be read is left out."""
    return list(islice((record for record in _records(runs) if schedule in ("", record.get("schedule", ""))), most))


def _records(runs: Path) -> Iterator[dict[str, Any]]:
    """The newest first."""
    for path in sorted(runs.glob(f"*/{RUN}"), key=lambda path: path.stat().st_mtime, reverse=True):
        with suppress(ValueError):
            yield read_json(path)


def local_run(runs: Path, run_id: str) -> tuple[Path, dict[str, Any]]:
    """Folder and record of one run.

    Raises:
        InvalidConfig: there is no such run.
    """
    check_run_id(run_id)
    folder = runs / run_id
    if not (folder / RUN).is_file():
        known = [path.parent.name for path in runs.glob(f"*/{RUN}")]
        hint = hint_for(run_id, known[-20:]) if known else "ctrflow runs list names what is there"
        raise InvalidConfig(f"run {run_id}: not in {runs}; {hint}")
    try:
        document: dict[str, Any] = read_json(folder / RUN)
    except ValueError as error:
        raise InvalidConfig(f"{folder / RUN}: not valid JSON ({error})") from error
    return folder, document


def local_summary(record: dict[str, Any]) -> dict[str, Any]:
    """A record in the words of `run_document`."""
    return {
        "run_id": record["run_id"],
        "name": record["parameters"].get("name", ""),
        "state": "INTERRUPTED" if record["state"] == "running" and not is_alive(record) else record["state"].upper(),
        "created": record["started"],
        "ended": record["ended"],
        "schedule": record.get("schedule", ""),
        "error": record["error"],
        "steps": {task["name"]: task["state"].upper() for task in record["tasks"]},
    }


def is_alive(record: dict[str, Any]) -> bool:
    """Whether the process that a record names still runs it."""
    return record["state"] == "running" and process_is(record.get("pid", 0), record.get("pid_started", 0.0))


def table(runs: Sequence[dict[str, Any]]) -> str:
    """One line a run."""
    lines = [f"{'run':<36}  {'state':<10}  {'created':<29}  name"]
    lines += [f"{run['run_id']:<36}  {run['state']:<10}  {run['created']:<29}  {run['name']}" for run in runs]
    return "\n".join(lines)


def details(run: dict[str, Any]) -> str:
    """A run, one line each of what is known of it."""
    head = ("run_id", "name", "state", "created", "ended", "schedule", "error")
    lines = [f"{name:<10}{run[name]}" for name in head if run[name]]
    return "\n".join([*lines, *(f"  {name:<22}{state}" for name, state in run["steps"].items())])
