"""One job of the local endpoint, of either kind: what the service does with it from its start to its end.

Starting > Downloading > (the program) > Uploading > Completed
                |            |
                |            +> Failed     a host ended with another exit code than 0; the others are stopped
                +------------+> Stopped    asked for, or out of time: SIGTERM, a grace, SIGKILL

On spot instances (the program) > Interrupted > Starting ... on other machines, with nothing but the checkpoints.

What is particular to a kind is in training_jobs.py and processing_jobs.py.
"""

import logging
import queue
import shutil
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from pipelines.local.endings import COMPLETED, INTERRUPTED, NO_CAPACITY, STOPPED, TIMED_OUT, WAITED_TOO_LONG, Ending, failed
from pipelines.local.hosts import Host, Program, reserve_ports
from pipelines.local.job_state import JobState
from pipelines.local.machines import Machines
from pipelines.local.pipes import Feeder
from pipelines.local.transfers import ChannelSource, channel_objects, stage_channel

LOG = logging.getLogger(__name__)


class Job(JobState, ABC):
    """A validated create request, carried out on a thread of its own."""

    # Members of the create request that are carried out here; any other would be silently ignored, so it is refused.
    carried_out: ClassVar[frozenset[str]]

    def __init__(self, request: Mapping[str, Any], arn: str, folder: Path, machines: Machines) -> None:
        super().__init__(request, arn)
        self.folder = folder
        self._machines, self._stop_grace_s = machines, machines.stop_grace_s
        self._gone: list[Host] = []
        self._feeders: list[Feeder] = []
        self.hosts = self._new_hosts(folder, 0)
        # A host that has ended, an ending that someone asks for.
        self._events: queue.Queue[Host | Ending] = queue.Queue()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._enter("Starting", "Preparing the hosts")

    @staticmethod
    @abstractmethod
    def cluster(request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part of a request that says which machines, and how many."""

    @staticmethod
    @abstractmethod
    def refusal(request: Mapping[str, Any]) -> str | None:
        """What of a valid request this endpoint does not carry out."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The response of the Describe operation."""

    @abstractmethod
    def _lay_out(self, host: Host) -> None:
        """Folders and configuration files of a host."""

    @abstractmethod
    def _inputs(self) -> list[tuple[ChannelSource, str]]:
        """Where inputs come from, and their place below a host's base."""

    @abstractmethod
    def _program(self, host: Host) -> Program:
        """What a host runs."""

    @abstractmethod
    def _failure_text(self, first: Host, code: int) -> str:
        """Why it failed, when `first` was the first host that ended with another exit code than 0."""

    @abstractmethod
    def _keep_checkpoints(self) -> None:
        """Put what hosts left as checkpoints where the request says."""

    @abstractmethod
    def _upload(self, ending: Ending) -> None:
        """Put what the program has left where the request says."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Ask the job to stop. Returns False when its status allows no stopping any more."""
        with self._lock:
            if self.status != "InProgress":
                return False
            self.status = "Stopping"
            self._enter("Stopping", f"Stopping the {self.kind.noun}")
            self._events.put(STOPPED)
            return True

    def interrupt(self) -> None:
        """Take the machines away, as spot instances are. The job goes on, on others."""
        self._events.put(INTERRUPTED)

    def all_hosts(self) -> list[Host]:
        """Those that were taken away too, first."""
        return [*self._gone, *self.hosts]

    def _new_hosts(self, folder: Path, generation: int) -> list[Host]:
        count = self.cluster(self.request)["InstanceCount"]
        cpus = self._machines.cpus
        return [Host(folder, index, generation=generation, cpus=cpus(index)) for index in range(count)]

    def close(self) -> None:
        """Kill everything, without grace. Returns when nothing is left."""
        with self._lock:
            self._closing = True
        for host in self.hosts:
            host.kill()
        self._thread.join()

    def _run(self) -> None:
        try:
            ending = self._lacks_capacity() or self._prepare() or self._work()
            while ending is INTERRUPTED:
                ending = self._replaced() or self._prepare() or self._work()
            if not self._closing:
                self._keep_checkpoints()
            if ending.status != "Failed" and not self._closing:
                ending = self._uploaded(ending)
        except Exception as error:
            LOG.exception("%s: the local endpoint itself failed", self.name)
            ending = failed(f"InternalServerError: {type(error).__name__}: {error}")
        for host in self.hosts:
            host.kill()
            shutil.rmtree(host.temporary, ignore_errors=True)
        with self._lock:
            if ending is COMPLETED and self.status == "Stopping":
                ending = STOPPED
            self._enter(ending.secondary, ending.reason or f"{self.kind.noun.capitalize()} {ending.secondary}")
            self._transitions[-1]["EndTime"] = self.modified
            self.status, self._reason, self._ended = ending.status, ending.reason, self.modified

    def _lacks_capacity(self) -> Ending | None:
        """Said in the service's words."""
        if self.cluster(self.request).get("InstanceType") not in self._machines.lacking:
            return None
        return NO_CAPACITY

    def _replaced(self) -> Ending | None:
        """Other machines for those that were taken away."""
        for host in self.hosts:
            host.kill()
        self._keep_checkpoints()
        self._go_on("Interrupted", "Spot instances were taken away")
        with self._lock:
            if self.status == "Stopping" or self._closing:
                return STOPPED
            self._gone += self.hosts
            generation = self.hosts[0].generation + 1
            self.hosts = self._new_hosts(self.folder / f"restart-{generation}", generation)
        self._go_on("Starting", "Preparing other hosts")
        return None

    def _prepare(self) -> Ending | None:
        """Folders, configuration and inputs of every host."""
        for host in self.hosts:
            self._lay_out(host)
        with self._lock:
            self._started = self._started or time.time()
            self._feeders = []
        self._go_on("Downloading", "Downloading input data")
        for source, place in self._inputs():
            for host in self.hosts:
                if self.status == "Stopping" or self._closing:
                    return STOPPED
                try:
                    if source.input_mode == "Pipe":
                        objects = channel_objects(source, host=host.index, hosts=len(self.hosts))
                        self._feeders.append(Feeder(host.base / place, list(objects.values())))
                    else:
                        stage_channel(source, host.base / place, host=host.index, hosts=len(self.hosts))
                except (OSError, ValueError, ClientError, BotoCoreError) as error:
                    return failed(f"ClientError: Data download failed for {source.name}: {error}")
        return None

    def _work(self) -> Ending:
        self._go_on(self.kind.word, f"{self.kind.word} image started")
        port_base, ports = reserve_ports(len(self.hosts))
        with ports:
            for feeder in self._feeders:
                feeder.start()
            try:
                for host in self.hosts:
                    with self._lock:
                        if self._closing:
                            return STOPPED
                        host.start(self._program(host), port_base)
                    threading.Thread(target=self._report_end, args=(host,), daemon=True).start()
                return self._follow_hosts()
            finally:
                for feeder in self._feeders:
                    feeder.stop()

    def _report_end(self, host: Host) -> None:
        host.wait()
        self._events.put(host)

    def _follow_hosts(self) -> Ending:
        """Wait until all have ended well, or one has not, or time is up, or someone asks for another end."""
        assert self._started is not None
        limits = self.request["StoppingCondition"]
        left_s, late = self._started + limits["MaxRuntimeInSeconds"] - time.time(), TIMED_OUT
        wait_s = self.created + limits.get("MaxWaitTimeInSeconds", float("inf")) - time.time()
        if wait_s < left_s:
            left_s, late = wait_s, WAITED_TOO_LONG
        deadline = time.monotonic() + left_s
        running = len(self.hosts)
        while running:
            try:
                host = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._end_hosts()
                return late
            if self._closing or isinstance(host, Ending):
                self._end_hosts()
                return host if isinstance(host, Ending) else STOPPED
            if host not in self.hosts:  # taken away before
                continue
            running -= 1
            if code := host.wait():
                ending = failed(f"AlgorithmError: {self._failure_text(host, code)}")
                self._end_hosts()
                return ending
        return COMPLETED

    def _end_hosts(self) -> None:
        """SIGTERM to all, and after the grace the end of whatever is left."""
        for host in self.hosts:
            host.terminate()
        deadline = time.monotonic() + self._stop_grace_s
        for host in self.hosts:
            try:
                host.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                LOG.warning("%s: %s is still there %g s after SIGTERM; killing it", self.name, host.name, self._stop_grace_s)
            host.kill()

    def _uploaded(self, ending: Ending) -> Ending:
        """The same ending, or that of an upload that failed."""
        try:
            self._upload(ending)
        except (OSError, ClientError, BotoCoreError, Boto3Error) as error:
            return failed(f"ClientError: Artifact upload failed: {error}")
        return ending
