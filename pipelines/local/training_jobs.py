"""A training job of the local endpoint: /opt/ml as training containers know it, and the two archives that it leaves."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.job_kinds import TRAINING
from pipelines.local.hosts import Host, Program, host_name
from pipelines.local.jobs import Ending, Job, exit_text
from pipelines.local.transfers import ChannelSource, upload_tar

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
        }
    )

    def __init__(self, request: Mapping[str, Any], arn: str, folder: Path, *, stop_grace_s: float) -> None:
        super().__init__(request, arn, folder, stop_grace_s=stop_grace_s)
        self._model_uri = ""

    @staticmethod
    def cluster(request: Mapping[str, Any]) -> Mapping[str, Any]:
        cluster: Mapping[str, Any] = request["ResourceConfig"]
        return cluster

    @staticmethod
    def refusal(request: Mapping[str, Any]) -> str | None:
        algorithm = request["AlgorithmSpecification"]
        if not algorithm.get("ContainerEntrypoint"):
            return "an image's own entrypoint: set AlgorithmSpecification.ContainerEntrypoint"
        for channel in request.get("InputDataConfig", []):
            source = channel["DataSource"].get("S3DataSource")
            if source is None or source["S3DataType"] != "S3Prefix":
                return f"channel {channel['ChannelName']}: only S3DataSource with S3DataType S3Prefix"
            if channel.get("InputMode", algorithm["TrainingInputMode"]) == "Pipe":
                return f"channel {channel['ChannelName']}: Pipe mode"
            if not source["S3Uri"].startswith(("s3://", "file:///")):
                return f"channel {channel['ChannelName']}: {source['S3Uri']}"
        return None

    def describe(self) -> dict[str, Any]:
        with self._lock:
            description = self._described() | {
                "SecondaryStatus": self.secondary,
                "SecondaryStatusTransitions": [dict(transition) for transition in self._transitions],
                "EnableNetworkIsolation": False,
                "EnableInterContainerTrafficEncryption": False,
                "EnableManagedSpotTraining": False,
            }
            if self._started is not None and self._ended is not None:
                seconds = max(1, round(self._ended - self._started))
                description |= {"TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": seconds}
            if self._model_uri:
                description["ModelArtifacts"] = {"S3ModelArtifacts": self._model_uri}
            return description

    def _lay_out(self, host: Host) -> None:
        resources = {
            "current_host": host.name,
            "current_instance_type": self.request["ResourceConfig"]["InstanceType"],
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
            )
            inputs.append((source, f"input/data/{channel['ChannelName']}"))
        return inputs

    def _program(self, host: Host) -> Program:
        algorithm = self.request["AlgorithmSpecification"]
        named = {"TRAINING_JOB_NAME": self.name, "TRAINING_JOB_ARN": self.arn}
        return Program(
            command=[*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", [])],
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
        folder = f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"
        model = self.hosts[0].base / "model"
        if upload_tar([model], f"{folder}/model.tar.gz"):
            with self._lock:
                self._model_uri = f"{folder}/model.tar.gz"
            shutil.rmtree(model)  # the artifact is the model now; two copies of it are one too many
        upload_tar([host.base / "output" / "data" for host in self.hosts], f"{folder}/output.tar.gz")
