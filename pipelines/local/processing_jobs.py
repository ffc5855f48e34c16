"""A processing job of the local endpoint: /opt/ml as processing containers know it.

    <base>/config/processingjobconfig.json    the request
           config/resourceconfig.json         this host and all hosts
           processing/...                     inputs, laid out before the program starts, and outputs, uploaded when it has ended
           output/message                     what the program wants to say at its end: ExitMessage

There is no container whose /opt/ml could be the base, so an argument of the command that begins with /opt/ml/ is given as the
path below the base; a program that makes such paths by itself asks SAGEMAKER_BASE_DIR first.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from components.job_kinds import PROCESSING
from pipelines.local.endings import COMPLETED, REASON_CHARACTERS, Ending, exit_text
from pipelines.local.hosts import Host, Program, host_name
from pipelines.local.jobs import Job
from pipelines.local.transfers import ChannelSource, upload_files

CONTAINER = PurePosixPath("/opt/ml")
# What of S3Input and S3Output is carried out; S3InputMode File and S3UploadMode EndOfJob only.
S3_INPUT = {"S3Uri", "LocalPath", "S3DataType", "S3InputMode", "S3DataDistributionType", "S3CompressionType"}


def _base_path(path: str) -> str:
    """A path of the container as a path below the base."""
    return str(PurePosixPath(path).relative_to(CONTAINER))


def _is_allowed(path: str) -> bool:
    place = PurePosixPath(path)
    return CONTAINER / "processing" in place.parents and ".." not in place.parts


class ProcessingJob(Job):
    """A validated CreateProcessingJob request."""

    kind = PROCESSING
    carried_out = frozenset(
        {
            "ProcessingJobName",
            "AppSpecification",
            "ProcessingInputs",
            "ProcessingOutputConfig",
            "ProcessingResources",
            "StoppingCondition",
            "Environment",
            "RoleArn",
            "Tags",
        }
    )

    @staticmethod
    def cluster(request: Mapping[str, Any]) -> Mapping[str, Any]:
        cluster: Mapping[str, Any] = request["ProcessingResources"]["ClusterConfig"]
        return cluster

    @staticmethod
    def refusal(request: Mapping[str, Any]) -> str | None:
        if not request["AppSpecification"].get("ContainerEntrypoint"):
            return "an image's own entrypoint: set AppSpecification.ContainerEntrypoint"
        return next(_refusals(request), None)

    def describe(self) -> dict[str, Any]:
        with self._lock:
            message = self._exit_message() if self._ended is not None else ""
            return self._described() | ({"ExitMessage": message} if message else {})

    def _exit_message(self) -> str:
        """Of all hosts, one after the other, cut to what the API takes."""
        messages = [host.base / "output" / "message" for host in self.hosts]
        return "".join(path.read_text(errors="replace") for path in messages if path.is_file())[:REASON_CHARACTERS]

    def _lay_out(self, host: Host) -> None:
        request = {key: value for key, value in self.request.items() if key != "Tags"}
        hosts = [host_name(index) for index in range(len(self.hosts))]
        documents = {
            "config/processingjobconfig.json": {"ProcessingJobArn": self.arn, **request},
            "config/resourceconfig.json": {"current_host": host.name, "hosts": hosts},
        }
        outputs = [_base_path(output["S3Output"]["LocalPath"]) for output in self._outputs()]
        host.prepare(["processing", "output", *outputs], documents)

    def _outputs(self) -> list[dict[str, Any]]:
        outputs: list[dict[str, Any]] = self.request.get("ProcessingOutputConfig", {}).get("Outputs", [])
        return outputs

    def _inputs(self) -> list[tuple[ChannelSource, str]]:
        inputs = []
        for each in self.request.get("ProcessingInputs", []):
            given = each["S3Input"]
            source = ChannelSource(
                name=f"input {each['InputName']}",
                uri=given["S3Uri"],
                input_mode="File",
                distribution=given.get("S3DataDistributionType", "FullyReplicated"),
            )
            inputs.append((source, _base_path(given["LocalPath"])))
        return sorted(inputs, key=lambda each: each[1])  # a folder before one that lies in it

    def _program(self, host: Host) -> Program:
        application = self.request["AppSpecification"]
        command = [*application["ContainerEntrypoint"], *application.get("ContainerArguments", [])]
        below = f"{CONTAINER}/"
        return Program(
            command=[str(host.base / _base_path(each)) if each.startswith(below) else each for each in command],
            environment=self.request.get("Environment", {}),
            hosts=len(self.hosts),
        )

    def _failure_text(self, first: Host, code: int) -> str:
        return exit_text(first, code)

    def _keep_checkpoints(self) -> None:
        """Processing jobs have none."""

    def _upload(self, ending: Ending) -> None:
        """Every output of every host; nothing of a job that did not complete."""
        if ending is not COMPLETED:
            return
        for output in self._outputs():
            given = output["S3Output"]
            for host in self.hosts:
                upload_files(host.base / _base_path(given["LocalPath"]), given["S3Uri"])


def _refusals(request: Mapping[str, Any]) -> Iterator[str]:
    for each in request.get("ProcessingInputs", []):
        given, place = each.get("S3Input"), f"input {each['InputName']}"
        if given is None or each.get("AppManaged") or given["S3DataType"] != "S3Prefix" or given.keys() - S3_INPUT:
            yield f"{place}: only S3Input with S3DataType S3Prefix"
        elif given.get("S3InputMode") != "File" or given.get("S3CompressionType", "None") != "None":
            yield f"{place}: only S3InputMode File without decompression"
        elif not _is_allowed(given.get("LocalPath", "")):
            yield f"{place}: a LocalPath that is not below /opt/ml/processing/"
        elif not given["S3Uri"].startswith(("s3://", "file:///")):
            yield f"{place}: {given['S3Uri']}"
    configured = request.get("ProcessingOutputConfig", {})
    if "KmsKeyId" in configured or "VolumeKmsKeyId" in request["ProcessingResources"]["ClusterConfig"]:
        yield "encryption with a key"
    for each in configured.get("Outputs", []):
        given, place = each.get("S3Output"), f"output {each['OutputName']}"
        if given is None or each.get("AppManaged"):
            yield f"{place}: only S3Output"
        elif given["S3UploadMode"] != "EndOfJob":
            yield f"{place}: only S3UploadMode EndOfJob"
        elif not _is_allowed(given.get("LocalPath", "")):
            yield f"{place}: a LocalPath that is not below /opt/ml/processing/"
        elif not given["S3Uri"].startswith(("s3://", "file:///")):
            yield f"{place}: {given['S3Uri']}"
