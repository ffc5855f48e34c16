"""`ctrflow ui`: the runs of this machine in MLflow."""

import importlib.util
import json
import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import click

from components.errors import InvalidConfig, WorkflowError
from pipelines.commands import Answer, Command, wants_json
from pipelines.ui_server import ENVIRONMENT, FOLDER, HOST, serving, tracking_uri

log = logging.getLogger(__name__)

CHECKOUT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-ui.lock")
# How often the runs are looked at again.
EVERY_S = 2.0


@click.command(cls=Command)
@click.option("--runs", type=click.Path(file_okay=False, path_type=Path), default=Path("runs"), help="folder of runs")
@click.option("--port", type=click.IntRange(0, 65535), default=5000, help="on 127.0.0.1; 0: one that is free")
@click.option("--index-only", is_flag=True, help="bring MLflow's database up to date, and end")
def ui(runs: Path, port: int, index_only: bool) -> Answer:
    """Show the runs of this machine, those in progress too, in MLflow on 127.0.0.1, until Ctrl-C."""
    if not runs.is_dir():
        raise InvalidConfig(f"{runs}: no such folder; ctrflow run makes it, or name the folder of runs with --runs")
    chosen = port or _free_port()
    if not index_only:
        _check_free(chosen)
    install()
    os.environ.update(ENVIRONMENT)
    (runs / FOLDER).mkdir(exist_ok=True)
    for noisy in ("alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    from pipelines.mlflow_index import Index

    index = Index(runs, tracking_uri(runs))
    if index_only:
        changed = index.update()
        return Answer(text=f"{changed} runs new or changed", document={"changed": changed})
    with serving(runs, chosen) as address:
        shown = {"address": address, "runs": str(runs)}
        click.echo(json.dumps(shown) if wants_json() else f"{address}  runs of {runs}; Ctrl-C ends it")
        while True:
            index.update()
            time.sleep(EVERY_S)


def install() -> None:
    """MLflow into this environment, unless it is there.

    Raises:
        InvalidConfig: it is not, and this is no checkout, whose locks say which versions. WorkflowError: pip failed.
    """
    if importlib.util.find_spec("mlflow") is not None:
        return
    locks = [CHECKOUT / name for name in LOCKS]
    if not all(lock.is_file() for lock in locks):
        raise InvalidConfig("MLflow is not installed; install ctrflow with its extra: pip install 'ctrflow[ui]'")
    log.info("installing MLflow into %s, once (about 1 minute)", sys.prefix)
    constraints = [text for lock in locks for text in ("-c", str(lock))]
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-build-isolation", *constraints]
    done = subprocess.run([*command, "-e", f"{CHECKOUT}[ui]"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise WorkflowError(f"MLflow was not installed: {lines[-1] if lines else 'pip failed'}; make mlflow shows all of it")
    importlib.invalidate_caches()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


def _check_free(port: int) -> None:
    """Said before MLflow is started, which would tell it in twenty lines.

    Raises:
        InvalidConfig: something listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise InvalidConfig(
                f"port {port} of {HOST}: {error.strerror}; choose another with --port, 0 for one that is free"
            ) from error
