"""Options of the command line that say what a plan may cost and take."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from components.select_strategy.limits import OBJECTIVES, Limits

Command = TypeVar("Command", bound=Callable[..., Any])


def limit_options(command: Command) -> Command:
    """One option for each thing that Limits has and a person decides, and a file of instance types."""
    for option in (
        click.option("--instances", type=click.Path(dir_okay=False, path_type=Path), help="CSV of own prices and types"),
        click.option("--spot", is_flag=True, help="use interruptible capacity"),
        click.option("--most-usd-per-hour", type=float, default=0.0, help="for all hosts together; 0 = no limit"),
        click.option("--most-hosts", type=int, default=0, help="0 = 2 on this machine, 8 of a type with a price"),
        click.option("--families", default="", help="instance families to weigh besides the profiled type, such as c7i,c6i"),
        click.option("--deadline", type=float, default=0.0, help="seconds for all epochs; for objective cost_within_deadline"),
        click.option("--objective", type=click.Choice(OBJECTIVES), default="time", help="what a plan is chosen for"),
    ):
        command = option(command)
    return command


def limits_from(*, objective: Any, deadline: float, families: str, most_hosts: int, most_usd_per_hour: float, spot: bool) -> Limits:
    """Limits from options."""
    return Limits(
        objective=objective,
        deadline_s=deadline,
        families=tuple(name.strip() for name in families.split(",") if name.strip()),
        most_hosts=most_hosts,
        most_usd_per_hour=most_usd_per_hour,
        spot=spot,
    )
