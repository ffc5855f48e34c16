"""The pipeline as KFP's YAML, and as objects of Kubernetes."""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.images import STEPS, TRAINING
from components.storage import write_text_atomic

if TYPE_CHECKING:
    from pipelines.recipe import Recipe

PIPELINE = "retrain"


def compile_retrain(out: Path, recipe: "Recipe | None" = None, *, images: Mapping[str, str] | None = None) -> str:
    """Write the compiled pipeline, whole or not at all, with a recipe's settings as its defaults; the digest of its text.

    Args:
        images: what images are called instead of the names that this version has; None: as the recipe says.
    """
    text = _compiled(cluster_images(recipe) if images is None else images, cluster_defaults(recipe) if recipe else {})
    write_text_atomic(out, text)
    return digest_of(text)


def write_manifests(out: Path, recipe: "Recipe | None" = None, namespace: str = "") -> str:
    """Write Pipeline and PipelineVersion, named after the digest of the pipeline's text, which is returned."""
    from kfp.compiler.compiler_utils import KubernetesManifestOptions

    defaults = cluster_defaults(recipe) if recipe else {}
    images = cluster_images(recipe)
    digest = digest_of(_compiled(images, defaults))
    options = KubernetesManifestOptions(
        pipeline_name=PIPELINE,
        pipeline_version_name=version_name(digest),
        namespace=namespace or (recipe.cluster.namespace if recipe else "") or None,
        include_pipeline_manifest=True,
    )
    text = _compiled(images, defaults, kubernetes_manifest_format=True, kubernetes_manifest_options=options)
    write_text_atomic(out, text)
    return digest


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def version_name(digest: str) -> str:
    """The pipeline's version of that digest; equal code has equal names on every machine."""
    return f"{PIPELINE}-{digest}"


def cluster_parameters(recipe: "Recipe") -> dict[str, Any]:
    """The parameters of a run on a cluster."""
    where = recipe.cluster
    jobs = {
        "image": where.training_image or TRAINING,
        "instance_type": where.sagemaker.instance_type,
        "output_uri": where.sagemaker.output_uri,
    }
    return {
        **recipe.parameters(),
        "inputs": json.dumps(list(recipe.data)),
        "jobs": json.dumps(jobs),
        "store": where.store,
        "role": where.sagemaker.role,
        "region": where.sagemaker.region,
    }


def cluster_defaults(recipe: "Recipe") -> dict[str, Any]:
    """Parameters that the recipe says; what it leaves open stays without a default, and must be given to a run."""
    return {name: value for name, value in cluster_parameters(recipe).items() if value not in ("", "[]")}


def cluster_images(recipe: "Recipe | None") -> dict[str, str]:
    """What a recipe calls the images, by the names that this version has."""
    where = recipe.cluster if recipe else None
    named = {STEPS: where.steps_image, TRAINING: where.training_image} if where else {}
    return {name: image for name, image in named.items() if image}


def _compiled(images: Mapping[str, str], defaults: dict[str, Any], **format: Any) -> str:
    """KFP's text for the pipeline. A warning is an error: it is about a graph that does not do what it says."""
    from kfp import compiler

    from pipelines.retrain import retrain

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        made = Path(folder) / "retrain.yaml"
        compiler.Compiler().compile(retrain, str(made), pipeline_parameters=defaults, **format)
        text = made.read_text(encoding="utf-8")
    for name, image in images.items():
        text = text.replace(f"image: {name}\n", f"image: {image}\n")
    return text
