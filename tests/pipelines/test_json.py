"""--json: every command has it, and what it prints parses and holds these keys."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from pipelines.cli import main
from pipelines.local.sagemaker import LocalSageMaker

Said = Callable[..., Any]
SCHEDULE = ["cron", "folder", "max_concurrency", "name", "next", "recipe", "recipe_digest", "state", "words"]


def leaves(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, f"{path} {name}".strip())
    else:
        yield path, command


@pytest.mark.parametrize("path", dict(leaves(main)))
def test_every_command_has_json(path: str) -> None:
    assert any("--json" in parameter.opts for parameter in dict(leaves(main))[path].params)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Raw rows, a recipe, and an endpoint without jobs."""
    made = tmp_path_factory.mktemp("json")
    (made / "rows.libsvm").write_text("".join(f"{int(n % 4 == 0)} {n}:1 {50 + n % 7}:{n / 4}\n" for n in range(40)))
    with LocalSageMaker(made / "jobs", stop_grace_s=1) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", endpoint.url)
        patch.chdir(made)
        yield made


# In this order: each finds what those before it have left.
@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("init", ["recipe"]),
        ("sample clicks.tsv --rows 200", ["best_auc", "clicks", "rows", "seed"]),
        ("preprocess rows.libsvm dataset --format libsvm --feature-size 57", ["dataset", "train", "validation", "warnings"]),
        ("dataset verify dataset", ["dataset", "problems", "rows", "shards"]),
        ("dataset convert dataset text --encoding libsvm", ["dataset", "encoding", "train", "validation"]),
        ("check dataset models", ["dataset", "drift"]),
        ("compile retrain.yaml", ["digest", "pipeline"]),
        ("jobs list --run r1", ["jobs", "run_id"]),
        ("jobs stop --run r1", ["jobs", "run_id"]),
        ("jobs reap --run r1", ["jobs", "run_id"]),
        ("schedule create --local --cron 0_3_*_*_*", SCHEDULE),
        ("schedule show deepfm --local", sorted([*SCHEDULE, "firings", "pipeline_is_same", "recipe_is_same"])),
        ("schedule pause deepfm --local", ["name", "state"]),
        ("schedule resume deepfm --local", ["name", "state"]),
        ("schedule serve --print systemd", ["systemd"]),
        ("schedule serve --print cron", ["cron"]),
        ("schedule serve --until-idle", ["due", "schedules"]),
        ("schedule run-now deepfm --local", ["run_id"]),
        ("schedule delete deepfm --local", ["deleted", "name"]),
    ],
)
def test_a_document_has_these_keys(said: Said, folder: Path, command: str, keys: list[str]) -> None:
    code, document, errors = said(*(word.replace("_", " ") if "*" in word else word for word in command.split()), "--json")
    assert code == 0, errors
    assert sorted(document) == keys


def test_lists_are_lists(said: Said, folder: Path) -> None:
    assert said("schedule", "list", "--local", "--json")[1] == []
    assert said("runs", "list", "--json")[1] == []
    instances = said("instances", "list", "--family", "c7i", "--json")[1]
    assert {each["name"].rsplit(".", 1)[0] for each in instances} == {"ml.c7i"}
