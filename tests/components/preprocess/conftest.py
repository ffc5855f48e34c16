"""Spark and a small disk for tests."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def submit_options() -> list[str]:
    """For spark-submit: without what pays only in long runs, such as compiling each query and the last percent of speed."""
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.ui.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "4",
    }
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A folder that is a disk of so many KiB; asked again, that disk with another size."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = False

    def of_size(size_kib: int) -> Path:
        nonlocal mounted
        options = f"{'remount,' if mounted else ''}size={size_kib}k"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True).returncode:
            pytest.skip("only root may mount a small disk")
        mounted = True
        return folder

    yield of_size
    if mounted:
        subprocess.run(["umount", folder], check=True)
