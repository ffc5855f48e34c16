"""A disk that is too small, wherever in the work it runs out: one line that names the output, and nothing is left."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from components.errors import WorkflowError
from components.manifest import read_manifest
from components.preprocess.config import PreprocessConfig
from components.preprocess.step import preprocess
from components.verification import verify_dataset
from pipelines.cli import main

ROWS, FIELDS = 30_000, 3
# Scratch and shards of these rows take 2 MB: 12 + 8 fields bytes a row each, and 8 for the search for repeats.
SIZES_KIB = range(100, 2500, 100)


@pytest.fixture
def day(tmp_path: Path) -> Path:
    ids = np.random.default_rng(1).integers(0, 1000, (ROWS, FIELDS)) + 1000 * np.arange(FIELDS)
    lines = [f"{row % 3 == 0:d} " + " ".join(f"{each}:0.5" for each in found) for row, found in enumerate(ids.tolist())]
    (tmp_path / "day").write_text("\n".join(lines))
    return tmp_path / "day"


def test_a_disk_of_whatever_size_gets_the_whole_dataset_or_nothing(day: Path, small_disk: Callable[[int], Path]) -> None:
    for size_kib in SIZES_KIB:
        out = small_disk(size_kib) / "out"
        done = CliRunner().invoke(main, ["preprocess", str(day), str(out), "--format", "libsvm", "--feature-size", "3000"])
        if done.exit_code == 0:
            break
        said = f"ctrflow: {out}: No space left on device; free some space, or choose a folder on another disk\n"
        assert (done.exit_code, done.stderr) == (1, said)
        assert not list(out.parent.iterdir())
    assert 1500 < size_kib < SIZES_KIB[-1]
    manifest, _ = verify_dataset(out, 1)
    assert manifest.train.examples + manifest.validation.examples == ROWS


def test_a_disk_that_fills_up_in_a_worker_process_leaves_the_former_dataset(day: Path, small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(1 << 16)
    few = day.with_name("few")
    few.write_text("".join(day.read_text().splitlines(keepends=True)[:100]))

    def run(path: Path) -> None:
        config = PreprocessConfig(format="libsvm", feature_size=3000, processes=2)
        preprocess(config, [str(path)], disk / "out", disk / "out.html")

    run(few)
    former = read_manifest(disk / "out")
    small_disk(1200)
    with pytest.raises(WorkflowError, match=rf"^{disk}/out: No space left on device; free some space"):
        run(day)
    assert sorted(path.name for path in disk.iterdir()) == ["out", "out.html"]
    assert verify_dataset(disk / "out", 1)[0] == former
