"""The command `ctrflow`, from its first import on: a signal while modules are still being read ends it in silence."""

import sys

from pipelines.signals import Stopped, raising_signals


def main() -> None:
    """Run the command line. Nothing has begun before it is imported, so there is nothing to say and nothing to give back."""
    try:
        with raising_signals():
            from pipelines.cli import main as command_line
    except Stopped as stopped:
        sys.exit(128 + stopped.number)
    command_line()


if __name__ == "__main__":
    main()
