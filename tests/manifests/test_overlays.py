"""manifests: every overlay renders, keeps to Kubernetes' schemas, and to what schemas do not say.

kubectl and the schemas are packages of the test extra, so that no cluster, registry or machine's own kubectl is asked.
"""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from components.images import STEPS, TRAINING
from pipelines.cli import main as ctrflow
from pipelines.recipe import read_recipe
from pipelines.submission import check_recipe

MANIFESTS = Path(__file__).parents[2] / "manifests"
FOLDERS = [MANIFESTS / "namespace", MANIFESTS / "base", *sorted((MANIFESTS / "overlays").iterdir())]
OVERLAYS = [folder.name for folder in sorted((MANIFESTS / "overlays").iterdir())]
KUBERNETES = "1.34"
# Made by hand (README.md) or by Kubeflow Pipelines; whatever else is named must be among the objects.
ELSEWHERE = {("Secret", "ctrflow-aws"), ("Secret", "mlpipeline-minio-artifact")}


@cache
def rendered(folder: Path) -> list[dict[str, Any]]:
    kubectl = Path(sys.executable).with_name("kubectl")
    made = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return list(yaml.safe_load_all(made.stdout))


def overlay(name: str) -> list[dict[str, Any]]:
    return rendered(MANIFESTS / "overlays" / name)


def named(name: str, kind: str, which: str) -> dict[str, Any]:
    (found,) = [each for each in overlay(name) if each["kind"] == kind and each["metadata"]["name"].startswith(which)]
    return found


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with an object, apart from its schema."""
    pod = document.get("spec", {}).get("template", {}).get("spec", {})
    return [problem for container in pod.get("containers", []) for problem in _of_container(container, pod)]


def _of_container(container: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    tag = container["image"].rpartition("/")[2].partition(":")[2]
    secured = container.get("securityContext", {})
    if tag in ("", "latest"):
        yield "image"
    if (
        secured.get("privileged")
        or secured.get("allowPrivilegeEscalation", True)
        or not pod.get("securityContext", {}).get("runAsNonRoot")
    ):
        yield "privileges"
    if (
        not {"cpu", "memory"} <= container.get("resources", {}).get("requests", {}).keys()
        or "memory" not in container["resources"]["limits"]
    ):
        yield "resources"


def references(node: Any) -> Iterator[tuple[str, str]]:
    """Kind and name of the objects that an object needs."""
    if isinstance(node, list):
        for each in node:
            yield from references(each)
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("configMapKeyRef", "configMapRef", "configMap"):
                yield "ConfigMap", value["name"]
            elif key in ("secretKeyRef", "secretRef"):
                yield "Secret", value["name"]
            elif key == "serviceAccountName":
                yield "ServiceAccount", value
            else:
                yield from references(value)
        if node.get("kind") == "ServiceAccount" and "metadata" not in node:
            yield "ServiceAccount", node["name"]
        if node.get("resources") in (["secrets"], ["configmaps"]):
            kind = {"secrets": "Secret", "configmaps": "ConfigMap"}[node["resources"][0]]
            yield from ((kind, name) for name in node["resourceNames"])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_object_keeps_to_the_schemas_of_kubernetes(folder: Path) -> None:
    for document in rendered(folder):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Jobs"},
        {"spec": {}},
        {"spec": {"template": {"spec": {"containers": [{"name": "x", "image": "x:1", "comand": ["x"]}]}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "x", "resources": {"limits": 3}}]}}}},
    ],
)
def test_a_broken_object_does_not(change: dict[str, Any]) -> None:
    job = named("prod", "Job", "ctrflow-schedule")
    kubernetes_validate.validate(job, KUBERNETES, strict=True)
    with pytest.raises((kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError)):
        kubernetes_validate.validate(job | change, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", OVERLAYS)
def test_images_have_versions_and_pods_no_privileges_and_bounds(name: str) -> None:
    assert {each["metadata"]["name"]: problems(each) for each in overlay(name) if problems(each)} == {}


def test_a_pod_of_defaults_has_all_these_problems() -> None:
    bad = {"spec": {"template": {"spec": {"containers": [{"image": "registry:5000/x:latest", "resources": {"limits": {}}}]}}}}
    assert problems(bad) == ["image", "privileges", "resources"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_whatever_an_object_names_is_there_or_documented(name: str) -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in overlay(name)}
    needed = {found for each in overlay(name) for found in references(each)}
    assert ("ServiceAccount", "ctrflow-submitter") in needed
    assert needed - there <= ELSEWHERE
    readme = (MANIFESTS / "README.md").read_text(encoding="utf-8")
    assert [which for _, which in needed - there if f"`{which}`" not in readme] == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_all_objects_are_in_one_namespace_and_hold_no_secret(name: str) -> None:
    assert {each["metadata"]["namespace"] for each in overlay(name)} == {"kubeflow"}
    assert "Secret" not in {each["kind"] for each in overlay(name)}


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_images_of_recipe_and_job_are_set_by_kustomize(name: str) -> None:
    images = named(name, "ConfigMap", "ctrflow-images")["data"]
    container = named(name, "Job", "ctrflow-schedule")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == images["steps"]
    for image, ours in ((images["steps"], STEPS), (images["training"], TRAINING)):
        assert image.partition(".amazonaws.com/")[2].startswith(ours)


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_job_calls_our_command_with_a_recipe_that_a_cluster_can_run(name: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(named(name, "ConfigMap", "ctrflow-recipe")["data"]["recipe.yaml"], encoding="utf-8")
    container = named(name, "Job", "ctrflow-schedule")["spec"]["template"]["spec"]["containers"][0]
    _, *words = [*container["command"], *container["args"]]
    parsed = parse(words)
    # Images outside of Amazon's registry, which is not asked then.
    overrides = [
        each.replace("$(STEPS_IMAGE)", "r/steps:1").replace("$(TRAINING_IMAGE)", "r/training:1") for each in parsed["overrides"]
    ]
    chosen = read_recipe(recipe, tuple(overrides))
    check_recipe(chosen, "recipe.yaml")
    assert (chosen.cluster.steps_image, chosen.cluster.training_image) == ("r/steps:1", "r/training:1")
    root = named(name, "ConfigMap", "kfp-launcher")["data"]["defaultPipelineRoot"]
    assert chosen.cluster.pipeline_root == root
    there = {each["metadata"]["name"] for each in overlay(name) if each["kind"] == "ServiceAccount"}
    assert chosen.cluster.service_account in there


def parse(words: list[str]) -> dict[str, Any]:
    """The parameters of a ctrflow command; what it does not know is an error."""
    command: click.Command = ctrflow
    context = click.Context(command)
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        context = click.Context(command, info_name=name, parent=context)
    return command.make_context("ctrflow", list(words), parent=context.parent).params


def test_the_commands_of_the_readme_are_ours() -> None:
    lines = (MANIFESTS / "README.md").read_text(encoding="utf-8").splitlines()
    ours = [line.split("#")[0].split() for line in lines if line.startswith("    ctrflow ")]
    assert len(ours) >= 3
    for _, *words in ours:
        parse(words)
