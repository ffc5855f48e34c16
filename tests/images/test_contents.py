"""What the built images hold, and what they must not. `make test-images` builds them and runs this."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("steps", "training")

pytestmark = pytest.mark.skipif("CTRFLOW_TEST_IMAGES" not in os.environ, reason="built images are tested by: make test-images")


def output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def tag() -> str:
    return output(str(ROOT / "images" / "tag.sh")).strip()


@pytest.fixture(params=NAMES)
def image(request: pytest.FixtureRequest, tag: str) -> str:
    return f"ctrflow/python-{request.param}:{tag}"


def inside(image: str, *words: str, user: str = "0") -> str:
    """What a command prints in the image, as root unless said otherwise: a root shell sees every file."""
    return output("docker", "run", "--rm", "--label", "ctrflow.test", "--network", "none", "--user", user, image, *words)


def settings(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output("docker", "image", "inspect", image))[0]["Config"]
    return found


def test_labels_and_environment_name_what_the_image_was_made_of(image: str, tag: str) -> None:
    version, _, commit = tag.partition("-")
    labels = settings(image)["Labels"]
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.revision"] == commit
    assert f"CTRFLOW_COMMIT={commit}" in settings(image)["Env"]


def test_steps_are_not_root_and_training_is_because_sagemaker_mounts_its_folders_as_root(tag: str) -> None:
    assert settings(f"ctrflow/python-steps:{tag}")["User"] == "1000:1000"
    assert settings(f"ctrflow/python-training:{tag}")["User"] == ""


def test_nothing_but_the_folders_for_temporary_files_is_writable_by_all(image: str) -> None:
    paths = inside(image, "find", "/", "-xdev", "(", "-type", "f", "-o", "-type", "d", ")", "-perm", "-0002").split()
    assert set(paths) <= {"/tmp", "/var/tmp", "/run/lock", "/dev/shm", "/dev/mqueue"}


def test_no_compiler_and_no_pip_of_the_environment_stay_inside(image: str) -> None:
    found = inside(
        image, "sh", "-c", "for each in g++ gcc cc cmake make git; do command -v $each || true; done; ls /opt/ctrflow/bin"
    )
    assert "python" in found.split()
    assert not {"g++", "gcc", "cc", "cmake", "make", "git"} & set(found.split())
    assert "pip" not in inside(image, "ls", "/opt/ctrflow/bin").split()


def test_no_layer_holds_a_secret(image: str, tmp_path: Path) -> None:
    """Names and texts of all layers, deleted files among them; keys of AWS and private keys by their fixed forms."""
    subprocess.run(["docker", "save", "-o", str(tmp_path / "image.tar"), image], check=True)
    subprocess.run(["tar", "-xf", "image.tar"], cwd=tmp_path, check=True)
    (tmp_path / "image.tar").unlink()
    layers = sorted(tmp_path.rglob("layer.tar"))
    assert len(layers) > 2
    for layer in layers:
        names = output("tar", "-tf", str(layer)).splitlines()
        secret = re.compile(r"(^|/)(\.aws/|\.git/|\.env$|\.netrc$|\.pypirc$|id_(rsa|ed25519)$|\.docker/config\.json$)")
        assert not [name for name in names if secret.search(name)]
    assert not re.search(r"AKIA[0-9A-Z]{16}|(SECRET|PASSWORD|TOKEN)\w*=", json.dumps(settings(image)))
    texts = inside(
        image, "sh", "-c", "grep -rlE 'AKIA[0-9A-Z]{16}|^-----BEGIN [A-Z ]*PRIVATE KEY' /opt/program /root /home /etc || true"
    )
    assert texts == ""


def test_every_step_of_an_image_imports_in_it_as_its_own_user(tag: str) -> None:
    steps = "".join(
        f"import components.{step}.step; " for step in ("preprocess", "profile_utilization", "select_strategy", "train")
    )
    code = f"{steps}import kfp.dsl.executor_main, os; print(os.getuid())"
    assert inside(f"ctrflow/python-steps:{tag}", "python", "-c", code, user="1000").split() == ["1000"]
    code = "import components.evaluate.step, components.promote.step, components.model_files, horovod.tensorflow; print('imported')"
    assert inside(f"ctrflow/python-training:{tag}", "python", "-c", code).split()[-1] == "imported"
