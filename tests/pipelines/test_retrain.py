"""The compiled pipeline: what a cluster gets."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from components.images import STEPS as STEPS_IMAGE
from components.images import TRAINING
from pipelines.compiled import compile_retrain
from pipelines.retrain import STEPS


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("compiled") / "retrain.yaml"
    compile_retrain(out)
    return out.read_text()


def test_nothing_is_installed_when_a_step_starts(text: str) -> None:
    assert "pip install" not in text
    assert "python3 -m pip" not in text


def test_the_steps_follow_each_other_and_none_is_cached(text: str) -> None:
    tasks = next(yaml.safe_load_all(text))["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    names = [step.replace("_", "-") for step in STEPS]
    assert sorted(tasks) == sorted(names)
    for before, after in pairwise(names):
        assert before in tasks[after]["dependentTasks"]
    assert not any(task["cachingOptions"].get("enableCache") for task in tasks.values())


def images_of(text: str) -> dict[str, str]:
    """By step."""
    executors = next(yaml.safe_load_all(text))["deploymentSpec"]["executors"]
    return {name.removeprefix("exec-").replace("-", "_"): executor["container"]["image"] for name, executor in executors.items()}


def test_every_step_runs_in_a_versioned_image(text: str) -> None:
    assert set(images_of(text).values()) == {STEPS_IMAGE, TRAINING}
    assert all(re.search(r":\d+\.\d+\.\d+", image) for image in images_of(text).values())


def test_a_recipe_names_both_images(tmp_path: Path) -> None:
    out = tmp_path / "retrain.yaml"
    compile_retrain(out, images={STEPS_IMAGE: "own/steps:1", TRAINING: "own/training:2"})
    own = images_of(out.read_text())
    assert (own["train"], own["evaluate"]) == ("own/steps:1", "own/training:2")
    assert set(own.values()) == {"own/steps:1", "own/training:2"}


def test_every_step_has_the_image_that_the_readme_says(text: str) -> None:
    readme = (Path(__file__).parents[2] / "images" / "README.md").read_text()
    table = dict(re.findall(r"^\| (\w+) \| `([^`]+)` \|", readme, re.MULTILINE))
    assert table == {step: image.split(":")[0] for step, image in images_of(text).items()}
    assert set(STEPS) < set(table)


def test_parameters_are_plain_values(text: str) -> None:
    parameters = next(yaml.safe_load_all(text))["root"]["inputDefinitions"]["parameters"]
    assert {parameter["parameterType"] for parameter in parameters.values()} <= {
        "STRING",
        "NUMBER_INTEGER",
        "NUMBER_DOUBLE",
        "BOOLEAN",
    }


def test_equal_code_compiles_to_equal_text(text: str, tmp_path: Path) -> None:
    compile_retrain(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_text() == text


def test_steps_that_go_on_where_they_were_are_tried_again_later_and_later(text: str) -> None:
    pipeline = next(yaml.safe_load_all(text))
    tasks = pipeline["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    retried = {name: task["retryPolicy"] for name, task in tasks.items() if "retryPolicy" in task}
    assert {name: policy["maxRetryCount"] for name, policy in retried.items()} == {
        "profile-utilization": 2,
        "select-strategy": 2,
        "train": 3,
        "promote": 2,
    }
    assert {(each["backoffDuration"], each["backoffFactor"]) for each in retried.values()} == {("60s", 2.0)}
    finish = pipeline["root"]["dag"]["tasks"]["finish"]
    assert finish["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"


def test_every_pod_has_memory_a_time_limit_a_label_and_a_name_for_people(text: str) -> None:
    pipeline, platform = yaml.safe_load_all(text)
    kubernetes = platform["platforms"]["kubernetes"]
    pods = kubernetes["deploymentSpec"]["executors"]
    containers = {name: each["container"] for name, each in pipeline["deploymentSpec"]["executors"].items()}
    assert pods.keys() == containers.keys()
    for name, container in containers.items():
        asked = container["resources"]
        assert asked["resourceCpuRequest"], name
        assert asked["resourceMemoryRequest"] == asked["resourceMemoryLimit"], name
        assert 3600 <= int(pods[name]["activeDeadlineSeconds"]) <= 25 * 3600, name
        assert pods[name]["podMetadata"]["labels"] == {"app.kubernetes.io/part-of": "ctrflow"}, name
    tasks = {**pipeline["root"]["dag"]["tasks"], **pipeline["components"]["comp-exit-handler-1"]["dag"]["tasks"]}
    assert {task["taskInfo"]["name"] for name, task in tasks.items() if name != "exit-handler-1"} == {
        "Preprocess raw clicks",
        "Profile utilization",
        "Select strategy",
        "Train",
        "Evaluate",
        "Promote",
        "Finish",
    }
    assert kubernetes["pipelineConfig"] == {"activeDeadlineSeconds": 2 * 86400, "resourceTtlOnCompletion": 7 * 86400}


def test_secrets_are_by_reference_and_need_not_be_there(text: str) -> None:
    _, platform = yaml.safe_load_all(text)
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    read = {
        name: [
            (secret["secretName"], secret["optional"], {each["envVar"]: each["secretKey"] for each in secret["keyToEnv"]})
            for secret in executor["secretAsEnv"]
        ]
        for name, executor in executors.items()
    }
    keys = ("ctrflow-aws", True, {name: name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")})
    assert read.pop("exec-finish") == [("ctrflow-notify", True, {"CTRFLOW_NOTIFY": "url"}), keys]
    assert set(read) == {f"exec-{step.replace('_', '-')}" for step in STEPS}
    assert all(secrets == [keys] for secrets in read.values())
