"""The program that spark-submit starts, as AWS's Spark container does."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.preprocess.config import PreprocessConfig
from components.preprocess.step import preprocess

ROOT = Path(__file__).parents[4]
JOB = ROOT / "components" / "preprocess" / "spark" / "job.py"


def started(command: list[str], *arguments: Path | str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, env=environment)


@pytest.mark.xdist_group("spark")
@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed: the extra spark")
@pytest.mark.skipif(shutil.which("java") is None, reason="no java: Spark needs Java 17")
def test_spark_submit_writes_the_same_dataset(tmp_path: Path, submit_options: list[str]) -> None:
    import pyspark

    (tmp_path / "day").write_text("".join(f"{row % 2} {row}:1 {row + 100}:0.5\n" for row in range(100)))
    settings = {"format": "libsvm", "seed": 3, "shards": 2}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]", *submit_options, str(JOB)]
    found = started(submit, "--settings", tmp_path / "settings.json", tmp_path / "spark", tmp_path / "day")
    assert found.returncode == 0, found.stderr
    preprocess(
        PreprocessConfig(format="libsvm", seed=3, shards=2), [str(tmp_path / "day")], tmp_path / "one", tmp_path / "one.html"
    )
    for path in filter(Path.is_file, (tmp_path / "one").rglob("*")):
        assert (tmp_path / "spark" / path.relative_to(tmp_path / "one")).read_bytes() == path.read_bytes()
    assert (tmp_path / "spark.html").is_file()


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "cannot be read"), ('{"format": "tsv"}', "'tsv'"), ('{"format": "libsvm", "shard": 2}', "'shard'")],
    ids=["no file", "a wrong value", "an unknown key"],
)
def test_wrong_settings_end_it_with_one_line_before_spark_starts(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "settings.json").write_text(text)
    found = started([sys.executable, str(JOB)], "--settings", tmp_path / "settings.json", tmp_path / "out", tmp_path / "day")
    assert found.returncode == 1
    assert found.stderr.startswith("ctrflow: ")
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
