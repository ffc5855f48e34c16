"""Options that name a recipe and change some of its settings, and the recipe that a command's options make."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from components.errors import InvalidConfig
from components.learning import Learning
from pipelines.learning_options import model_settings
from pipelines.source_options import preprocess_config

if TYPE_CHECKING:  # a recipe knows every step, which `ctrflow --help` need not wait for
    from pipelines.recipe import Recipe

Command = TypeVar("Command", bound=Callable[..., Any])
FILE = click.Path(dir_okay=False, path_type=Path)
# What a recipe is called where no other name is said.
RECIPE = Path("recipe.yaml")


def recipe_options(command: Command) -> Command:
    """--recipe and --set."""
    changes = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="such as learning.epochs=3")
    return click.option("--recipe", type=FILE, help="what a retraining is; ctrflow init writes one")(changes(command))


def recipe_of_command(recipe: Path | None, overrides: tuple[str, ...], options: Mapping[str, Any]) -> "Recipe":
    """The recipe of a file, or the one that options describe.

    Raises:
        InvalidConfig: both, or settings that are wrong.
    """
    from components.data_check import read_limits
    from components.evaluate.step import names_of
    from components.promote.policy import policy_of
    from components.select_strategy.limits import limits_of
    from pipelines.recipe import Recipe, read_recipe

    if recipe:
        source = click.get_current_context().get_parameter_source
        if given := [name for name in options if source(name) is not click.core.ParameterSource.DEFAULT]:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise InvalidConfig(f"{flags} with --recipe: the recipe says that; change it, or give --set key=value")
        return read_recipe(recipe, overrides)
    if overrides:
        raise InvalidConfig(f"--set {overrides[0]}: changes a recipe; name it with --recipe")
    learned = ("batch_size", *(item.name for item in fields(Learning)))
    taken = ("data", "name", "sample_rows", "profile_budget_s", "warm_start", "margin", "require_promotion", "runs", "models")
    return Recipe(
        **{name: options[name] for name in taken},
        strategy=options["strategy"] or "",
        preprocessing=preprocess_config(options),
        slices=names_of(options["slices"]),
        limits=limits_of(options["limits"]),
        instances=str(options["instances"] or ""),
        policy=policy_of(options["policy"]),
        data_limits=read_limits(options["data_limits"]),
        learning=model_settings(**{name: options[name] for name in learned}),
    )
