"""One run of the whole pipeline, which several files of tests look at."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

MODEL = ("--embedding-size", "8", "--deep-layers", "16", "--batch-size", "256", "--learning-rate", "0.01")


@pytest.fixture(scope="session")
def first(
    ctrflow: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """A run with everything in it, the race too. Its tests are one group of pytest-xdist: another process would make it again."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, ctrflow("run", "--sample-rows", 20_000, *MODEL, cwd=folder)
