"""What the built images hold, and what they must not. `make test-images` builds them and runs this."""

import json
import os
import re
import subprocess
import tarfile
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


def test_nothing_is_writable_by_all_but_folders_in_which_each_user_removes_only_his_own(image: str) -> None:
    sticky = ("(", "-type", "d", "-perm", "-1000", ")")
    found = inside(image, "find", "/", "-xdev", "(", "-type", "f", "-o", "-type", "d", ")", "-perm", "-0002", "-not", *sticky)
    assert found == ""
    assert "/tmp" in inside(image, "find", "/", "-xdev", *sticky).split()


def test_neither_a_compiler_nor_what_builds_and_installs_packages_stays_inside(image: str) -> None:
    tools = ("g++", "gcc", "cc", "as", "ld", "cmake", "make", "git")
    found = inside(image, "sh", "-c", f"for each in {' '.join(tools)}; do command -v $each || true; done; ls /opt/ctrflow/bin")
    assert "python" in found.split()
    assert not {Path(path).name for path in found.split()} & {*tools, "pip", "pip3", "wheel"}
    packages = inside(image, "ls", "/opt/ctrflow/lib/python3.11/site-packages").split()
    assert "boto3" in packages
    assert not {"pip", "setuptools", "wheel"} & set(packages)


# Names of files that hold credentials, and the forms of AWS's keys and of private keys.
NAMES_OF_SECRETS = re.compile(r"(^|/)(\.aws/|\.git/|\.env$|\.netrc$|\.pypirc$|id_(rsa|ed25519)$|\.docker/config\.json$)")
SECRETS = re.compile(rb"\bAKIA[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}")


def test_no_layer_holds_a_secret(image: str, tmp_path: Path) -> None:
    """Names and bytes of the files of all layers, deleted files among them."""
    found = []
    subprocess.run(["docker", "save", "-o", str(tmp_path / "image.tar"), image], check=True)
    with tarfile.open(tmp_path / "image.tar") as saved:
        layers = json.loads(saved.extractfile("manifest.json").read())[0]["Layers"]  # type: ignore[union-attr]
        assert len(layers) > 2
        for name in layers:
            with tarfile.open(fileobj=saved.extractfile(name)) as layer:
                for member in layer:
                    data = layer.extractfile(member).read() if member.isfile() else b""  # type: ignore[union-attr]
                    # AWS's own examples end in EXAMPLE.
                    if NAMES_OF_SECRETS.search(member.name) or any(not one.endswith(b"EXAMPLE") for one in SECRETS.findall(data)):
                        found.append(Path(member.name).name)
    # Debian's GnuTLS tests itself with keys that it holds.
    assert [name for name in found if not name.startswith("libgnutls.so")] == []
    assert not re.search(r"AKIA[0-9A-Z]{16}|(SECRET|PASSWORD|TOKEN)\w*=", json.dumps(settings(image)))


def test_every_step_of_an_image_imports_in_it_as_its_own_user(tag: str) -> None:
    steps = "".join(
        f"import components.{step}.step; " for step in ("preprocess", "profile_utilization", "select_strategy", "train")
    )
    code = f"{steps}import kfp.dsl.executor_main, os; print(os.getuid())"
    assert inside(f"ctrflow/python-steps:{tag}", "python", "-c", code, user="1000").split() == ["1000"]
    code = "import components.evaluate.step, components.promote.step, components.model_files, horovod.tensorflow; print('imported')"
    assert inside(f"ctrflow/python-training:{tag}", "python", "-c", code).split()[-1] == "imported"
