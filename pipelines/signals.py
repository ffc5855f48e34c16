"""Signals that ask a command to end, as an exception, so that whatever it holds is given back on the way out."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Ctrl-C, a request to end, and a terminal that was closed.
ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """One of these signals arrived; carries its number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def raising_signals() -> Iterator[None]:
    """The first signal raises Stopped inside the block; later ones are ignored, so that they do not disturb the way out.

    SIGHUP stays ignored where it is: that is how nohup works.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    before = {number: signal.getsignal(number) for number in ASKING}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
