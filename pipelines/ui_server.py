"""MLflow's server as a process on loopback, and the index beside it, kept up to date."""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from components.errors import WorkflowError

log = logging.getLogger(__name__)

# MLflow's own files, beside the runs: they can be removed, and are made again.
FOLDER = ".mlflow"
HOST = "127.0.0.1"
READY_S, STOP_S = 60.0, 5.0
PR_SET_PDEATHSIG = 1
# MLflow tells its makers how it is used, unless it is told not to; jobs of its own have no use here, and take a process.
ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def tracking_uri(runs: Path) -> str:
    """MLflow's database of a folder of runs."""
    return f"sqlite:///{(runs / FOLDER / 'mlflow.db').absolute()}"


@contextmanager
def serving(runs: Path, port: int) -> Iterator[str]:
    """MLflow's pages of its database; gives their address. Its processes are a group, which has ended when this ends.

    Raises:
        WorkflowError: it did not come up, as where something else has the port.
    """
    folder, address = runs / FOLDER, f"http://{HOST}:{port}"
    log_path = folder / "server.log"
    artifacts = (folder / "artifacts").absolute()
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", tracking_uri(runs), "--default-artifact-root", artifacts.as_uri(), "--serve-artifacts"]
    command += ["--artifacts-destination", artifacts.as_uri()]
    with log_path.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    try:
        _wait_until_ready(process, address, log_path)
        yield address
    finally:
        _end(process)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_ready(process: "subprocess.Popen[bytes]", address: str, log_path: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise WorkflowError(f"MLflow's server ended at once: {lines[-1] if lines else 'without a word'}; its log: {log_path}")
        try:
            with urlopen(f"{address}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (URLError, OSError):
            time.sleep(0.1)
    raise WorkflowError(f"MLflow's server did not answer at {address} within {READY_S:.0f} s; its log: {log_path}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM to the whole group, then SIGKILL to what is left: the server has started processes of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
