"""A training job of the local endpoint: /opt/ml as training containers know it, and the two archives that it leaves."""

import re
import shutil
import time
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from components.images import TRAINING as TRAINING_IMAGE
from components.job_kinds import TRAINING
from components.plan_jobs import ENTRYPOINT
from pipelines.local.endings import Ending, exit_text
from pipelines.local.hosts import Host, Program, host_name
from pipelines.local.jobs import Job
from pipelines.local.machines import Machines
from pipelines.local.transfers import ChannelSource, restore_folder, upload_files, upload_tar

# Of a spot second, what is billed; the service's own share changes with the market.
SPOT_PRICE = 0.3
FOLDERS = ("input/data", "model", "output/data", "checkpoints")


class TrainingJob(Job):
    """A validated CreateTrainingJob request."""

    kind = TRAINING
    carried_out = frozenset(
        {
            "TrainingJobName",
            "HyperParameters",
            "AlgorithmSpecification",
            "RoleArn",
            "InputDataConfig",
            "OutputDataConfig",
            "ResourceConfig",
            "StoppingCondition",
            "Tags",
            "Environment",
            "EnableManagedSpotTraining",
            "CheckpointConfig",
            "EnableNetworkIsolation",
            "EnableInterContainerTrafficEncryption",
        }
    )

    def __init__(self, request: Mapping[str, Any], arn: str, folder: Path, machines: Machines) -> None:
        super().__init__(_with_chosen_type(request, machines.lacking), arn, folder, machines)
        self._model_uri = ""
        self._metrics: list[dict[str, Any]] = []

    @staticmethod
    def cluster(request: Mapping[str, Any]) -> Mapping[str, Any]:
        cluster: Mapping[str, Any] = request["ResourceConfig"]
        preferences = cluster.get("InstancePreferences")
        if not preferences:
            return cluster
        chosen = cluster.get("SelectedInstanceType", preferences[0]["InstanceType"])
        counts = {each["InstanceType"]: each.get("InstanceCount", cluster.get("InstanceCount", 0)) for each in preferences}
        return {**cluster, "InstanceType": chosen, "InstanceCount": counts[chosen]}

    @staticmethod
    def refusal(request: Mapping[str, Any]) -> str | None:
        algorithm = request["AlgorithmSpecification"]
        if not _command(algorithm):
            return "the entrypoint of an image that is not ctrflow's: set AlgorithmSpecification.ContainerEntrypoint"
        for channel in request.get("InputDataConfig", []):
            source = channel["DataSource"].get("S3DataSource")
            if source is None or source["S3DataType"] not in ("S3Prefix", "ManifestFile"):
                return f"channel {channel['ChannelName']}: only S3DataSource with S3DataType S3Prefix or ManifestFile"
            if channel.get("RecordWrapperType", "None") != "None" or channel.get("CompressionType", "None") != "None":
                return f"channel {channel['ChannelName']}: RecordWrapperType or CompressionType"
            if not source["S3Uri"].startswith(("s3://", "file:///")):
                return f"channel {channel['ChannelName']}: {source['S3Uri']}"
        return next(_refusals(request), None)

    def describe(self) -> dict[str, Any]:
        with self._lock:
            description = self._described() | {
                "SecondaryStatus": self.secondary,
                "SecondaryStatusTransitions": [dict(transition) for transition in self._transitions],
                "EnableNetworkIsolation": False,
                "EnableInterContainerTrafficEncryption": False,
                "EnableManagedSpotTraining": self._on_spot,
            }
            if self._started is not None and self._ended is not None:
                seconds = max(1, round(self._ended - self._started))
                billable = max(1, round(seconds * SPOT_PRICE)) if self._on_spot else seconds
                description |= {"TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": billable}
                if "KeepAlivePeriodInSeconds" in self.request["ResourceConfig"]:  # hosts start at once here, so none is kept
                    description["WarmPoolStatus"] = {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0}
            if self._metrics:
                description["FinalMetricDataList"] = list(self._metrics)
            if self._model_uri:
                description["ModelArtifacts"] = {"S3ModelArtifacts": self._model_uri}
            return description

    @property
    def _on_spot(self) -> bool:
        return bool(self.request.get("EnableManagedSpotTraining", False))

    def interrupt(self) -> None:
        """Raises ValueError for a job that is not on spot instances: nobody takes others away."""
        if not self._on_spot:
            raise ValueError(f"{self.name} is not on spot instances")
        super().interrupt()

    def _keep_checkpoints(self) -> None:
        """The first host's files win: all hosts share the place, so only one should write."""
        if uri := self.request.get("CheckpointConfig", {}).get("S3Uri"):
            for host in reversed(self.hosts):
                upload_files(host.base / "checkpoints", uri)

    def _lay_out(self, host: Host) -> None:
        resources = {
            "current_host": host.name,
            "current_instance_type": self.cluster(self.request)["InstanceType"],
            "hosts": [host_name(index) for index in range(len(self.hosts))],
            "network_interface_name": "lo",
        }
        channels = {
            channel["ChannelName"]: {
                "TrainingInputMode": self._input_mode(channel),
                "S3DistributionType": channel["DataSource"]["S3DataSource"].get("S3DataDistributionType", "FullyReplicated"),
                "RecordWrapperType": channel.get("RecordWrapperType", "None"),
            }
            for channel in self.request.get("InputDataConfig", [])
        }
        host.prepare(
            FOLDERS,
            {
                "input/config/resourceconfig.json": resources,
                "input/config/hyperparameters.json": self.request.get("HyperParameters", {}),
                "input/config/inputdataconfig.json": channels,
            },
        )
        if uri := self.request.get("CheckpointConfig", {}).get("S3Uri"):
            restore_folder(uri, host.base / "checkpoints")

    def _input_mode(self, channel: Mapping[str, Any]) -> str:
        mode: str = channel.get("InputMode", self.request["AlgorithmSpecification"]["TrainingInputMode"])
        return mode

    def _inputs(self) -> list[tuple[ChannelSource, str]]:
        inputs = []
        for channel in self.request.get("InputDataConfig", []):
            data = channel["DataSource"]["S3DataSource"]
            source = ChannelSource(
                name=f"channel {channel['ChannelName']}",
                uri=data["S3Uri"],
                input_mode=self._input_mode(channel),
                distribution=data.get("S3DataDistributionType", "FullyReplicated"),
                listed=data["S3DataType"] == "ManifestFile",
            )
            inputs.append((source, f"input/data/{channel['ChannelName']}"))
        return inputs

    def _program(self, host: Host) -> Program:
        algorithm = self.request["AlgorithmSpecification"]
        named = {"TRAINING_JOB_NAME": self.name, "TRAINING_JOB_ARN": self.arn}
        return Program(
            command=_command(algorithm),
            environment={**self.request.get("Environment", {}), **named},
            hosts=len(self.hosts),
        )

    def _failure_text(self, first: Host, code: int) -> str:
        """The earliest output/failure; without one, how the first host to fail ended. Later files are consequences."""
        before, written = time.time(), [(host.base / "output" / "failure", host.index) for host in self.hosts]
        in_time = [(path.stat().st_mtime, index, path) for path, index in written if path.is_file()]
        in_time = [each for each in in_time if each[0] <= before]
        if in_time and (text := min(in_time)[2].read_text(errors="replace").strip()):
            return text
        return exit_text(first, code, lacks="no output/failure")

    def _upload(self, ending: Ending) -> None:
        """The first host's model, and every host's output/data, of which the first host's files win; also of a stopped job."""
        self._go_on("Uploading", "Uploading generated training model")
        with self._lock:
            self._metrics = list(self._last_values())
        folder = f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"
        model = self.hosts[0].base / "model"
        if upload_tar([model], f"{folder}/model.tar.gz"):
            with self._lock:
                self._model_uri = f"{folder}/model.tar.gz"
            shutil.rmtree(model)  # the artifact is the model now; two copies of it are one too many
        upload_tar([host.base / "output" / "data" for host in self.hosts], f"{folder}/output.tar.gz")

    def _last_values(self) -> Iterator[dict[str, Any]]:
        """What the request's metrics find last in the logs."""
        logs = "".join(host.log.read_text(errors="replace") for host in self.all_hosts())
        for metric in self.request["AlgorithmSpecification"].get("MetricDefinitions", []):
            if found := re.findall(metric["Regex"], logs):
                yield {"MetricName": metric["Name"], "Value": float(found[-1]), "Timestamp": time.time()}


def _with_chosen_type(request: Mapping[str, Any], lacking: Set[str]) -> Mapping[str, Any]:
    """Of InstancePreferences the first of which there are machines; with none of any, the last one lacks them."""
    cluster = request["ResourceConfig"]
    types = [each["InstanceType"] for each in cluster.get("InstancePreferences", [])]
    if not types:
        return request
    chosen = next((each for each in types if each not in lacking), types[-1])
    return {**request, "ResourceConfig": {**cluster, "SelectedInstanceType": chosen}}


def _command(algorithm: Mapping[str, Any]) -> list[str]:
    """What runs: the entrypoint of the request, or else that of our own image; empty for another image, which is not pulled."""
    given = [*algorithm.get("ContainerEntrypoint", []), *algorithm.get("ContainerArguments", [])]
    ours = TRAINING_IMAGE.partition(":")[0] in algorithm.get("TrainingImage", "")
    return given or ([*ENTRYPOINT] if ours else [])


def _refusals(request: Mapping[str, Any]) -> Iterator[str]:
    if request.get("EnableNetworkIsolation") or request.get("EnableInterContainerTrafficEncryption"):
        yield "network isolation, or encryption between hosts"
    if "KmsKeyId" in request["OutputDataConfig"] or "VolumeKmsKeyId" in request["ResourceConfig"]:
        yield "encryption with a key"
    checkpoints = request.get("CheckpointConfig", {})
    if checkpoints.get("LocalPath", "/opt/ml/checkpoints").rstrip("/") != "/opt/ml/checkpoints":
        yield f"CheckpointConfig.LocalPath {checkpoints['LocalPath']}: only /opt/ml/checkpoints"
    spot, limits = request.get("EnableManagedSpotTraining", False), request.get("StoppingCondition", {})
    if spot and limits.get("MaxWaitTimeInSeconds", 0) < limits.get("MaxRuntimeInSeconds", 1):
        yield "spot instances whose MaxWaitTimeInSeconds is below MaxRuntimeInSeconds"
    if not spot and "MaxWaitTimeInSeconds" in limits:
        yield "MaxWaitTimeInSeconds without spot instances"
    if spot and request["ResourceConfig"].keys() & {"InstancePreferences", "KeepAlivePeriodInSeconds"}:
        yield "spot instances with InstancePreferences or KeepAlivePeriodInSeconds"
