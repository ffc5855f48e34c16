"""Log lines about how far reading is."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

log = logging.getLogger(__name__)
INTERVAL_S = 10.0


class Progress:
    """Counts bytes and rows, and says every INTERVAL_S how many there were and how long the rest takes."""

    def __init__(self, files: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        sizes = [path.stat().st_size for path in files]
        self._before = [sum(sizes[:index]) for index in range(len(sizes))]
        self.total_bytes = sum(sizes)
        self._clock, self._rows = clock, 0
        self._start = self._said = clock()

    def add(self, file_index: int, offset: int, rows: int) -> None:
        """Rows of a chunk; `offset` is how much of the file was read with it."""
        self._rows += rows
        now = self._clock()
        if now - self._said >= INTERVAL_S:
            self._said = now
            log.info("%s", self.line(self._before[file_index] + offset, now - self._start))

    def line(self, read_bytes: int, seconds: float) -> str:
        share = read_bytes / self.total_bytes if self.total_bytes else 1.0
        left = seconds * (1 / share - 1) if share else 0.0
        return f"{self._rows:,} rows read, {self._rows / seconds:,.0f} rows/s, {share:.0%} of the input, about {left:,.0f} s left"
