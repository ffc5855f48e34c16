"""Options of the command line that say what raw click logs are."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def format_option(*more: str) -> Callable[[Command], Command]:
    """Of what format a source is: one that the pipeline takes, or one of these."""
    return click.option("--format", "source_format", type=click.Choice(["criteo", "libsvm", "tfrecord", *more]), default="criteo")


def table_options(command: Command) -> Command:
    """What the columns of a table mean, and how they become ids and values."""
    for option in (
        click.option("--field-base", type=int, default=0, help="libffm: the smallest field number, 0 or 1"),
        click.option("--values-per-field", type=int, default=1, help="libffm: how often a field may stand in a row"),
        click.option(
            "--columns",
            default="",
            help="of csv, parquet, named features: JSON file, or 'label=click; numeric=price'",
        ),
        click.option("--separator", type=click.Choice([",", ";", "tab"]), default=",", help="csv: what stands between cells"),
        click.option("--names", default="", help="csv without a header: the columns, with commas between"),
        click.option("--transform", default="", help="csv, parquet: transform.json of an earlier dataset; else one is fitted"),
        click.option("--categories", type=click.Choice(["hash", "vocabulary"]), default="hash"),
        click.option("--hash-size", type=int, default=200_000, help="ids that all hashed columns share"),
        click.option("--min-count", type=int, default=4, help="vocabulary: how often a token must stand in training rows"),
        click.option("--max-size", type=int, default=0, help="vocabulary: most tokens of a column; 0 = all"),
        click.option("--numbers", type=click.Choice(["log", "bucket", "standard", "min_max"]), default="log"),
        click.option("--buckets", type=int, default=32, help="bucket: parts of a numeric column"),
    ):
        command = option(command)
    return command


def format_options(command: Command) -> Command:
    """What a source is."""
    for option in (
        click.option("--id-base", type=int, default=0, help="the smallest id of libsvm and tfrecord input, 0 or 1"),
        click.option("--feature-size", type=int, default=0, help="rows of the id table; 0 = from the data (criteo: 200,000)"),
        click.option("--field-size", type=int, default=0, help="fields of a row; 0 = from the first row (criteo: 39)"),
        click.option("--validation-fraction", type=float, default=0.1, help="share of the rows that is held out"),
    ):
        command = option(command)
    return command
