"""The import rules of the layout: who may import what. Read from the code by an AST walk, nothing is imported."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STEPS = {"preprocess", "profile_utilization", "select_strategy", "train", "evaluate", "promote", "finish"}
SOURCES = sorted(path.relative_to(ROOT) for folder in ("components", "pipelines") for path in (ROOT / folder).rglob("*.py"))
PROGRAM = Path("components/train/program")
SPARK = Path("components/preprocess/spark")


def imported(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def step_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "components" and parts[1] in STEPS else None


def test_there_is_something_to_check() -> None:
    assert SOURCES


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_steps_never_import_other_steps(path: Path) -> None:
    if path.parts[0] == "components":
        own = path.parts[1]
        foreign = {name for name in imported(path) if step_of(name) not in (None, own)}
        assert not foreign


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_only_component_definitions_and_pipelines_import_kfp(path: Path) -> None:
    if path.name != "component.py" and path.parts[0] != "pipelines":
        assert not {name for name in imported(path) if name.split(".")[0] == "kfp"}


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_only_what_talks_to_aws_imports_boto3(path: Path) -> None:
    names = ("clients.py", "job_logs.py", "s3.py", "s3_copies.py", "s3_storage.py", "jobs.py", "run_jobs.py", "request_checks.py")
    allowed = {f"components/{name}" for name in names}
    if str(path) not in allowed and path.parts[:2] != ("components", "promote") and path.parts[0] != "pipelines":
        assert not {name for name in imported(path) if name.split(".")[0] in ("boto3", "botocore")}


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_only_what_runs_on_spark_imports_pyspark(path: Path) -> None:
    # What Spark's workers call is not among it: it takes and gives Arrow batches.
    allowed = {SPARK / name for name in ("engine.py", "failures.py", "session.py", "shards.py")}
    if path not in allowed:
        assert not {name for name in imported(path) if name.split(".")[0] in ("pyspark", "py4j")}


@pytest.mark.parametrize("path", [path for path in SOURCES if path.is_relative_to(PROGRAM)], ids=str)
def test_the_training_program_imports_only_what_a_training_container_holds(path: Path) -> None:
    packages = {"numpy", "tensorflow", "horovod", "psutil", "pynvml"}
    shared = ("records", "framing", "manifest", "learning", "resources", "traffic", "errors")
    modules = ("components.train.program", *(f"components.{name}" for name in shared))
    for name in imported(path):
        top = name.split(".")[0]
        own = any(name == module or name.startswith(module + ".") for module in modules)
        assert top in sys.stdlib_module_names or top in packages or own or name in ("components", "components.train"), name
