"""Whatever can be learned can be set from the command line and in the pipeline."""

from dataclasses import fields

import pytest

from components.learning import Learning
from components.profile_utilization.component import profile_utilization
from pipelines.cli import main
from pipelines.retrain import retrain

SETTINGS = {item.name: item.default for item in fields(Learning)}


@pytest.mark.parametrize("command", ["profile", "train", "run"])
def test_every_setting_is_an_option_with_the_same_default(command: str) -> None:
    options = {option.name: option.default for option in main.commands[command].params}
    for name, default in SETTINGS.items():
        assert name in options
        expected = ",".join(map(str, default)) if isinstance(default, tuple) else default
        assert options[name] == expected, name


def test_every_setting_is_a_parameter_of_the_pipeline_with_the_same_default() -> None:
    inputs = retrain.component_spec.inputs
    for name, default in SETTINGS.items():
        assert name in profile_utilization.component_spec.inputs
        expected = ",".join(map(str, default)) if isinstance(default, tuple) else default
        assert inputs[name].default == expected, name
