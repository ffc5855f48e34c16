"""Options of the command line that say what is to be learned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from components.errors import InvalidConfig
from components.learning import MODELS, OPTIMIZERS, Learning

Command = TypeVar("Command", bound=Callable[..., Any])


def file_or_module(ctx: click.Context, option: click.Parameter, own_model: str) -> str:
    """The file as training processes find it, which run in folders of their own."""
    if not own_model.endswith(".py"):
        return own_model
    if not Path(own_model).is_file():
        raise InvalidConfig(f"--own-model {own_model}: no such file")
    return str(Path(own_model).absolute())


def model_options(command: Command) -> Command:
    """What is to be learned, one option for each field of Learning."""
    layers = ",".join(map(str, Learning.deep_layers))
    for option in (
        click.option("--epochs", type=int, default=Learning.epochs),
        click.option("--batch-size", type=int, default=1024, help="examples in one update, over all workers"),
        click.option("--warmup-steps", type=int, default=Learning.warmup_steps, help="steps in which the learning rate rises"),
        click.option("--learning-rate-factor", type=float, default=1.0, help="times the learning rate where several workers train"),
        click.option("--learning-rate", type=float, default=Learning.learning_rate),
        click.option("--ftrl-l2", type=float, default=Learning.ftrl_l2, help="optimizer ftrl: strength of its own l2"),
        click.option("--ftrl-l1", type=float, default=Learning.ftrl_l1, help="optimizer ftrl: strength of l1; makes weights 0"),
        click.option("--momentum", type=float, default=Learning.momentum, help="optimizer momentum: what a step keeps"),
        click.option("--optimizer", type=click.Choice(OPTIMIZERS), default=Learning.optimizer),
        click.option(
            "--mixed-precision/--no-mixed-precision",
            default=False,
            help="products in float16 on GPUs, bfloat16 where the CPU has it",
        ),
        click.option("--l2", type=float, default=Learning.l2, help="decay of the weights and embedding rows that a step touches"),
        click.option("--batch-norm-momentum", type=float, default=Learning.batch_norm_momentum, help="of its moving statistics"),
        click.option("--batch-norm/--no-batch-norm", default=Learning.batch_norm, help="normalise the outputs of deep layers"),
        click.option("--dropout", default="", help="share of a deep layer's outputs to drop: one rate, or one a layer, by commas"),
        click.option("--cross-rank", type=int, default=Learning.cross_rank, help="model dcn_v2: rank of cross matrices; 0 = whole"),
        click.option("--cross-layers", type=int, default=Learning.cross_layers, help="model dcn_v2"),
        click.option("--deep-layers", default=layers, help="widths of the deep part, separated by commas"),
        click.option("--embedding-size", type=int, default=Learning.embedding_size),
        click.option("--own-model", default="", callback=file_or_module, help="model own: a Python file or module"),
        click.option("--model", type=click.Choice(MODELS), default=Learning.model),
    ):
        command = option(command)
    return command


def numbers(option: str, text: str, kind: type, expected: str) -> tuple[Any, ...]:
    """128,64,32 as numbers."""
    try:
        return tuple(kind(number) for number in text.split(",") if number.strip())
    except ValueError:
        raise InvalidConfig(f"{option} {text!r}: {expected}") from None


def model_settings(*, deep_layers: str, dropout: str, **settings: Any) -> Any:
    """ModelSettings from options."""
    from components.plan import ModelSettings

    widths = numbers("--deep-layers", deep_layers, int, "whole numbers separated by commas are expected, like 128,64,32")
    rates = numbers("--dropout", dropout, float, "a number, or numbers separated by commas, are expected, like 0.5,0.25")
    return ModelSettings(deep_layers=widths, dropout=rates, **settings)
