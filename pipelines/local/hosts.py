"""One host of a job: its folders, its environment, its processes and its log."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.local import container

PORTS_A_JOB = 100
# Below the ports that Linux hands out by itself (32768 and up), so that nothing takes one by chance.
_FIRST_PORT, _LAST_PORT = 20000, 32700
_KILL_S = 5.0


def host_name(host: int) -> str:
    """algo-1, algo-2 ... for host 0, 1 ..."""
    return f"algo-{host + 1}"


def host_address(host: int) -> str:
    """The loopback address that stands for the host's own."""
    return f"127.0.0.{host + 1}"


def reserve_ports(hosts: int) -> tuple[int, socket.socket]:
    """A base port such that base .. base + PORTS_A_JOB - 2 are free at every host's address.

    Returns:
        The base, and a socket that holds the last port of the range: while it is open, no other job gets the same range.
    Raises:
        OSError: no free range was found.
    """
    bases = list(range(_FIRST_PORT, _LAST_PORT - PORTS_A_JOB, PORTS_A_JOB))
    random.shuffle(bases)
    for base in bases:
        holder = socket.socket()
        try:
            holder.bind((host_address(0), base + PORTS_A_JOB - 1))
            for host in range(hosts):
                for port in range(base, base + PORTS_A_JOB - 1):
                    with socket.socket() as probe:
                        probe.bind((host_address(host), port))
        except OSError:
            holder.close()
            continue
        return base, holder
    raise OSError(f"no {PORTS_A_JOB} free ports in a row in {_FIRST_PORT}..{_LAST_PORT}")


@dataclass(frozen=True, kw_only=True)
class Program:
    """What every host of a job runs: the command, and the environment that the request and the kind of job give it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    hosts: int


class Host:
    """A base directory that stands for /opt/ml, and the one command that runs on it."""

    def __init__(self, job_folder: Path, index: int, *, generation: int = 0, cpus: Sequence[int] = ()) -> None:
        """
        Args:
            generation: counts the machines that came one after the other, when spot instances were taken away.
            cpus: those that it may use; empty: all of this machine.
        """
        self.index, self.name, self.generation, self._cpus = index, host_name(index), generation, tuple(cpus)
        self.base = job_folder / self.name
        self.log = job_folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def temporary(self) -> Path:
        """What a container's /tmp is: gone with the host. TensorFlow leaves files there when its process is killed."""
        return self.base / "tmp"

    def prepare(self, folders: Iterable[str], documents: Mapping[str, object]) -> None:
        """Make folders, and files of JSON, named by their paths below the base."""
        for folder in map(self.base.joinpath, folders):
            folder.mkdir(parents=True, exist_ok=True)
        self.temporary.mkdir(parents=True)
        for name, content in documents.items():
            path = self.base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content))
        self.log.touch()

    def start(self, program: Program, port_base: int) -> None:
        """Start the command in a session of its own; a leading python3 is this interpreter."""
        command = list(program.command)
        command = [sys.executable, *command[1:]] if command[0] in ("python", "python3") else command
        own = {
            "SAGEMAKER_BASE_DIR": str(self.base),
            "CTRFLOW_HOST_ADDRESSES": json.dumps({host_name(host): host_address(host) for host in range(program.hosts)}),
            "CTRFLOW_PORT_BASE": str(port_base),
            "TMPDIR": str(self.temporary),
            **({container.CPUS: ",".join(map(str, self._cpus))} if self._cpus else {}),
            "PYTHONUNBUFFERED": "1",  # the log is followed as it is written
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", container.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.base,
                env={**os.environ, **program.environment, **own},
                start_new_session=True,
            )

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code, 128 + N for signal N.

        Raises:
            subprocess.TimeoutExpired: still running.
        """
        assert self._process is not None
        code = self._process.wait(timeout_s)
        if code < 0:  # the stand-in itself was killed, so it could not clean up
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """SIGTERM to the command."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the command and all that it started, at once. Returns when they are gone."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
