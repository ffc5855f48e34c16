"""Log lines about how far Spark is, while the driver waits for it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from components.preprocess.progress import INTERVAL_S
from components.preprocess.spark.failures import FAILURES

log = logging.getLogger(__name__)


@contextmanager
def watched(context: Any, what: str, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Say every `interval_s` how many tasks of the stages that are at work have ended; `context` is a SparkContext."""
    ended = Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not ended.wait(interval_s):
            try:
                found = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
            except FAILURES:
                return  # Spark is gone, which the driver hears from what it waits for
            done, tasks = sum(info.numCompletedTasks for info in found), sum(info.numTasks for info in found)
            if tasks:
                log.info("%s: %d of %d tasks of Spark's stage", what, done, tasks)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
