"""Work divided among processes of one machine."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from components.errors import WorkflowError

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_processes(work: Callable[[Task], Result], tasks: Sequence[Task], processes: int) -> Iterator[tuple[int, Result]]:
    """What `work` (a function of a module) makes of each task, as they end: index and result. One process is this one.

    Raises:
        WorkflowError: a process was killed. What `work` raises comes out as it is, and ends all processes.
    """
    if min(processes, len(tasks)) <= 1:
        yield from ((index, work(task)) for index, task in enumerate(tasks))
        return
    others = set(multiprocessing.active_children())
    # Started afresh: a fork would copy locks that threads of this process hold, TensorFlow's among them.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(tasks)), mp_context=context, initializer=_leave_signals_to_parent)
    try:
        running = {pool.submit(work, task): index for index, task in enumerate(tasks)}
        for ended in as_completed(running):
            yield running[ended], ended.result()
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        if isinstance(error, BrokenProcessPool):
            raise WorkflowError(
                "a process of this command was killed; see that the machine has memory left, and try again"
            ) from None
        raise
    finally:
        pool.shutdown()


def _leave_signals_to_parent() -> None:
    """Ctrl-C reaches every process of a terminal; the parent ends its children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
