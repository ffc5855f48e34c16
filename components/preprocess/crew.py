"""Worker processes: items go to whoever is idle, results come back in the order of the items.

They are started as programs of their own, not forked (a caller may hold threads) and not by multiprocessing (which would import
the caller's main module, kfp or pytest, in each). For small inputs there is no process, only a worker of our own.
"""

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from components.errors import WorkflowError
from components.preprocess.worker import Work, Worker

# Ends a worker that does not end by itself.
_GRACE_S = 5.0


class _Process:
    """One worker process, which does one thing at a time."""

    def __init__(self, work: Work, number: int) -> None:
        ours, theirs = socket.socketpair()
        # Its libraries' own threads would fight for the cores, and a Ctrl-C is for the main process, which ends the workers.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "components.preprocess.process", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.connection = Connection(ours.detach())
        self.connection.send((work, number))

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
    """`count` workers; all of them are gone when the block ends, however it ends."""

    def __init__(self, work: Work, count: int) -> None:
        self._work, self.count = work, count
        self._own: Worker | None = None
        self._processes: list[_Process] = []

    def __enter__(self) -> "Crew":
        try:
            if self.count == 1:
                self._own = Worker(work=self._work, number=0)
            for number in range(self.count if self.count > 1 else 0):
                self._processes.append(_Process(self._work, number))
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
        if self._own:
            return [getattr(self._own, method)(argument)]
        for process in self._processes:
            process.ask(method, argument)
        return [process.answer() for process in self._processes]

    def ordered(self, method: str, items: Iterable[Any]) -> Iterator[Any]:
        """What the workers make of items, in the order of the items.

        What `items` raises is raised after the results of the items before it, so that the first thing that is wrong is named.
        """
        if self._own:
            yield from map(getattr(self._own, method), items)
            return
        source = _Source(items)
        idle = list(self._processes)
        busy: dict[Any, tuple[_Process, int]] = {}
        waiting: deque[int] = deque()
        results: dict[int, Any] = {}
        number = 0
        while True:
            while idle and source.next():
                process = idle.pop()
                process.ask(method, source.take())
                busy[process.connection] = (process, number)
                waiting.append(number)
                number += 1
            source.next()  # read ahead while all are at work
            while waiting and waiting[0] in results:
                yield results.pop(waiting.popleft())
            if not waiting and not source.next():
                break
            for connection in wait(list(busy)) if busy else ():
                process, of = busy.pop(connection)
                results[of] = process.answer()
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
