"""The step inside a Processing job's container: `python -m components.preprocess.in_container`.

    /opt/ml/processing/input/<n>/         input n as processing_job.py ordered it, laid out by the service
                       input/transform/   the transform that was named, if one was
                       output/<name>/     the dataset
                       output/<name>.html its report
    /opt/ml/output/message                one line for ExitMessage: how many rows, or what was wrong

What is to be done stands in environment variables of the job, cut to the length that the API allows: nothing else of a request is
passed through every container's own start-up unchanged. Sources, warnings and errors name the URIs and not these folders.

In AWS's Spark container smspark-submit starts this program on the first host, and Spark's workers on all hosts write shards to the
disk of their host. Then each host calls it with the argument `gather`, and the service uploads what each has to one place.
"""

import glob
import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from components.documents import settings_of
from components.errors import InvalidConfig, InvalidRecords, WorkflowError
from components.manifest import Manifest, write_manifest
from components.preprocess.config import PreprocessConfig
from components.preprocess.report import dataset_report
from components.preprocess.spark.session import preprocess_on_spark
from components.preprocess.step import preprocess
from components.reports import write_report
from components.storage import write_text_atomic
from components.termination import sigterm_as_exit

VARIABLE = "CTRFLOW_PREPROCESS_"
# Of the API, ProcessingEnvironmentValue; and of its 100 variables some are left to others.
VALUE_CHARACTERS, MOST_VARIABLES = 256, 90
CONTAINER = "/opt/ml"
INPUT, OUTPUT = "processing/input", "processing/output"


Engine = Literal["processes", "spark"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the container is asked for. `inputs` and the settings' `transform` are URIs; those of folders end with a slash."""

    inputs: tuple[str, ...]
    name: str
    settings: PreprocessConfig
    engine: Engine = "processes"


def task_environment(task: Task) -> dict[str, str]:
    """The task as environment variables of a job.

    Raises:
        InvalidConfig: it is longer than they can hold.
    """
    text, most = json.dumps(asdict(task)), MOST_VARIABLES * VALUE_CHARACTERS
    if len(text) > most:
        raise InvalidConfig(
            f"inputs and settings take {len(text)} characters and a job carries {most}; name fewer inputs or columns"
        )
    pieces = [text[start : start + VALUE_CHARACTERS] for start in range(0, len(text), VALUE_CHARACTERS)]
    return {f"{VARIABLE}{index}": piece for index, piece in enumerate(pieces)}


def read_task(environment: Mapping[str, str]) -> Task:
    """The task that is in the environment.

    Raises:
        InvalidConfig: none is there, or not one that this version understands.
    """
    pieces: list[str] = []
    while (piece := environment.get(f"{VARIABLE}{len(pieces)}")) is not None:
        pieces.append(piece)
    if not pieces:
        raise InvalidConfig(f"{VARIABLE}0 is not set; start this program with ctrflow preprocess --on sagemaker")
    try:
        document = json.loads("".join(pieces))
    except ValueError as error:
        raise InvalidConfig(f"{VARIABLE}*: not JSON ({error}); start the job again") from error
    return settings_of(Task, document, f"{VARIABLE}*")


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """An input as the service laid it out."""

    uri: str
    folder: Path

    @property
    def argument(self) -> str:
        """What the step is to read: the object, or a pattern of all files.

        Raises:
            InvalidRecords: an object was named, and its name is the beginning of other objects' names, or that of a folder.
        """
        if self.uri.endswith("/"):
            return f"{glob.escape(str(self.folder))}/**/*"
        base = self.uri.rpartition("/")[2]
        name = unquote(base) if self.uri.startswith("file://") else base
        found = sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())
        if found != [name]:
            raise InvalidRecords(
                f"{self.uri}: not one object but {len(found)}, such as {found[0]}; end it with / to mean all below"
            )
        return str(self.folder / name)

    def named(self, text: str) -> str:
        """The text with this input's own name where it names a file of its folder."""
        above = self.uri[: self.uri.rfind("/") + 1]
        return text.replace(f"{self.folder}/", unquote(urlsplit(above).path) if above.startswith("file://") else above)


def carry_out(task: Task, base: Path, *, master: str = "") -> Manifest:
    """The dataset and its report below `base`.

    Args:
        master: of Spark; empty for what smspark-submit says.
    Raises:
        WorkflowError: as the step, with the names that the user gave.
    """
    deliveries = [Delivery(uri=uri, folder=base / INPUT / str(index)) for index, uri in enumerate(task.inputs)]
    out, config = base / OUTPUT / task.name, task.settings
    report = out.with_name(f"{out.name}.html")
    if config.transform:
        deliveries.append(Delivery(uri=config.transform, folder=base / INPUT / "transform"))
    try:
        arguments = [each.argument for each in deliveries]
        if config.transform:
            config = replace(config, transform=arguments.pop())
        if task.engine == "spark":
            manifest = preprocess_on_spark(config, arguments, out, report, master, own_disks=True)
        else:
            manifest = preprocess(config, arguments, out, report)
    except WorkflowError as error:
        raise type(error)(_named(deliveries, str(error))) from error
    sources = tuple(replace(source, path=_named(deliveries, source.path)) for source in manifest.sources)
    warnings = tuple(_named(deliveries, warning) for warning in manifest.warnings)
    manifest = replace(manifest, sources=sources, warnings=warnings)
    write_manifest(out, manifest)
    write_report(report, dataset_report(manifest))
    return manifest


def _named(deliveries: Sequence[Delivery], text: str) -> str:
    for each in deliveries:
        text = each.named(text)
    return text


def gather_shards(out: Path) -> None:
    """Put shards that Spark's workers wrote on this host where the driver's host has its own, in the dataset's folder.

    The driver has renamed the folder in which it made the dataset; on other hosts it still has its first name, `.<name>.` and more.
    """
    for work in out.parent.glob(f".{glob.escape(out.name)}.*"):
        for shard in work.glob("*/part-*"):
            target = out / shard.relative_to(work)
            target.parent.mkdir(parents=True, exist_ok=True)
            shard.rename(target)
        shutil.rmtree(work)


def main(arguments: Sequence[str]) -> int:
    """Carry out the task of this container, or, with the argument `gather`, its end on a host of Spark; the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    base = Path(os.environ.get("SAGEMAKER_BASE_DIR", CONTAINER))
    if arguments == ["gather"]:
        gather_shards(base / OUTPUT / read_task(os.environ).name)
        return 0
    try:
        with sigterm_as_exit():
            manifest = carry_out(read_task(os.environ), base)
    except WorkflowError as error:
        code, message = 1, str(error)
        print(f"ctrflow: {message}", file=sys.stderr)
    else:
        code, message = 0, f"{manifest.train.examples:,} rows to train, {manifest.validation.examples:,} to validate"
    write_text_atomic(base / "output" / "message", message)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
