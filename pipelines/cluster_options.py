"""Options that say where Kubeflow Pipelines is and who asks; environment variables are those of KFP's own command line."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pipelines.cluster import KubeflowPipelines
    from pipelines.recipe import Recipe

Command = TypeVar("Command", bound=Callable[..., Any])


def cluster_options(command: Command) -> Command:
    """--endpoint and who asks."""
    for option in (
        click.option("--cookies", envvar="KFP_COOKIES", default="", show_default=False, help="of a browser that is signed in"),
        click.option("--existing-token", envvar="KFP_EXISTING_TOKEN", default="", show_default=False, help="a bearer token"),
        click.option("-n", "--kfp-namespace", envvar="KFP_NAMESPACE", default="", help="of a multi-user Kubeflow"),
        click.option("--endpoint", envvar="KFP_ENDPOINT", default="", help="of Kubeflow Pipelines; else the recipe's or KFP's own"),
    ):
        command = option(command)
    return command


def connect(access: dict[str, str], recipe: "Recipe | None" = None) -> "KubeflowPipelines":
    """Kubeflow Pipelines, as these options and a recipe say."""
    from pipelines.cluster import Access, KubeflowPipelines

    cluster = recipe.cluster if recipe else None
    return KubeflowPipelines(
        Access(
            host=access["endpoint"] or (cluster.host if cluster else ""),
            namespace=access["kfp_namespace"] or (cluster.namespace if cluster else ""),
            existing_token=access["existing_token"],
            cookies=access["cookies"],
        )
    )
