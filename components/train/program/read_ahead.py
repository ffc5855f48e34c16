"""The next batch, fetched by a thread of its own while a step is at work.

Taking a batch from tf.data costs the Python of three tensors even when it lies ready: 0.25 ms, and more where all cores are busy. A
step releases the interpreter, so this thread does it meanwhile, and the loop takes what is in hand.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")

# One in the loop's hand, one ready, one in the making; tf.data has more behind it.
AHEAD = 2


class ReadAhead(Generic[Item]):
    """An iterator over `items`, in their order; what they raise is raised where it would have been."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(AHEAD)
        # A daemon: it must not keep a process whose training has ended, or failed, waiting for data.
        threading.Thread(target=self._fetch, args=(iter(items),), name="read ahead", daemon=True).start()

    def _fetch(self, items: Iterator[Item]) -> None:
        try:
            for item in items:
                self._ready.put((item, None))
            self._ready.put((None, StopIteration()))
        except BaseException as error:
            self._ready.put((None, error))

    def __iter__(self) -> "ReadAhead[Item]":
        return self

    def __next__(self) -> Any:
        item, error = self._ready.get()
        if error is not None:
            raise error
        return item
