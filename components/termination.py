"""SIGTERM as a way out that passes through every `finally`, so that a step which is asked to end can give its job back."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """SIGTERM ends the block with SystemExit(143); repeated ones do not disturb the way out.

    A caller who handles SIGTERM already, or may not on this thread, keeps what there is.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    asked = False

    def leave(signum: int, frame: object) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
