"""How commands end when they fail.

A WorkflowError is printed as one line and the exit code is 1; a signal that asks to end is one line too, and 128 and its number;
a full disk and its like are one line; anything else is a bug and keeps its traceback.
"""

import errno
from contextlib import suppress
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


class Commands(click.Group):
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
