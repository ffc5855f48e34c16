"""How commands end: with an answer as text or, under --json, as a document; or with one line that says what went wrong.

A WorkflowError is printed as one line and the exit code is 1; a signal that asks to end is one line too, and 128 and its number;
a full disk and its like are one line; anything else is a bug and keeps its traceback.
"""

import errno
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from components.errors import WorkflowError
from pipelines.signals import Stopped, raising_signals

# Trouble of the machine, not of ours, wherever it strikes.
WHAT_TO_DO = {
    errno.ENOSPC: "free some space, or choose a folder on another disk",
    errno.EDQUOT: "free some space, or choose a folder on another disk",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "change its permissions, or choose another path",
    errno.ENOTDIR: "a file is in the way of a folder; choose another path",
    errno.EISDIR: "a folder is in the way of a file; choose another path",
    errno.EEXIST: "a file is in the way; choose another path",
}


JSON = "ctrflow.json"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command found: text for people, and a document of JSON's types for programs."""

    text: str
    document: Mapping[str, Any] | Sequence[Any]


def wants_json() -> bool:
    """Whether the running command is to print a document."""
    return bool(click.get_current_context().meta.get(JSON))


def _remember(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    ctx.meta[JSON] = value


class Command(click.Command):
    """A command that prints the Answer it returns, and has --json."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        said = "print a document for programs"
        self.params.append(click.Option(["--json"], is_flag=True, help=said, expose_value=False, callback=_remember))

    def invoke(self, ctx: click.Context) -> Any:
        answer = super().invoke(ctx)
        if isinstance(answer, Answer):
            text = json.dumps(answer.document, indent=2, allow_nan=False) if ctx.meta[JSON] else answer.text
            if text:
                click.echo(text)
        return answer


class Group(click.Group):
    """Commands that belong together."""

    command_class = Command
    group_class = type


class Commands(Group):
    """Prints wrong usage, WorkflowErrors and signals as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with raising_signals():
                return super().invoke(ctx)
        except WorkflowError as error:
            click.echo(f"ctrflow: {error}", err=True)
            ctx.exit(1)
        except click.UsageError as error:
            if isinstance(error, click.exceptions.NoArgsIsHelpError):
                raise
            command = error.ctx.command_path if error.ctx else "ctrflow"
            click.echo(f"ctrflow: {error.format_message().rstrip('.')}; see {command} --help", err=True)
            ctx.exit(1)
        except OSError as error:
            if error.errno not in WHAT_TO_DO:
                raise
            click.echo(
                f"ctrflow: {error.filename or ctx.invoked_subcommand}: {error.strerror}; {WHAT_TO_DO[error.errno]}", err=True
            )
            ctx.exit(1)
        except Stopped as stopped:
            with suppress(OSError):  # a terminal that was closed takes no lines
                click.echo(f"ctrflow: stopped by {stopped}; everything that ran has ended", err=True)
            ctx.exit(128 + stopped.number)
