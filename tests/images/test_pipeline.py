"""The whole pipeline in the built images under KFP's DockerRunner: the shipped recipe, compiled, on a few rows.

Training jobs run in the training image too: the local endpoint of SageMaker is in a container of its own. `make test-images` builds
the images and runs this.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from kfp import components, local
from kfp.local import docker_task_handler

from components.images import STEPS, TRAINING
from pipelines.compiled import compile_retrain
from pipelines.local.execute import without_retries
from pipelines.local.run import LOCAL_ROLE, job_settings
from pipelines.recipe import read_recipe
from pipelines.sample import write_sample

ROOT = Path(__file__).parents[2]
ROWS = 4000
CHANGES = ("learning.embedding_size=8", "learning.deep_layers=[16]", "learning.batch_size=256", "learning.learning_rate=0.01")
# The shortest run: no race, and no more probes than profiling needs.
SHORT = ("strategy=single", "profile_budget_s=3")
ENDPOINT = """
import signal, sys
from pathlib import Path
from pipelines.local.sagemaker import LocalSageMaker

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with LocalSageMaker(Path(sys.argv[1]), stop_grace_s=5.0) as endpoint:
    print(endpoint.url, flush=True)
    signal.pause()
"""

pytestmark = pytest.mark.skipif("CTRFLOW_TEST_IMAGES" not in os.environ, reason="built images are tested by: make test-images")


def run_container(client: Any, image: str, command: list[str], volumes: dict[str, Any], **settings: Any) -> int:
    """In place of KFP's own, which takes a container for a success that was removed before it asked for its code, pulls images that
    are there under another name, and leaves an image's entry point before the command, where a cluster replaces it."""
    container = client.containers.create(image, entrypoint=command[:1], command=command[1:], volumes=volumes, **settings)
    try:
        container.start()
        for line in container.logs(stream=True, follow=True):
            sys.stdout.write(line.decode(errors="replace"))
        code: int = container.wait()["StatusCode"]
        return code
    finally:
        container.remove(force=True)


@pytest.fixture
def images() -> dict[str, str]:
    tag = subprocess.run([str(ROOT / "images" / "tag.sh")], check=True, capture_output=True, text=True).stdout.strip()
    return {name: f"{name.partition(':')[0]}:{tag}" for name in (STEPS, TRAINING)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """KFP's pipeline root, all that the containers see of this machine. Some steps are user 1000's, some root's, and both write."""
    for folder in (tmp_path, tmp_path / "models", tmp_path / "jobs"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    return tmp_path


@pytest.fixture
def endpoint(images: dict[str, str], root: Path) -> Iterator[str]:
    """URL of SageMaker's stand-in, whose jobs run in a container of the training image. The host's network, for its loopback."""
    client = docker.from_env()
    container = client.containers.run(
        images[TRAINING],
        ["python", "-c", ENDPOINT, str(root / "jobs")],
        detach=True,
        network_mode="host",
        labels=["ctrflow.test"],
        volumes={str(root): {"bind": str(root), "mode": "rw"}},
    )
    try:
        yield next(container.logs(stream=True, follow=True)).decode().strip()
    finally:
        container.remove(force=True)
        client.close()


@pytest.fixture
def retrain(images: dict[str, str], root: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The compiled pipeline of the shipped recipe, as KFP loads it, and DockerRunner to run it."""
    monkeypatch.setattr(docker_task_handler, "run_docker_container", run_container)
    monkeypatch.setenv("KFP_DISABLE_VERSION_CHECK", "1")
    recipe = read_recipe(ROOT / "pipelines" / "recipe.yaml", [*CHANGES, *SHORT])
    compile_retrain(root / "retrain.yaml", recipe, images=images)
    pipeline = components.load_component_from_text(without_retries((root / "retrain.yaml").read_text()))
    settings = {"AWS_ENDPOINT_URL_SAGEMAKER": endpoint, "TF_CPP_MIN_LOG_LEVEL": "2"}
    runner = local.DockerRunner(network_mode="host", labels=["ctrflow.test"], environment=settings)
    local.init(runner, pipeline_root=str(root), workspace_root=str(root / "workspace"))

    def run(data: Path) -> None:
        given = {"inputs": json.dumps([str(data)]), "jobs": job_settings(root / "jobs", images[TRAINING])}
        pipeline(**recipe.parameters(), **given, role=LOCAL_ROLE, store=str(root / "models"))

    return run


def test_raw_clicks_become_a_promoted_model(retrain: Any, root: Path) -> None:
    write_sample(root / "clicks.tsv", ROWS, seed=1)
    retrain(root / "clicks.tsv")
    made = next(root.glob("retrain-*"))
    steps = {"preprocess", "profile-utilization", "select-strategy", "train", "evaluate", "promote"}
    assert steps <= {path.name for path in made.iterdir()}
    assert json.loads((root / "models/deepfm/champion.json").read_text())["version"] == 1
    model = json.loads((root / "models/deepfm/versions/1/model/model.json").read_text())
    assert model["step"] > 0
    # Who made it: the steps image's user, and root in the other.
    assert (made / "preprocess/dataset/manifest.json").stat().st_uid == 1000
    assert (made / "evaluate/evaluation").stat().st_uid == 0


def test_a_step_that_fails_in_its_container_fails_the_run(retrain: Any, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="preprocess"):
        retrain(root / "nothing.tsv")
    assert "nothing.tsv" in capfd.readouterr().out
    assert not (root / "models" / "deepfm").exists()
