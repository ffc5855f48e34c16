"""One training job of the local endpoint: what the service does with it from Starting to its end.

Starting > Downloading > Training > Uploading > Completed
                |            |
                |            +> Failed     a host ended with another exit code than 0; the others are stopped
                +------------+> Stopped    StopTrainingJob, or MaxRuntimeExceeded: SIGTERM, a grace, SIGKILL
"""

import logging
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from pipelines.local.hosts import Host, HostInput, reserve_ports
from pipelines.local.transfers import ChannelSource, stage_channel, upload_tar

LOG = logging.getLogger(__name__)

REASON_CHARACTERS = 1024


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a job ends: status, phase, and the reason when it failed."""

    status: str
    secondary: str
    reason: str = ""


STOPPED = Ending(status="Stopped", secondary="Stopped")
TIMED_OUT = Ending(status="Stopped", secondary="MaxRuntimeExceeded")
COMPLETED = Ending(status="Completed", secondary="Completed")


def failed(reason: str) -> Ending:
    return Ending(status="Failed", secondary="Failed", reason=reason[:REASON_CHARACTERS])


class Job:
    """A validated CreateTrainingJob request, carried out on a thread of its own."""

    def __init__(self, request: Mapping[str, Any], arn: str, folder: Path, *, stop_grace_s: float) -> None:
        self.name: str = request["TrainingJobName"]
        self.arn, self.request, self.folder = arn, request, folder
        self.created = self.modified = time.time()
        self.status, self.secondary = "InProgress", ""
        self.hosts = [Host(folder, index) for index in range(request["ResourceConfig"]["InstanceCount"])]
        self._stop_grace_s = stop_grace_s
        self._started: float | None = None
        self._ended: float | None = None
        self._reason, self._model_uri = "", ""
        self._transitions: list[dict[str, Any]] = []
        self._lock = threading.RLock()
        # A host that has ended, or None: someone asks to stop.
        self._events: queue.Queue[Host | None] = queue.Queue()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._enter("Starting", "Preparing the hosts")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Ask the job to stop. Returns False when its status allows no stopping any more."""
        with self._lock:
            if self.status != "InProgress":
                return False
            self.status = "Stopping"
            self._enter("Stopping", "Stopping the training job")
            self._events.put(None)
            return True

    def close(self) -> None:
        """Kill everything, without grace. Returns when nothing is left."""
        with self._lock:
            self._closing = True
        for host in self.hosts:
            host.kill()
        self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether the job is at its end: nothing runs, no log grows."""
        return self._ended is not None

    def describe(self) -> dict[str, Any]:
        """The DescribeTrainingJob response."""
        with self._lock:
            description = {key: value for key, value in self.request.items() if key != "Tags"}
            description |= {
                "TrainingJobArn": self.arn,
                "TrainingJobStatus": self.status,
                "SecondaryStatus": self.secondary,
                "SecondaryStatusTransitions": [dict(transition) for transition in self._transitions],
                "CreationTime": self.created,
                "LastModifiedTime": self.modified,
                "EnableNetworkIsolation": False,
                "EnableInterContainerTrafficEncryption": False,
                "EnableManagedSpotTraining": False,
            }
            if self._started is not None:
                description["TrainingStartTime"] = self._started
            if self._started is not None and self._ended is not None:
                seconds = max(1, round(self._ended - self._started))
                description |= {"TrainingEndTime": self._ended, "TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": seconds}
            if self._reason:
                description["FailureReason"] = self._reason
            if self._model_uri:
                description["ModelArtifacts"] = {"S3ModelArtifacts": self._model_uri}
            return description

    def _enter(self, phase: str, message: str) -> None:
        with self._lock:
            self.modified = time.time()
            if self._transitions:
                self._transitions[-1]["EndTime"] = self.modified
            self.secondary = phase
            self._transitions.append({"Status": phase, "StartTime": self.modified, "StatusMessage": message})
            LOG.info("%s: %s", self.name, phase)

    def _run(self) -> None:
        try:
            ending = self._prepare() or self._train()
            if ending.status != "Failed" and not self._closing:
                ending = self._upload() or ending
        except Exception as error:
            LOG.exception("%s: the local endpoint itself failed", self.name)
            ending = failed(f"InternalServerError: {type(error).__name__}: {error}")
        for host in self.hosts:
            host.kill()
            shutil.rmtree(host.temporary, ignore_errors=True)
        with self._lock:
            if ending is COMPLETED and self.status == "Stopping":
                ending = STOPPED
            self._enter(ending.secondary, ending.reason or f"Training job {ending.secondary}")
            self._transitions[-1]["EndTime"] = self.modified
            self.status, self._reason, self._ended = ending.status, ending.reason, self.modified

    def _prepare(self) -> Ending | None:
        """Folders, configuration and channels of every host."""
        for host in self.hosts:
            host.prepare(self._host_input())
        with self._lock:
            self._started = time.time()
        self._go_on("Downloading", "Downloading input data")
        for channel in self.request.get("InputDataConfig", []):
            data = channel["DataSource"]["S3DataSource"]
            source = ChannelSource(
                name=channel["ChannelName"],
                uri=data["S3Uri"],
                input_mode=self._input_mode(channel),
                distribution=data.get("S3DataDistributionType", "FullyReplicated"),
            )
            for host in self.hosts:
                if self.status == "Stopping" or self._closing:
                    return STOPPED
                try:
                    stage_channel(source, host.channel(source.name), host=host.index, hosts=len(self.hosts))
                except (OSError, ValueError, ClientError, BotoCoreError) as error:
                    return failed(f"ClientError: Data download failed for channel {source.name}: {error}")
        return None

    def _go_on(self, phase: str, message: str) -> None:
        """The next phase, unless the job is already stopping."""
        with self._lock:
            if self.status == "InProgress":
                self._enter(phase, message)

    def _input_mode(self, channel: Mapping[str, Any]) -> str:
        mode: str = channel.get("InputMode", self.request["AlgorithmSpecification"]["TrainingInputMode"])
        return mode

    def _host_input(self) -> HostInput:
        request = self.request
        return HostInput(
            job_name=self.name,
            job_arn=self.arn,
            hosts=len(self.hosts),
            instance_type=request["ResourceConfig"]["InstanceType"],
            hyperparameters=request.get("HyperParameters", {}),
            channels={
                channel["ChannelName"]: {
                    "TrainingInputMode": self._input_mode(channel),
                    "S3DistributionType": channel["DataSource"]["S3DataSource"].get("S3DataDistributionType", "FullyReplicated"),
                    "RecordWrapperType": channel.get("RecordWrapperType", "None"),
                }
                for channel in request.get("InputDataConfig", [])
            },
            environment=request.get("Environment", {}),
        )

    def _train(self) -> Ending:
        self._go_on("Training", "Training image started")
        algorithm = self.request["AlgorithmSpecification"]
        command = [*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", [])]
        port_base, ports = reserve_ports(len(self.hosts))
        with ports:
            for host in self.hosts:
                with self._lock:
                    if self._closing:
                        return STOPPED
                    host.start(command, self._host_input(), port_base)
                threading.Thread(target=self._report_end, args=(host,), daemon=True).start()
            return self._follow_hosts()

    def _report_end(self, host: Host) -> None:
        host.wait()
        self._events.put(host)

    def _follow_hosts(self) -> Ending:
        """Wait until all have ended well, or one has not, or time is up, or someone asks to stop."""
        assert self._started is not None
        left_s = self._started + self.request["StoppingCondition"]["MaxRuntimeInSeconds"] - time.time()
        deadline = time.monotonic() + left_s
        running = len(self.hosts)
        while running:
            try:
                host = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._end_hosts()
                return TIMED_OUT
            if self._closing or host is None:
                self._end_hosts()
                return STOPPED
            running -= 1
            if code := host.wait():
                ending = failed(f"AlgorithmError: {self._failure_text(host, code, before=time.time())}")
                self._end_hosts()
                return ending
        return COMPLETED

    def _failure_text(self, first: Host, code: int, *, before: float) -> str:
        """The earliest output/failure; without one, how the first host to fail ended. Later files are consequences."""
        written = [(host.failure.stat().st_mtime, host) for host in self.hosts if host.failure.is_file()]
        in_time = [(when, host.index, host) for when, host in written if when <= before]
        if in_time and (text := min(in_time)[2].failure.read_text(errors="replace").strip()):
            return text
        if code > 128 and code - 128 in set(signal.Signals):
            return f"{first.name} was killed by signal {code - 128} ({signal.Signals(code - 128).name}) and left no output/failure"
        how = f"exit code {code}"
        lines = first.log.read_text(errors="replace").strip().splitlines()
        return f"{first.name} ended with {how} and no output/failure; its last line: {lines[-1] if lines else '(none)'}"

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

    def _upload(self) -> Ending | None:
        """The first host's model, and every host's output/data, of which the first host's files win."""
        try:
            self._upload_artifacts()
        except (OSError, ClientError, BotoCoreError, Boto3Error) as error:
            return failed(f"ClientError: Artifact upload failed: {error}")
        return None

    def _upload_artifacts(self) -> None:
        self._go_on("Uploading", "Uploading generated training model")
        folder = f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"
        if upload_tar([self.hosts[0].model], f"{folder}/model.tar.gz"):
            with self._lock:
                self._model_uri = f"{folder}/model.tar.gz"
            shutil.rmtree(self.hosts[0].model)  # the artifact is the model now; two copies of it are one too many
        upload_tar([host.output_data for host in self.hosts], f"{folder}/output.tar.gz")
