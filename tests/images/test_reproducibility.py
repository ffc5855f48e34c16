"""The same checkout built twice, the second time without any cached layer: every file has the same bytes, mode and owner.

`make test-images` compares the steps image, in a minute. CTRFLOW_TEST_IMAGES=whole: the training image too, in 6 minutes.
"""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTED = os.environ.get("CTRFLOW_TEST_IMAGES")

pytestmark = pytest.mark.skipif(not TESTED, reason="built images are tested by: make test-images")

# Contents of files, then kind, mode, owner and target of everything. What the engine mounts is no part of an image.
LISTING = r"""
cd / && find . -xdev -type f -not -path './etc/host*' -not -path ./etc/resolv.conf -exec sha256sum {} +
find . -xdev -not -path './etc/host*' -not -path ./etc/resolv.conf -not -path './dev*' -printf '%y %m %U:%G %p -> %l\n'
"""


def output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def listing(image: str) -> set[str]:
    run = ("docker", "run", "--rm", "--label", "ctrflow.test", "--network", "none", "--user", "0")
    return set(output(*run, image, "sh", "-c", LISTING).splitlines())


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "name",
    ["steps", pytest.param("training", marks=pytest.mark.skipif(TESTED != "whole", reason="6 minutes: CTRFLOW_TEST_IMAGES=whole"))],
)
def test_a_second_build_without_cached_layers_has_the_same_files(name: str) -> None:
    image = f"ctrflow/python-{name}:{output('images/tag.sh')}"
    first = output("docker", "image", "inspect", "--format", "{{.Id}}", image)
    subprocess.run(
        ["images/build.sh", name], check=True, capture_output=True, cwd=ROOT, env={**os.environ, "BUILD_OPTIONS": "--no-cache"}
    )
    assert output("docker", "image", "inspect", "--format", "{{.Id}}", image) != first
    once, again = listing(first), listing(image)
    assert len(once) > 1000
    assert sorted(once ^ again) == []
