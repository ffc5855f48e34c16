"""The step as a SageMaker Processing job: raw logs in S3 in, a dataset in S3 out; in_container.py does the work there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from components.clients import is_aws
from components.errors import InvalidConfig
from components.job_requests import Network
from components.preprocess.columns import read_columns
from components.preprocess.config import PreprocessConfig
from components.preprocess.in_container import CONTAINER, INPUT, OUTPUT, Engine, Task, task_environment
from components.preprocess.settings import columns_text
from components.processing_jobs import (
    FinishedProcessingJob,
    ProcessingInput,
    ProcessingJob,
    ProcessingOutput,
    run_processing_job,
)

PROGRAM = ("python3", "-m", "components.preprocess.in_container")
CODE = f"{CONTAINER}/{INPUT}/code"
# What every host of AWS's Spark container runs. It has Python 3.12, numpy and Spark; pyarrow and this code come as wheels.
# smspark-submit runs the program on the first host, and ends on the others when that has ended.
SPARK_PROGRAM = (
    "bash",
    "-c",
    f"python3 -m pip install --no-deps --ignore-requires-python {CODE}/*.whl"
    " && smspark-submit $(python3 -c 'import components.preprocess.in_container as s; print(s.__file__)')"
    " && python3 -m components.preprocess.in_container gather",
)
# Seconds between two looks at the job: the service counts calls, an endpoint on this machine does not.
POLL_S, LOCAL_POLL_S = 15.0, 0.2


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where and as whom the job runs. The disk holds the input, the rows of it as scratch, and the dataset.

    With engine spark `image` is AWS's Spark container, and `code_uri` a prefix in S3 with the wheels that it lacks.
    """

    image: str
    role_arn: str
    instance_type: str
    run_id: str
    engine: Engine = "processes"
    instance_count: int = 1
    code_uri: str = ""
    volume_gb: int = 100
    max_runtime_s: int = 24 * 3600
    network: Network | None = None
    kms_key: str = ""

    def __post_init__(self) -> None:
        if self.engine == "processes" and (self.instance_count != 1 or self.code_uri):
            raise InvalidConfig(
                f"{self.instance_count} machines, code {self.code_uri!r}: for Spark; say --engine spark, or leave out"
            )
        if self.engine == "spark" and not self.code_uri.endswith("/"):
            raise InvalidConfig(f"code {self.code_uri!r}: Spark's hosts need a prefix in S3 with wheels, which ends with /")


def preprocess_on_sagemaker(
    config: PreprocessConfig, inputs: Sequence[str], out: str, where: Placement, client: Any
) -> FinishedProcessingJob:
    """Run the step as a job, to its end. Asking again with the same run id adopts the job that an earlier try has started.

    Args:
        inputs: s3://bucket/key of one object, or s3://bucket/prefix/ for all objects below it, in folders too.
        out: s3://bucket/.../name of the dataset; its report is put beside it as name.html. Objects that are there already are
            replaced by those of the same name and otherwise left.
        client: from `sagemaker_client()`. At the local endpoint files and folders of this machine are taken as well.
    Raises:
        InvalidConfig: what cannot be sent.
        ProcessingJobFailed: with the one line that the step had to say, as `run_processing_job`.
    """
    local = not is_aws(client.meta.endpoint_url)
    if local and where.engine == "spark":
        raise InvalidConfig("AWS's Spark container does not run at the local endpoint; leave out --on sagemaker to run Spark here")
    if not local and ".dkr.ecr." not in where.image:
        raise InvalidConfig(f"image {where.image}: processing jobs take images of ECR only; push it there and give its whole name")
    uris = [location(each, local=local) for each in inputs]
    transform = location(config.transform, local=local) if config.transform else ""
    settings = replace(config, transform=transform)
    job = preprocess_job(settings, uris, location(out, local=local).rstrip("/"), where)
    return run_processing_job(job, client, poll_s=LOCAL_POLL_S if local else POLL_S)


def location(text: str, *, local: bool) -> str:
    """A URI that the job reaches; of a folder of this machine it ends with a slash.

    Raises:
        InvalidConfig: nothing that a job reaches.
    """
    if "*" in text:
        raise InvalidConfig(f"{text}: a job takes whole prefixes and no patterns; name one that ends with /")
    if text.startswith("s3://") or (local and text.startswith("file:///")):
        return text
    if "://" in text or not local:
        raise InvalidConfig(f"{text}: jobs at SageMaker read and write s3:// only; copy it there first, such as with aws s3 cp")
    path = Path(text).resolve()
    return f"{path.as_uri()}/" if path.is_dir() else path.as_uri()


def preprocess_job(config: PreprocessConfig, inputs: Sequence[str], out: str, where: Placement) -> ProcessingJob:
    """The job that does it; `inputs`, `out` and the settings' transform are URIs.

    Raises:
        InvalidConfig: `out` has no name below its bucket, or inputs and settings are too many for a request.
    """
    above, _, name = out.rpartition("/")
    if not name or above.endswith(":/"):
        raise InvalidConfig(f"{out}: names no dataset; give one below the bucket, such as s3://bucket/datasets/day1")
    if config.columns:  # no other machine sees the file that it may name
        config = replace(config, columns=columns_text(read_columns(config.columns)))
    delivered = [(str(index), uri) for index, uri in enumerate(inputs)]
    if config.transform:
        delivered.append(("transform", config.transform))
    if where.engine == "spark":
        delivered.append(("code", where.code_uri))
    return ProcessingJob(
        base_name="ctrflow-preprocess",
        run_id=where.run_id,
        task="preprocess",
        image=where.image,
        entrypoint=SPARK_PROGRAM if where.engine == "spark" else PROGRAM,
        role_arn=where.role_arn,
        instance_type=where.instance_type,
        instance_count=where.instance_count,
        volume_gb=where.volume_gb,
        max_runtime_s=where.max_runtime_s,
        inputs=tuple(ProcessingInput(name=f"input-{key}", uri=uri, path=f"{CONTAINER}/{INPUT}/{key}") for key, uri in delivered),
        outputs=(ProcessingOutput(name="dataset", uri=f"{above}/", path=f"{CONTAINER}/{OUTPUT}"),),
        environment=task_environment(Task(inputs=tuple(inputs), name=name, settings=config, engine=where.engine)),
        network=where.network,
        kms_key=where.kms_key,
    )
