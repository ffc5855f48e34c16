"""A recipe sent to Kubeflow Pipelines: checked before anything is sent, then uploaded, run and followed."""

import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from components.errors import InvalidConfig, RunNotSucceeded, hint_for
from pipelines.cluster import ClusterError, KubeflowPipelines
from pipelines.compiled import PIPELINE, cluster_images, cluster_parameters, compile_retrain, version_name
from pipelines.recipe import Recipe
from pipelines.registry import check_exists

# States that a run does not leave by itself; KFP's own client waits for ever on CANCELED.
ENDED = ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED")
GOOD = ("SUCCEEDED", "SKIPPED")
# Parameter types of KFP, and what JSON must hold for them. A bool is no number, though Python says so.
TYPES: dict[str, tuple[type, ...]] = {
    "STRING": (str,),
    "NUMBER_INTEGER": (int,),
    "NUMBER_DOUBLE": (int, float),
    "BOOLEAN": (bool,),
}
NEEDED = ("cluster.pipeline_root", "cluster.store", "cluster.steps_image", "cluster.training_image")
NEEDED_OF_SAGEMAKER = ("cluster.sagemaker.role", "cluster.sagemaker.output_uri")
MOVING_TAGS = ("latest", "main", "master", "dev", "nightly", "edge", "stable")
_IMAGE = re.compile(r"(?P<name>[^\s@]+?)(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?")


@dataclass(frozen=True, kw_only=True)
class Package:
    """A checked recipe, ready to be sent: where its pipeline lies on the cluster, and the parameters of a run."""

    pipeline_id: str
    version_id: str
    version: str
    digest: str
    uploaded: bool
    parameters: Mapping[str, Any]


def check_recipe(recipe: Recipe, place: str) -> None:
    """Refuse what could not run on a cluster, before anything is sent.

    Raises:
        InvalidConfig: a setting is missing, or an image would not stay the same.
    """
    missing = [key for key in (*NEEDED, *NEEDED_OF_SAGEMAKER) if not _setting(recipe, key)]
    missing += [] if recipe.data else ["data"]
    if missing:
        raise InvalidConfig(f"{place}: {', '.join(missing)}: not set; a run on a cluster needs them")
    if not recipe.cluster.pipeline_root.startswith(("s3://", "minio://")):
        raise InvalidConfig(f"{place}: cluster.pipeline_root {recipe.cluster.pipeline_root!r}: s3://bucket/prefix is expected")
    if local := [one for one in recipe.data if "://" not in one and not one.startswith("/")]:
        raise InvalidConfig(f"{place}: data {local[0]!r}: a cluster has no such folder; give s3://... or a path that its steps see")
    for key in ("steps_image", "training_image"):
        image = getattr(recipe.cluster, key)
        check_image(image, f"{place}: cluster.{key}")
        check_exists(image, f"{place}: cluster.{key}")


def _setting(recipe: Recipe, key: str) -> Any:
    found: Any = recipe
    for name in key.split("."):
        found = getattr(found, name)
    return found


def check_image(image: str, place: str) -> None:
    """Refuse an image whose name may mean another one tomorrow: KFP's cache and its schedules go by the name.

    Raises:
        InvalidConfig: no name of an image, or neither a version nor a digest in it.
    """
    found = _IMAGE.fullmatch(image)
    if not found:
        raise InvalidConfig(f"{place} {image!r}: registry/name:version is expected")
    if not found["digest"] and (not found["tag"] or found["tag"] in MOVING_TAGS):
        raise InvalidConfig(f"{place} {image!r}: names another image tomorrow; give a version or a digest")


def check_parameters(pipeline: Path, parameters: Mapping[str, Any]) -> None:
    """Hold parameters against the compiled pipeline, as the server does only when a run begins.

    Raises:
        InvalidConfig: unknown, missing, or of another type.
    """
    document = next(yaml.safe_load_all(pipeline.read_text(encoding="utf-8")))
    known = document["root"]["inputDefinitions"]["parameters"]
    for name, value in parameters.items():
        if name not in known:
            raise InvalidConfig(f"parameter {name}: the pipeline has none of that name; {hint_for(name, known)}")
        expected = known[name]["parameterType"]
        if not isinstance(value, TYPES[expected]) or (isinstance(value, bool) and expected != "BOOLEAN"):
            raise InvalidConfig(f"parameter {name} {value!r}: {expected} is expected")
    missing = [name for name, each in known.items() if not each.get("isOptional") and name not in parameters]
    if missing:
        raise InvalidConfig(f"parameters {', '.join(missing)}: not given, and the pipeline has no defaults for them")


def send(recipe: Recipe, place: str, kubeflow: Callable[[], KubeflowPipelines]) -> tuple[KubeflowPipelines, Package]:
    """Check a recipe, and make sure that the cluster has this version of the pipeline.

    Args:
        kubeflow: connects, once everything is checked that can be checked here.
    """
    check_recipe(recipe, place)
    parameters = cluster_parameters(recipe)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "retrain.yaml"
        digest = compile_package(recipe, package)
        check_parameters(package, parameters)
        version, cluster = version_name(digest), kubeflow()
        pipeline_id, version_id, uploaded = cluster.version(PIPELINE, version, package)
    return cluster, Package(
        pipeline_id=pipeline_id, version_id=version_id, version=version, digest=digest, uploaded=uploaded, parameters=parameters
    )


def compile_package(recipe: Recipe, out: Path) -> str:
    """The pipeline as it is sent, and its digest: with the recipe's images, and no other setting of the recipe's in it."""
    return compile_retrain(out, images=cluster_images(recipe))


def submit(recipe: Recipe, cluster: KubeflowPipelines, package: Package, now: datetime | None = None) -> Any:
    """One run; what the server says of it."""
    return cluster.create_run(
        experiment_id=cluster.experiment(recipe.cluster.experiment),
        job_name=f"{recipe.name} {now or datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        params=dict(package.parameters),
        pipeline_id=package.pipeline_id,
        version_id=package.version_id,
        pipeline_root=recipe.cluster.pipeline_root,
        service_account=recipe.cluster.service_account or None,
    )


def follow(cluster: KubeflowPipelines, run_id: str, *, say: Callable[[str], None], poll_s: float, timeout_s: float) -> Any:
    """Look until a run has ended; changes of its state and of its steps are said as they are seen.

    Raises:
        RunNotSucceeded: it failed, was cancelled, or is still not at its end after `timeout_s`.
    """
    seen: dict[str, str] = {}
    deadline, misses = time.monotonic() + timeout_s, 0
    while True:
        try:
            run, misses = cluster.run(run_id), 0
        except ClusterError:
            misses += 1
            if misses > 5:  # a port-forward that breaks is back in a moment, or it is not
                raise
            time.sleep(poll_s)
            continue
        for name, state in {**steps(run), "run": run.state or "PENDING"}.items():
            if seen.get(name) != state:
                seen[name] = state
                say(f"{name}: {state}")
        if run.state in ENDED:
            check_good(run)
            return run
        if time.monotonic() > deadline:
            raise RunNotSucceeded(f"run {run_id}: still {run.state} after {timeout_s:g} s; ctrflow runs show {run_id}")
        time.sleep(poll_s)


def check_good(run: Any) -> None:
    """Refuse a run that ended otherwise than well.

    Raises:
        RunNotSucceeded: with the step that failed, and the server's reason.
    """
    failed = [f"step {name}" for name, state in steps(run).items() if state == "FAILED"]
    if run.state not in GOOD:
        why = " ".join(run.error.message.split()) if run.error and run.error.message else ""
        said = ", ".join([*failed, *filter(None, [why])])
        raise RunNotSucceeded(f"run {run.run_id}: {run.state}{f': {said}' if said else ''}; ctrflow runs logs {run.run_id}")


def steps(run: Any) -> dict[str, str]:
    """State by step, in the order in which they began. What KFP itself adds (drivers, the graph and its parts) is left out."""
    details = (run.run_details.task_details if run.run_details else None) or []
    ours = [task for task in details if task.display_name and is_step(task.display_name) and task.state]
    ours.sort(key=lambda task: str(task.start_time or task.create_time or ""))
    return {task.display_name: task.state for task in ours}


def is_step(name: str) -> bool:
    """Whether a task of a run is a step of the graph."""
    return not (name.endswith(("-driver", ".executor")) or name.startswith(("root", "exit-handler")) or name == PIPELINE)
