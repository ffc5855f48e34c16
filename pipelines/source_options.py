"""Options of the command line that say what raw click logs are, and what is made of them.

Each has the name of the field of PreprocessConfig (or of a part of it, such as TransformConfig) that it sets.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import click

from components.records import ENCODINGS

if TYPE_CHECKING:  # pyarrow takes a while to import, which `ctrflow --help` need not wait for
    from components.preprocess.config import PreprocessConfig

Command = TypeVar("Command", bound=Callable[..., Any])


def _separator(ctx: click.Context, option: click.Parameter, word: str) -> str:
    return "\t" if word == "tab" else word


def _names(ctx: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def reading_options(command: Command) -> Command:
    """How raw logs are written, and what happens to rows that are wrong."""
    formats = ["criteo", "libsvm", "tfrecord", "csv", "parquet", "libffm"]
    for option in (
        click.option("--max-bad-rows", type=int, default=1000, help="more than so many skipped rows stop, too"),
        click.option("--on-bad-row", type=click.Choice(["stop", "skip"]), default="stop", help="skip counts them by reason"),
        click.option("--values-per-field", type=int, default=1, help="libffm: how often a field may stand in a row"),
        click.option("--field-base", type=int, default=0, help="libffm: the smallest field number, 0 or 1"),
        click.option("--names", default="", callback=_names, help="csv without a header: the columns, with commas between"),
        click.option(
            "--separator",
            type=click.Choice([",", ";", "tab"]),
            default=",",
            callback=_separator,
            help="csv: what stands between cells",
        ),
        click.option("--format", type=click.Choice(formats), default="criteo"),
    ):
        command = option(command)
    return command


def source_options(command: Command) -> Command:
    """What a source is, and the dataset that is made of it: one option for each field of PreprocessConfig but the seed."""
    for option in (
        click.option("--processes", type=int, default=0, help="that parse; 0 = as many as there are CPUs, 1 for small inputs"),
        click.option(
            "--workers", type=int, default=1, help="of all hosts that will train: shares the train split's files out evenly"
        ),
        click.option("--shards", type=int, default=0, help="files of the train split; 0 = as many as suit the rows and --workers"),
        click.option("--encoding", type=click.Choice(ENCODINGS), default="blocks", help="of the dataset"),
        click.option("--buckets", type=int, default=32, help="bucket: parts of a numeric column"),
        click.option("--numbers", type=click.Choice(["log", "bucket", "standard", "min_max"]), default="log"),
        click.option("--max-size", type=int, default=0, help="vocabulary: most tokens of a column; 0 = all"),
        click.option("--min-count", type=int, default=4, help="vocabulary: how often a token must stand in training rows"),
        click.option("--hash-size", type=int, default=200_000, help="ids that all hashed columns share"),
        click.option("--categories", type=click.Choice(["hash", "vocabulary"]), default="hash"),
        click.option("--grow-to", type=int, default=0, help="with --transform: new tokens get ids, up to so many in all; 0 = none"),
        click.option(
            "--transform",
            default="",
            help="transform.json of an earlier dataset or model; in a run also: champion; else one is fitted",
        ),
        click.option("--columns", default="", help="of csv, parquet, named features: JSON file, or 'label=click; numeric=price'"),
        click.option("--negative-rate", type=float, default=1.0, help="share of the negative training rows that is kept"),
        click.option("--split-boundary", default="", help="time: rows from here on validate; default: the last UTC day"),
        click.option("--split-column", default="", help="hash, time: the column that divides the rows of a table"),
        click.option(
            "--split-by",
            type=click.Choice(["row", "hash", "time"]),
            default="row",
            help="what validates: rows drawn one by one, all rows of drawn texts of a column, or the latest rows",
        ),
        click.option(
            "--validation-fraction", type=float, default=None, help="share of the rows (hash: texts) that is held out; default: 0.1"
        ),
        click.option("--id-base", type=int, default=0, help="the smallest id of libsvm and tfrecord input, 0 or 1"),
        click.option("--feature-size", type=int, default=0, help="rows of the id table; 0 = from the data or transform"),
        click.option("--field-size", type=int, default=0, help="fields of a row; 0 = from the first row (criteo: 39)"),
    ):
        command = option(command)
    return reading_options(command)


def preprocess_config(options: Mapping[str, Any]) -> "PreprocessConfig":
    """The settings that options set; what they say beside is left alone.

    Raises:
        InvalidConfig: settings that do not go together.
    """
    from components.preprocess.config import PreprocessConfig

    config: PreprocessConfig = _made(PreprocessConfig, options)
    return config


def _made(kind: type, options: Mapping[str, Any]) -> Any:
    """A dataclass whose fields are options of their names, and whose parts are made alike."""
    hints = get_type_hints(kind)
    own = [field.name for field in fields(kind)]
    return kind(**{name: _made(hints[name], options) if is_dataclass(hints[name]) else options[name] for name in own})
