"""Whatever can be set can be set from the command line and in the pipeline."""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

import pytest

from components.learning import Learning
from components.preprocess.config import PreprocessConfig
from components.preprocess.settings import read_settings
from components.profile_utilization.component import profile_utilization
from pipelines.cli import main
from pipelines.recipe import Recipe
from pipelines.recipe_options import recipe_of_command
from pipelines.retrain import retrain
from pipelines.source_options import preprocess_config

SETTINGS = {item.name: item.default for item in fields(Learning)}
# Of the run and not of a step.
OF_THE_RUN = {"data", "sample_rows", "pipeline", "runs", "models", "verbose", "recipe", "overrides", "run_id", "schedule", "json"}


def source_settings(kind: Any = PreprocessConfig) -> Iterator[tuple[str, Any]]:
    """Names and defaults of all settings of preprocess, those of its parts too."""
    for item in fields(kind):
        if is_dataclass(part := get_type_hints(kind)[item.name]):
            yield from source_settings(part)
        else:
            yield item.name, item.default


@pytest.mark.parametrize("command", ["profile", "train", "run"])
def test_every_setting_is_an_option_with_the_same_default(command: str) -> None:
    options = {option.name: option.default for option in main.commands[command].params}
    for name, default in SETTINGS.items():
        assert name in options
        expected = ",".join(map(str, default)) if isinstance(default, tuple) else default
        assert options[name] == expected, name


@pytest.mark.parametrize("command", ["preprocess", "run"])
def test_every_setting_of_preprocess_is_an_option_with_the_same_default(command: str) -> None:
    options = {option.name: option.default for option in main.commands[command].params}
    for name, default in source_settings():
        assert name in options
        # The format has no default but that of the sample; the seed of a run is that of the training too.
        if default is not MISSING and (command, name) != ("run", "seed"):
            assert options[name] == (",".join(default) if isinstance(default, tuple) else default), name


def test_an_option_that_is_not_given_leaves_a_setting_at_its_default() -> None:
    context = main.commands["preprocess"].make_context("preprocess", ["day.tsv", "out"])
    assert preprocess_config(context.params) == PreprocessConfig(format="criteo")
    assert read_settings(retrain.component_spec.inputs["preprocessing"].default) == PreprocessConfig(format="criteo")


def test_every_option_of_a_run_reaches_a_step() -> None:
    known = {*OF_THE_RUN, *dict(source_settings()), *retrain.component_spec.inputs}
    assert {option.name for option in main.commands["run"].params} <= known


def test_a_run_without_options_is_the_recipe_of_defaults_but_for_one_seed_and_a_short_time_for_probes() -> None:
    context = main.commands["run"].make_context("run", [])
    options = {name: value for name, value in context.params.items() if name not in ("recipe", "overrides", "run_id", "schedule")}
    expected = Recipe(preprocessing=PreprocessConfig(format="criteo", seed=1), profile_budget_s=45.0)
    with context:
        assert recipe_of_command(None, (), options) == expected


def test_every_setting_is_a_parameter_of_the_pipeline_with_the_same_default() -> None:
    inputs = retrain.component_spec.inputs
    for name, default in SETTINGS.items():
        assert name in profile_utilization.component_spec.inputs
        expected = ",".join(map(str, default)) if isinstance(default, tuple) else default
        assert inputs[name].default == expected, name
