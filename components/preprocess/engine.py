"""What does the work: processes of this machine, or Spark (spark/engine.py). The same datasets come of both, byte by byte.

Processes: the main one reads and cuts files (chunks.py); workers parse and check, and put rows with their keys into buckets on
scratch disk (worker.py, keys.py, spill.py); then they sort buckets and write shards.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, groupby
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from components.manifest import SplitName
from components.preprocess.crew import Crew
from components.preprocess.digests import Digests
from components.preprocess.fitting import Counts
from components.preprocess.progress import Progress
from components.preprocess.reading import chunks_of
from components.preprocess.repeats import repeated_rows
from components.preprocess.spill import move_one
from components.preprocess.splits import TimeRange, whole_range
from components.preprocess.tally import Tally
from components.preprocess.worker import ChunkResult, ShardTask, Work
from components.records import Shard

# What a pass over all files does with a chunk: methods of Worker.
Method = Literal["time", "count", "parse"]
# Of a split that are written as one piece of work: more would even out processes of unequal speed, and read more buckets twice.
_STRETCHES_A_PROCESS = 2


class Engine(Protocol):
    """Passes over all files, and what follows the last one. Whoever opened it closes it; nothing of it is left then but shards."""

    def take(self, work: Work) -> None:
        """Begin anew with other work."""

    def read(self, method: Method, files: Sequence[Path]) -> Iterator[ChunkResult]:
        """All chunks of all files through the workers; what they found, in the order of files and chunks.

        Raises:
            InvalidRecords: what makes a file unreadable, after the chunks before it.
        """

    def digests(self, files: Sequence[Path]) -> AbstractContextManager[Callable[[Path], str]]:
        """The SHA-256 of each file, taken while the block parses, or when it is asked for.

        Raises:
            OSError: on being asked, a file that cannot be opened or read.
        """

    def times(self) -> TimeRange | None:
        """When the rows are, where times divide them."""

    def counted(self) -> Counts:
        """What the training rows hold, after "count"."""

    def finished(self) -> tuple[Tally, NDArray[np.int64]]:
        """After "parse": what was counted of all rows, and how many there are [split, bucket]."""

    def move_one(self, counts: NDArray[np.int64], source: SplitName) -> None:
        """Give the other split, which is empty, one row: the smallest key of train, or the largest of validation."""

    def write(self, tasks: Sequence[ShardTask]) -> Iterator[Shard]:
        """The shards, in the order of tasks."""

    def repeats(self) -> int:
        """How many validation rows also stand in train, when all shards are written."""


OpenEngine = Callable[[Work], AbstractContextManager[Engine]]


class Processes:
    """The engine of one machine."""

    def __init__(self, work: Work, crew: Crew) -> None:
        self._work, self._crew = work, crew

    def take(self, work: Work) -> None:
        self._work = work
        self._crew.each("take", work)

    def read(self, method: Method, files: Sequence[Path]) -> Iterator[ChunkResult]:
        progress = Progress(files)
        for result in self._crew.ordered(method, chunks_of(self._work.format, files, self._work.table)):
            yield result
            progress.add(result.file_index, result.offset, result.rows + result.left_out)

    @contextmanager
    def digests(self, files: Sequence[Path]) -> Iterator[Callable[[Path], str]]:
        with Digests(files) as digests:
            yield digests.of

    def times(self) -> TimeRange | None:
        return whole_range(self._crew.each("times"))

    def counted(self) -> Counts:
        assert self._work.fitting is not None
        return self._work.fitting.merge(found for found in self._crew.each("counted") if found)

    def finished(self) -> tuple[Tally, NDArray[np.int64]]:
        (tally, counts), *others = self._crew.each("finish")
        for other, more in others:
            tally.merge(other)
            counts = counts + more
        return tally, counts

    def move_one(self, counts: NDArray[np.int64], source: SplitName) -> None:
        move_one(self._work.reader(), counts, source)

    def write(self, tasks: Sequence[ShardTask]) -> Iterator[Shard]:
        return chain.from_iterable(self._crew.ordered("write", stretches(tasks, self._crew.count)))

    def repeats(self) -> int:
        return repeated_rows(self._work.scratch, self._work.bits)


def stretches(tasks: Sequence[ShardTask], processes: int) -> list[Sequence[ShardTask]]:
    """Shards in the order of tasks, neighbours of one split together, so many that all processes end at about the same time."""
    found: list[Sequence[ShardTask]] = []
    for _, of_split in groupby(tasks, lambda task: task.split):
        own = list(of_split)
        size = -(-len(own) // (_STRETCHES_A_PROCESS * processes))
        found.extend(own[start : start + size] for start in range(0, len(own), size))
    return found


@contextmanager
def one_machine(work: Work, processes: int) -> Iterator[Engine]:
    """Processes that are gone when the block ends, however it ends."""
    with Crew(work, processes) as crew:
        yield Processes(work, crew)
