"""The recipe: what it says, what it refuses, and that the shipped one says what the defaults say."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from components.errors import InvalidConfig
from components.plan import ModelSettings
from components.preprocess.config import PreprocessConfig
from pipelines.compiled import cluster_parameters
from pipelines.recipe import Cluster, Recipe, SageMaker, load_yaml, read_recipe
from pipelines.recipe_commands import SHIPPED
from pipelines.retrain import retrain

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return path


def test_the_shipped_recipe_says_every_setting_with_its_default() -> None:
    assert read_recipe(SHIPPED) == Recipe()
    document = load_yaml(SHIPPED.read_text())
    assert list(document) == [item.name for item in fields(Recipe)]
    assert list(document["cluster"]) == [item.name for item in fields(Cluster)]
    assert list(document["cluster"]["sagemaker"]) == [item.name for item in fields(SageMaker)]


def test_an_empty_recipe_is_the_defaults(tmp_path: Path) -> None:
    assert read_recipe(written(tmp_path, "")) == read_recipe(written(tmp_path, "# nothing\n")) == Recipe()


def test_settings_reach_the_parts_that_own_them(tmp_path: Path) -> None:
    text = """
name: ads
data: ["s3://logs/{date-1}/*.csv"]
preprocessing:
  format: csv
  columns: label=click; numeric=price
  split_by: time
  split_column: day
  split_boundary: 2026-01-01
  fitting: {categories: vocabulary}
learning: {learning_rate: 5e-4, deep_layers: [64, 32], batch_size: 256}
"""
    recipe = read_recipe(written(tmp_path, text), ["learning.epochs=3", "preprocessing.shards=2", "cluster.store=/models"])
    assert recipe.learning == ModelSettings(learning_rate=0.0005, deep_layers=(64, 32), batch_size=256, epochs=3)
    assert isinstance(recipe.preprocessing, PreprocessConfig)
    assert (recipe.preprocessing.split_boundary, recipe.preprocessing.shards) == ("2026-01-01", 2)
    assert recipe.preprocessing.fitting.categories == "vocabulary"
    assert recipe.cluster.store == "/models"
    parameters = recipe.parameters()
    assert (parameters["deep_layers"], parameters["batch_size"], parameters["name"]) == ("64,32", 256, "ads")
    assert json.loads(json.loads(parameters["preprocessing"])["columns"]) == {"label": "click", "numeric": ["price"]}


def test_a_run_on_a_cluster_has_exactly_the_parameters_of_the_pipeline() -> None:
    assert set(cluster_parameters(Recipe())) == set(retrain.component_spec.inputs)


@pytest.mark.parametrize(
    ("text", "overrides", "says"),
    [
        ("nam: ads", (), "'nam' is unknown; did you mean name?"),
        ("learning: {epoch: 3}", (), "learning: 'epoch' is unknown; did you mean epochs?"),
        ("cluster: {sagemaker: {rôle: x}}", (), "'rôle' is unknown; did you mean role?"),
        ("learning: {epochs: many}", (), "learning: epochs 'many' is not int"),
        ("learning: {epochs: 1.5}", (), "epochs 1.5 is not int"),
        ("learning: {epochs: 0}", (), "epochs 0: at least 1 is needed"),
        ("warm_start: no", (), "warm_start 'no' is not bool"),
        ("data: clicks.tsv", (), "data 'clicks.tsv' is not a list of that kind"),
        ("name: a/b", (), "name 'a/b': 1 to 63 letters"),
        ("margin: 3", (), "margin 3: an AUC difference in 0..0.5 is expected"),
        ("strategy: horovod\nlearning: {batch_size: 255}", (), "batch_size 255: must be a multiple of the 2 workers"),
        ("strategy: fast", (), "strategy 'fast': choose one of single"),
        ("run_date: tomorrow", (), "run_date 'tomorrow': YYYY-MM-DD is expected"),
        ("days: 7\ndata: [logs/*.tsv]", (), "days 7: no {date} in the inputs to put them in"),
        ("preprocessing: {grow_to: 9}", (), "grow_to 9: say which transform grows"),
        ("notify: me@example.com", (), "notify 'me@example.com': https://... or arn:aws:sns:... is expected"),
        ("cluster: {sagemaker: {role: admin}}", (), "role 'admin': arn:aws:iam::<account>:role/<name> is expected"),
        ("cluster: {sagemaker: {output_uri: /jobs}}", (), "output_uri '/jobs': s3:// is expected"),
        ("cluster: {max_concurrency: 0}", (), "max_concurrency 0: KFP takes 1 to 10"),
        ("preprocessing: {format: xml}", (), "format 'xml' is not one of"),
        ("name: a\nname: b", (), "not YAML ('name' stands twice"),
        ("learning: [", (), "not YAML ("),
        ("- name", (), "an object is expected"),
        ("", ("epochs",), "--set epochs: key=value is expected"),
        ("", ("learning.epoch=3",), "'epoch' is unknown; did you mean epochs?"),
        ("", ("learning.epochs=[",), "--set learning.epochs=[: not a YAML value"),
        ("name: ads", ("name.first=x",), "name {'first': 'x'} is not str"),
    ],
)
def test_what_is_wrong_is_refused_by_name(tmp_path: Path, text: str, overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        read_recipe(written(tmp_path, text), overrides)
    message = str(raised.value)
    assert says in message
    assert "\n" not in message
    assert message.startswith((f"{tmp_path}/recipe.yaml: ", "--set "))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 0.0005),
        ("1E5", 100_000.0),
        (".5", 0.5),
        ("017", 17),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("true", True),
        ("~", None),
        ("1_000", "1_000"),
        ("e5", "e5"),
        ("'5'", "5"),
    ],
)
def test_values_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    found = load_yaml(f"key: {text}")["key"]
    assert found == value
    assert type(found) is type(value)


def test_the_digest_is_of_what_is_said_and_not_of_how(tmp_path: Path) -> None:
    plain = read_recipe(written(tmp_path, "name: ads\nwarm_start: true")).digest()
    assert read_recipe(written(tmp_path, "warm_start: true # yes\nname: ads\nmargin: 0.002")).digest() == plain
    assert read_recipe(written(tmp_path, "warm_start: true\nname: ads"), ["margin=0.003"]).digest() != plain


def test_the_commands_of_a_recipe(ctrflow: Run, tmp_path: Path) -> None:
    assert json.loads(ctrflow("init", "--json", cwd=tmp_path).stdout) == {"recipe": "recipe.yaml"}
    assert (tmp_path / "recipe.yaml").read_bytes() == SHIPPED.read_bytes()
    again = ctrflow("init", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (1, "ctrflow: recipe.yaml: exists; name another file, or remove it\n")
    both = ctrflow("run", "--recipe", "recipe.yaml", "--epochs", "2", cwd=tmp_path)
    assert both.stderr == "ctrflow: --epochs with --recipe: the recipe says that; change it, or give --set key=value\n"
    alone = ctrflow("run", "--set", "learning.epochs=2", cwd=tmp_path)
    assert alone.stderr == "ctrflow: --set learning.epochs=2: changes a recipe; name it with --recipe\n"
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


def test_a_file_of_own_prices_travels_as_its_text_and_counts_in_the_digest(tmp_path: Path) -> None:
    path, text = tmp_path / "own.csv", "name,usd_per_hour,source,date\nml.c7i.4xlarge,0.5,a contract,2026-12\n"
    path.write_text(text)
    recipe = read_recipe(written(tmp_path, f"instances: {path}"))
    assert recipe.parameters()["instances"] == text
    before = recipe.digest()
    path.write_text(text.replace("0.5", "0.6"))
    assert recipe.digest() != before
    assert Recipe().parameters()["instances"] == ""


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("nowhere.csv", "nowhere.csv: no such file; name a CSV file of instance types"),
        ("own.csv, strategy: single", "strategy 'single' is demanded, so that limits and instances choose nothing; leave them out"),
        ("own.csv", "own.csv, line 2: usd_per_hour 'cheap': a number is expected"),
    ],
)
def test_a_file_of_own_prices_is_read_before_the_first_step(tmp_path: Path, said: str, refused: str) -> None:
    (tmp_path / "own.csv").write_text("name,usd_per_hour,source,date\nml.c7i.4xlarge,cheap,a contract,2026-12\n")
    with pytest.raises(InvalidConfig) as caught:
        read_recipe(written(tmp_path, f"{{instances: {tmp_path}/{said}}}"))
    assert str(caught.value).endswith(refused)
