"""The commands of the READMEs: the newcomer's walk is run, all others are held against the command line."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pipelines.cli import main
from pipelines.retrain import STEPS

ROOT = Path(__file__).parents[2]
WALK = "From a clone to a nightly retraining"
# What a newcomer may say in the recipe, so that a test need not wait for 200,000 rows.
EDITED = {
    "sample_rows: 200000": "sample_rows: 3000",
    "profile_budget_s: 0": "profile_budget_s: 3",
    'strategy: ""': "strategy: single",
}


def block_of(heading: str) -> list[str]:
    """The commands of a section, a line each, without their comments."""
    section = (ROOT / "README.md").read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return [re.sub(r"\s+#.*", "", line).strip() for line in section.splitlines() if line.startswith("    ")]


def test_a_newcomer_s_walk_ends_with_a_model_in_force_that_a_schedule_has_trained(tmp_path: Path) -> None:
    """Set-up is looked up alone: it has made the environment that runs this test, which stands for that of the clone."""
    commands = block_of(WALK)
    assert 5 < len(commands) < 10
    assert commands[0] == "make set-up"
    planned = subprocess.run(["make", "-n", "--always-make", "set-up"], cwd=ROOT, capture_output=True, text=True)
    assert "pip install" in planned.stdout, planned.stderr
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    edits = "; ".join(
        f"grep -q {shlex.quote(a)} recipe.yaml; sed -i {shlex.quote(f's/{a}/{b}/')} recipe.yaml" for a, b in EDITED.items()
    )
    lines = [line for command in commands[1:] for line in (command, *([edits] if command == "ctrflow init" else []))]
    script = "set -e\n" + "\n".join(f"echo {shlex.quote('$ ' + line)}\n{line}" for line in lines)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    said = {part.partition("\n")[0]: part.partition("\n")[2] for part in ("\n" + done.stdout).split("\n$ ")[1:]}
    assert re.search(r"^\d{8}-\d{6}-deepfm +SUCCEEDED ", said["ctrflow runs list --schedule deepfm"], re.MULTILINE)
    assert "deepfm" in said["ctrflow models list models"]
    assert (tmp_path / "models/deepfm/versions/1/model/model.json").is_file()
    assert "schedule" in (tmp_path / "ctrflow.service").read_text()
    (summary,) = tmp_path.glob("runs/2*-deepfm/promote/summary")
    rows = [line.split(" | ") for line in summary.read_text().splitlines()[4:]]
    assert [row[0] for row in rows] == [f"| {step}" for step in STEPS]
    assert all(len(row) == 3 and len(row[1]) > 10 and "/report" in row[2] for row in rows)


def commands_of(readme: str) -> list[list[str]]:
    """Words of every `ctrflow ...` in its blocks; what a person is to fill in, [..], is left out."""
    blocks = [line for line in (ROOT / readme).read_text().splitlines() if line.startswith("    ")]
    parts = [part.strip() for line in blocks for part in re.sub(r"\s+#.*", "", line).split("; ")]
    return [shlex.split(part.split(" > ")[0]) for part in parts if part.startswith("ctrflow ")]


@pytest.mark.parametrize("readme", ["README.md", "pipelines/README.md"])
def test_every_command_of_a_readme_is_one_and_takes_these_options(readme: str) -> None:
    commands = commands_of(readme)
    assert len(commands) >= 10
    for words in commands:
        command: click.Command = main
        rest = words[1:]
        while isinstance(command, click.Group):
            context = click.Context(command)
            found = command.get_command(context, rest[0])
            assert found, f"{readme}: {' '.join(words)}: no such command"
            command, rest = found, rest[1:]
        command.make_context(" ".join(words), rest)  # raises UsageError
