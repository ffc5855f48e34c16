"""Options of a step that may run elsewhere: `--on sagemaker`, and where and as whom it runs there."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from components.errors import InvalidConfig
from components.images import STEPS

if TYPE_CHECKING:  # boto3 takes a while to import, which `ctrflow --help` need not wait for
    from components.preprocess.config import PreprocessConfig

Command = TypeVar("Command", bound=Callable[..., Any])
# Options that mean nothing on this machine.
_MACHINES = ("image", "role", "instance_type", "instance_count", "spark_code", "spark_image")
ELSEWHERE = (*_MACHINES, "volume_gb", "max_hours", "subnet", "security_group", "kms_key", "run_id")


class FolderOrUri(click.Path):
    """A folder of this machine as a Path, or a URI as it is."""

    name = "folder or uri"

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in str(value) else super().convert(value, param, ctx)


def sagemaker_options(command: Command) -> Command:
    """Where the step runs; `place` is "here" or "sagemaker"."""
    for option in (
        click.option("--run-id", default="", help="asked with it again, the job of an earlier try is found; default: a new one"),
        click.option("--kms-key", default="", help="encrypts the dataset and the job's disk"),
        click.option("--security-group", multiple=True, help="of --subnet; may be given several times"),
        click.option("--subnet", multiple=True, help="of your VPC; may be given several times"),
        click.option("--max-hours", type=click.FloatRange(min=0.01), default=24.0, help="then the job is stopped"),
        click.option("--volume-gb", type=int, default=100, help="disk: the input, 12 + 8 F bytes a row of F fields, the dataset"),
        click.option("--spark-image", default="", help="default: AWS's Spark container of the region"),
        click.option("--spark-code", default="", help="with --engine spark: prefix in S3 that holds wheels of ctrflow and pyarrow"),
        click.option("--instance-count", type=click.IntRange(min=1), default=1, help="with --engine spark"),
        click.option("--instance-type", default="ml.m5.4xlarge"),
        click.option("--role", default="", help="ARN of the role that the job works as; needed"),
        click.option("--image", default=STEPS, help="the steps image in your ECR; not with --engine spark"),
        click.option(
            "--on",
            "place",
            type=click.Choice(["here", "sagemaker"]),
            default="here",
            help="sagemaker: as a Processing job, with INPUTS and OUT in s3://; the options below say where and as whom",
        ),
    ):
        command = option(command)
    return command


def refuse_options_of_elsewhere(ctx: click.Context) -> None:
    """On this machine they would be ignored."""
    given = [name for name in ELSEWHERE if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT]
    if given:
        raise InvalidConfig(f"{', '.join(map(_option, given))}: of jobs; say --on sagemaker, or leave out")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def preprocess_there(config: "PreprocessConfig", inputs: tuple[str, ...], out: str, engine: Any, options: Mapping[str, Any]) -> str:
    """Run preprocess as a job that these options place; what it had to say at its end.

    Raises:
        WorkflowError: as `preprocess_on_sagemaker`.
    """
    from components.clients import sagemaker_client
    from components.job_requests import Network
    from components.preprocess.processing_job import Placement, preprocess_on_sagemaker
    from components.spark_image import spark_image
    from pipelines.runs import new_run_id

    if not options["role"]:
        raise InvalidConfig("--role: a job needs one; give the ARN of a role that may read INPUTS and write OUT")
    network = Network(subnets=options["subnet"], security_groups=options["security_group"])
    client = sagemaker_client()
    image = options["image"]
    if engine == "spark":
        image = options["spark_image"] or spark_image(client.meta.region_name)
    where = Placement(
        image=image,
        engine=engine,
        instance_count=options["instance_count"],
        code_uri=options["spark_code"],
        role_arn=options["role"],
        instance_type=options["instance_type"],
        run_id=options["run_id"] or new_run_id(),
        volume_gb=options["volume_gb"],
        max_runtime_s=round(options["max_hours"] * 3600),
        network=network if network.subnets else None,
        kms_key=options["kms_key"],
    )
    return preprocess_on_sagemaker(config, inputs, out, where, client).exit_message
