"""Options that several commands share: which model, what it is measured by, and what day and model must keep to."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def name_option(command: Command) -> Command:
    return click.option("--name", default="deepfm", help="the model's name in the store")(command)


def slices_option(command: Command) -> Command:
    words = "measure by the values of these fields, too; names, separated by commas"
    return click.option("--slices", default="", metavar="FIELDS", help=words)(command)


def limits_option(command: Command) -> Command:
    return click.option(
        "--data-limits", default="{}", metavar="JSON", help="what a day's rows must keep to (components/data_check.py)"
    )(command)


def policy_option(command: Command) -> Command:
    return click.option(
        "--policy", default="{}", metavar="JSON", help="what else it must prove: fields of components/promote/policy.py"
    )(command)
