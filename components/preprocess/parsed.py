"""What a parser makes of a chunk: the rows it holds, the rows it refuses, and what it noticed.

A parser is a function of a chunk. One that gives columns and not ids, and a transform that makes ids of them, are one parser
to whoever reads: `lambda chunk: transformed(transform, columns_of(chunk))`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.preprocess.chunks import Chunk
from components.records import Batch

Reason = Literal[
    "bytes", "carriage return", "category", "cell", "columns", "damaged", "encoding", "example", "id", "label", "missing label",
    "NUL", "number", "pair", "quotes", "record too long", "repeated field", "repeated id", "time", "type", "value", "values",
    "width",
]  # fmt: skip
# Labels as sources write them, and what they mean.
LABELS = {0.0: 0.0, -1.0: 0.0, 1.0: 1.0}


class BadRow(InvalidRecords):
    """One row is wrong; `reason` is its kind, under which it is counted where wrong rows are skipped."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return self.message


class Reject(NamedTuple):
    """A row that is refused: its line or record, the kind of reason, and the whole sentence."""

    number: int
    reason: Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The rows of a chunk.

    Attributes:
        batch: rows that are fine.
        numbers: line or record of each of them, int64 [B].
        rejects: rows that are not, in the order of the file.
        fatal: what makes the rest of the file unreadable after all these rows; empty when nothing does.
        missing, completed, repeated: cells that were empty; rows that lost cells at their end; rows with an id more than once.
        unseen: tokens that the transform does not know. hashes: of the distinct tokens of each hashed column.
        by_column: of a table, missing and unseen by column, int64 [2, columns].
    """

    batch: Batch
    numbers: NDArray[np.int64]
    rejects: tuple[Reject, ...] = ()
    fatal: str = ""
    missing: int = 0
    completed: int = 0
    repeated: int = 0
    unseen: int = 0
    hashes: tuple[NDArray[np.uint64], ...] = ()
    by_column: NDArray[np.int64] | None = None

    def only(self, chosen_B: NDArray[np.bool_]) -> "Parsed":
        """Some of the rows; what was counted and refused stays."""
        if chosen_B.all():
            return self
        rows = np.flatnonzero(chosen_B)
        return replace(self, batch=self.batch.rows(rows), numbers=self.numbers[rows])


Parser = Callable[[Chunk], Parsed]


def rows_of(parser: Parser, chunk: Chunk) -> Batch:
    """The rows of a chunk, all of which must be fine.

    Raises:
        InvalidRecords: the first row that is not.
    """
    parsed = parser(chunk)
    for reject in parsed.rejects:
        raise InvalidRecords(reject.message)
    if parsed.fatal:
        raise InvalidRecords(parsed.fatal)
    return parsed.batch


def place(path: Path, kind: Literal["line", "record"], number: int) -> str:
    return f"{path}, {kind} {number}"
