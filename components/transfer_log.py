"""Log lines of long copies: how far they are, how fast, and how long the rest takes at that speed."""

import logging
import threading
import time

log = logging.getLogger(__name__)

INTERVAL_S = 10.0


class TransferLog:
    """A line every INTERVAL_S, from whichever thread comes first."""

    def __init__(self, verb: str, where: str, total: int) -> None:
        self._verb, self._where, self._total = verb, where, total
        self._done, self._lock = 0, threading.Lock()
        self.start = self._said = time.monotonic()

    def add(self, count: int) -> None:
        """So many bytes more; less than none where a part is begun again."""
        with self._lock:
            self._done += count
            now = time.monotonic()
            if now - self._said < INTERVAL_S:
                return
            self._said = now
            log.info("%s", progress_line(self._verb, self._done, self._total, self._where, now - self.start))


def progress_line(verb: str, done: int, total: int, where: str, seconds: float) -> str:
    left = seconds * (total - done) / max(done, 1)
    return f"{verb} {size(done)} of {size(total)} {where}, {done / seconds / 1e6:,.0f} MB/s, about {left:,.0f} s left"


def size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
