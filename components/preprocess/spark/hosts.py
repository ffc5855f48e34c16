"""Work that waits for hosts is stopped when none come: Spark itself would wait for ever, and says so to nobody."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from components.errors import WorkflowError
from components.preprocess.spark.failures import FAILURES

log = logging.getLogger(__name__)

_EVERY_S = 10.0
_PATIENCE_S = 600.0


@contextmanager
def hosts_watched(context: Any, patience_s: float = _PATIENCE_S, every_s: float = _EVERY_S) -> Iterator[None]:
    """Cancel what the block asks of Spark when it has had no executor for `patience_s`; `context` is a SparkContext.

    Raises:
        WorkflowError: all hosts were lost, and none came back.
    """
    ended, given_up = Event(), Event()

    def watch() -> None:
        alone_since = None
        while not ended.wait(every_s):
            try:
                if not _waits_alone(context):
                    alone_since = None
                    continue
                now = time.monotonic()
                if alone_since is None:
                    alone_since = now
                    log.warning("Spark has no executor left and waits for one, for %.0f s at most", patience_s)
                if now - alone_since >= patience_s:
                    given_up.set()
                    context.cancelAllJobs()
            except FAILURES:
                return  # Spark is gone, which the driver hears from what it waits for

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except FAILURES as error:
        if not given_up.is_set():
            raise
        raise WorkflowError(
            f"Spark failed: no executor for {patience_s:.0f} s, all its hosts are lost; nothing was written, "
            "see why they ended, such as for want of memory, and run it again"
        ) from error
    finally:
        ended.set()
        thread.join()


def _waits_alone(context: Any) -> bool:
    """Whether a job is there and no executor; where Spark is one process (local[2]), the driver is one."""
    scala = context._jsc.sc()
    return bool(
        not scala.isLocal()
        and context.statusTracker().getActiveJobsIds()
        # The driver is among them.
        and len(scala.statusTracker().getExecutorInfos()) < 2
    )
