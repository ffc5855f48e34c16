"""Work divided among worker processes of one machine: items go to whoever is idle, and their results come back.

    with Crew(partial(Worker, work=work), 2) as crew:
        for result in crew.ordered("parse", chunks): ...

Each worker has an object of its own, which it makes at its start and whose methods are called with one item. Workers are programs
of their own (worker_process.py), not forked (a caller may hold threads) and not started by multiprocessing (which would import the
caller's main module, kfp or pytest, in each). One worker is no process: its object is in this one.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self, TypeVar

from components.errors import WorkflowError

Task = TypeVar("Task")
Result = TypeVar("Result")

# Ends a worker that does not end by itself.
_GRACE_S = 5.0
# Parameters of mallopt(3), and the most that it takes for the second.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGEST_THRESHOLD = -1, -3, 32 << 20


def keep_freed_memory() -> None:
    """Have this process keep what it frees, for the next arrays of the same sizes.

    glibc gives arrays of megabytes back to the kernel when they are freed, and the first touch of new pages costs more than most
    of what is done with them: 1 ns a byte in a virtual machine.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have none
        mallopt(_M_TRIM_THRESHOLD, 8 * _LARGEST_THRESHOLD)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD)


class _Process:
    """One worker process, which does one thing at a time."""

    def __init__(self, make: Callable[..., Any], number: int) -> None:
        ours, theirs = socket.socketpair()
        # A Ctrl-C is for the main process, which ends the workers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                # -P: a folder `components` where the command happens to be run is not ours.
                [sys.executable, "-P", "-m", "components.worker_process", str(theirs.fileno())],
                # Libraries' own threads would fight for the cores.
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.connection = Connection(ours.detach())
        self.connection.send((make, number))

    def ask(self, method: str, argument: Any) -> None:
        try:
            self.connection.send((method, argument))
        except ConnectionError as error:
            raise self._gone() from error

    def answer(self) -> Any:
        """What it returned; raises what it raised."""
        try:
            worked, result = self.connection.recv()
        except (EOFError, ConnectionError) as error:
            raise self._gone() from error
        if not worked:
            raise result
        return result

    def _gone(self) -> WorkflowError:
        code = self.process.wait(_GRACE_S)
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return WorkflowError(f"a worker process {ended}; if the container's memory is short, give it more or use --processes 1")

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


class Crew:
    """`count` workers, each with the object `make(number=...)`; all of them are gone when the block ends, however it ends."""

    def __init__(self, make: Callable[..., Any], count: int) -> None:
        self._make, self.count = make, count
        self._own: Any = None
        self._processes: list[_Process] = []

    def __enter__(self) -> Self:
        keep_freed_memory()
        try:
            if self.count == 1:
                self._own = self._make(number=0)
            for number in range(self.count if self.count > 1 else 0):
                self._processes.append(_Process(self._make, number))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        while self._processes:
            self._processes.pop().stop()

    def each(self, method: str, argument: Any = None) -> list[Any]:
        """What every worker returns."""
        if self._own is not None:
            return [getattr(self._own, method)(argument)]
        for process in self._processes:
            process.ask(method, argument)
        return [process.answer() for process in self._processes]

    def ordered(self, method: str, items: Iterable[Any]) -> Iterator[Any]:
        """What the workers make of items, in the order of the items.

        What `items` raises is raised after the results of the items before it, so that the first thing that is wrong is named.
        """
        results: dict[int, Any] = {}
        due = 0
        for index, result in self.as_they_end(method, items):
            results[index] = result
            while due in results:
                yield results.pop(due)
                due += 1

    def as_they_end(self, method: str, items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Index and result of each item; what `items` raises is raised when all before it have ended."""
        if self._own is not None:
            work = getattr(self._own, method)
            yield from ((index, work(item)) for index, item in enumerate(items))
            return
        source = _Source(items)
        idle = list(self._processes)
        busy: dict[Any, tuple[_Process, int]] = {}
        ended: list[tuple[int, Any]] = []
        number = 0
        while True:
            while idle and source.next():
                process = idle.pop()
                process.ask(method, source.take())
                busy[process.connection] = (process, number)
                number += 1
            source.next()  # read ahead while all are at work
            yield from ended  # not before all have work again
            if not busy:
                break
            ended = []
            for connection in wait(list(busy)):
                process, index = busy.pop(connection)
                ended.append((index, process.answer()))
                idle.append(process)
        if source.failure:
            raise source.failure


class _Source:
    """Items with one read ahead; what reading raises is kept."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._ahead: list[Any] = []
        self._ended = False
        self.failure: Exception | None = None

    def next(self) -> bool:
        """Whether there is another item."""
        if not self._ahead and not self._ended:
            try:
                self._ahead.append(next(self._items))
            except StopIteration:
                self._ended = True
            except Exception as error:
                self._ended, self.failure = True, error
        return bool(self._ahead)

    def take(self) -> Any:
        return self._ahead.pop()


@dataclass(frozen=True, kw_only=True)
class _Function:
    """A function as the object of a worker."""

    call: Callable[[Any], Any]
    number: int


def in_processes(work: Callable[[Task], Result], tasks: Sequence[Task], processes: int) -> Iterator[tuple[int, Result]]:
    """What `work` (a function of a module) makes of each task, as they end: index and result. One process is this one.

    Raises:
        WorkflowError: a process was killed. What `work` raises comes out as it is, and ends all processes.
    """
    with Crew(partial(_Function, call=work), max(min(processes, len(tasks)), 1)) as crew:
        yield from crew.as_they_end("call", tasks)
