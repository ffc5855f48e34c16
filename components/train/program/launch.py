"""Entry point of a training container: start this host's processes, watch them, end them all together.

Runs once per host. The first process that fails decides: its own reason goes to `<base>/output/failure`, every other process is
ended, here and on the other hosts, and the exit code says so. Ends its processes on SIGTERM and SIGINT too; they die with it even
by kill -9.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from components.errors import WorkflowError
from components.resources import usable_cpus
from components.train.program.channels import find_channels
from components.train.program.config import TrainConfig
from components.train.program.container import PEER_LOST, Container, positive_number, read_config, read_container
from components.train.program.peers import Peers
from components.train.program.roles import RENDEZVOUS_OFFSET, Role, roles
from components.train.program.shared_memory import SHARED_MEMORY, make_memory

log = logging.getLogger("ctrflow.launch")

DEFAULT_PORT_BASE = 7300
DNS_DEADLINE_S = 300.0
POLL_S = 0.05
# What runs in a process of a role.
COMMAND = (sys.executable, "-m", "components.train.program")
# How long the true cause may take to show up behind an error that only says that a peer is gone.
CAUSE_DEADLINE_S = 5.0
# How long no step may end, the first one included, once a process is ready. A hang is paid for until then.
STALL_S = 300.0
# SageMaker gives a container 120 s after SIGTERM; what serves needs no more than this.
END_DEADLINE_S = 5.0


class Stopped(Exception):
    """SIGTERM or SIGINT."""


@dataclass(frozen=True)
class Child:
    """A running process, where it leaves its reason when it fails, and the file that it touches while steps go on."""

    role: Role
    process: "subprocess.Popen[bytes]"
    reason: Path
    progress: Path

    def failure(self) -> str | None:
        """What to say about an ended process; None while it runs and when it ended as it should."""
        code = self.process.poll()
        if code is None or (code == 0 and self.role.main):
            return None
        if code < 0:
            return f"{self.role.name} was killed by signal {-code} ({signal.Signals(-code).name})"
        told = self.reason.read_text(encoding="utf-8").strip() if self.reason.is_file() else ""
        return told or f"{self.role.name} ended with code {code} and gave no reason; see its log"


def resolve(hosts: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Addresses of all hosts; waits for their DNS names, which SageMaker creates while hosts start."""
    given = json.loads(environment.get("CTRFLOW_HOST_ADDRESSES", "{}"))
    found, deadline = {}, time.monotonic() + DNS_DEADLINE_S
    for host in hosts:
        while host not in given:
            try:
                given[host] = socket.gethostbyname(host)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise WorkflowError(f"{host}: no address for {DNS_DEADLINE_S:.0f} s ({error}); is the host up?") from error
                time.sleep(1.0)
        found[host] = given[host]
    return found


def start_rendezvous(container: Container, config: TrainConfig, address: str, port: int) -> Any:
    """Horovod's own key-value server, through which its ranks find each other; without ssh or mpirun."""
    import threading

    from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    slots = config.workers_per_host
    server = RendezvousHTTPServer((address, port), RendezvousHandler, 0)
    server.init(get_host_assignments([HostInfo(host, slots) for host in container.hosts], slots * len(container.hosts)))
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
    return server


def start(role: Role, container: Container, environment: Mapping[str, str], scratch: str, memory: int | None) -> Child:
    """Start one process in the base directory: paths of channels are then the same on every host.

    Args:
        scratch: a folder for temporary files; a process that is killed leaves some, TensorFlow's graph sources for one.
        memory: the file descriptor of what this host's processes share, if they share any.
    """
    reason = container.base / "output" / f".failure.{role.kind.replace(' ', '-')}"
    progress = reason.with_name(reason.name.replace("failure", "progress"))
    reason.parent.mkdir(parents=True, exist_ok=True)
    own = {
        **environment,
        **role.environment,
        "CTRFLOW_ROLE": role.kind,
        "CTRFLOW_FAILURE_FILE": str(reason),
        "CTRFLOW_PROGRESS_FILE": str(progress),
        "CTRFLOW_LAUNCHER_PID": str(os.getpid()),
        "TF_CPP_MIN_LOG_LEVEL": environment.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": scratch,
    }
    inherited = () if memory is None else (memory,)
    if memory is not None:
        own[SHARED_MEMORY] = str(memory)
    log.info("starting %s", role.name)
    process = subprocess.Popen(COMMAND, env=own, cwd=container.base, stdin=subprocess.DEVNULL, pass_fds=inherited)
    return Child(role, process, reason, progress)


class Stalls:
    """Notices that the steps of a process have stopped: its progress file is there and is not touched any more."""

    def __init__(self, children: Sequence[Child], stall_s: float) -> None:
        self._children, self._stall_s = children, stall_s
        # File time when last looked at, and when we saw it change: the machine's clock may be set meanwhile.
        self._seen: dict[str, tuple[int, float]] = {}

    def reason(self) -> str | None:
        """What to say when a process has made no step for too long."""
        now = time.monotonic()
        for child in self._children:
            try:
                touched = child.progress.stat().st_mtime_ns
            except FileNotFoundError:  # starting, or writing the model
                continue
            before, since = self._seen.get(child.role.name, (None, now))
            if touched != before:
                self._seen[child.role.name] = (touched, now)
            elif now - since > self._stall_s:
                return f"{child.role.name}: no step has ended for {self._stall_s:g} s; it hangs, or a process that it waits for"
        return None


def watch(children: Sequence[Child], peers: Peers, stall_s: float) -> str | None:
    """Wait for the end of the job; the reason when it fails, else None."""
    stalls = Stalls(children, stall_s)
    mains = [child for child in children if child.role.main]
    while True:
        failing = [child for child in children if child.failure() is not None]
        if failing or peers.failure() is not None:
            return first_cause(children, peers)
        if stalled := stalls.reason():
            return stalled
        if mains and all(child.process.poll() == 0 for child in mains):
            return None
        if not mains and peers.done():
            return None
        time.sleep(POLL_S)


def first_cause(children: Sequence[Child], peers: Peers) -> str:
    """The reason of whoever failed first. A process that only lost a peer is not believed while a better reason may come."""
    deadline = time.monotonic() + CAUSE_DEADLINE_S
    while True:
        failed = [child for child in children if child.failure() is not None]
        causes = [child for child in failed if child.process.returncode != PEER_LOST]
        # A killed process says nothing else about itself, and others may already have failed because of it.
        for child in sorted(causes, key=lambda child: child.process.returncode >= 0):
            return child.failure() or ""
        told = peers.failure()
        if told is not None:
            return told
        if time.monotonic() > deadline:
            silent = [child.role.name for child in children if child.process.poll() is None]
            return (failed[0].failure() or "") + (f"; {', '.join(silent)} did not answer and gave no reason" if silent else "")
        time.sleep(POLL_S)


def end(children: Sequence[Child]) -> None:
    """SIGTERM, then SIGKILL; returns when no process is left."""
    for child in children:
        if child.process.poll() is None:
            child.process.terminate()
    deadline = time.monotonic() + END_DEADLINE_S
    for child in children:
        try:
            child.process.wait(max(deadline - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()


def launch(container: Container, environment: Mapping[str, str]) -> None:
    """Run this host's part of the job.

    Raises:
        WorkflowError: the job failed; the message is the first failing process's own.
        Stopped: a signal asked to end.
    """
    config = read_config(container)
    find_channels(container, config)  # a layout that cannot work is refused before any process starts
    cpus = usable_cpus()
    log.info("%s of %s: %d usable CPUs (%s)", container.current_host, ", ".join(container.hosts), *vars(cpus).values())
    port_base = int(positive_number(environment, "CTRFLOW_PORT_BASE", DEFAULT_PORT_BASE))
    stall_s = positive_number(environment, "CTRFLOW_STALL_S", STALL_S)
    addresses = resolve(container.hosts, environment)
    wanted = roles(config, container, addresses, port_base, cpus.count)
    children: list[Child] = []
    peers = Peers(container.hosts, container.current_host, addresses, port_base)
    last_word: dict[str, object] = {"failed": f"{container.current_host} was stopped"}
    scratch = tempfile.TemporaryDirectory(dir=container.base, prefix=".scratch-")
    try:
        if config.strategy == "horovod" and container.host_index == 0:
            start_rendezvous(container, config, addresses[container.current_host], port_base + RENDEZVOUS_OFFSET)
        alone = config.strategy == "horovod" and len(container.hosts) == 1
        memory = make_memory(config.workers_per_host) if alone else None
        for role in wanted:
            children.append(start(role, container, environment, scratch.name, memory))
        reason = watch(children, peers, stall_s)
        if reason is not None:
            last_word = {"failed": reason}
            raise WorkflowError(reason)
        last_word = {"done": True} if container.host_index == 0 else {"left": True}
    finally:
        peers.tell(last_word)
        end(children)
        scratch.cleanup()


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)

    def stop(number: int, frame: FrameType | None) -> None:
        # Once: a second signal must not interrupt the ending.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise Stopped(signal.Signals(number).name)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    container = read_container()
    try:
        launch(container, os.environ)
    except WorkflowError as error:
        log.error("%s", error)
        container.failure.parent.mkdir(parents=True, exist_ok=True)
        container.failure.write_text(str(error), encoding="utf-8")
        return 1
    except Stopped as stopped:
        log.info("stopped by %s", stopped)
        return 143
    return 0


if __name__ == "__main__":
    sys.exit(main())
