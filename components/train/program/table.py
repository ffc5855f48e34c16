"""What a placement knows of an embedding table: its size, how it begins, and how its rows are updated. Nothing of the model.

Shapes: V rows, E parameters a row, S numbers a row with the optimizer's slots, U distinct ids.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from components.train.program.kernels import Cells


@dataclass(frozen=True, kw_only=True)
class Table:
    """An embedding table wherever its rows are.

    Attributes:
        initial: rows start..stop-1 with their slots as training begins with them, float32 [stop - start, S].
        update: one optimizer step on rows of distinct ids of a variable [rows, S]: variable, ids [U], gradient [U, E]. It returns
            the operation, in a graph.
    """

    rows: int
    parameters: int
    stored: int
    initial: Callable[[int, int], NDArray[np.float32]]
    update: Callable[[Any, Any, Any], Any]

    @property
    def row_bytes(self) -> int:
        return 4 * self.stored


class Placement(Protocol):
    """Where the rows of a table live, and what travels in a step.

    A step calls `lookup`, `exchange`, `update`, in a graph; what each returns is for the next. The other methods are called by all
    ranks together. `lookup_travels`: whether `lookup` waits for other ranks.
    """

    lookup_travels: bool

    def lookup(self, cells: Cells) -> tuple[Any, Any]:
        """Rows [U, E] of this rank's distinct ids, and what `exchange` needs to know of them."""
        ...

    def exchange(self, found: Any, gradient_UE: Any) -> Any:
        """Send this rank's gradients of those rows where they belong; what `update` needs."""
        ...

    def update(self, exchanged: Any) -> None:
        """Apply the mean gradient of all ranks to the rows that this rank holds."""
        ...

    def load(self, table_VS: NDArray[np.float32] | None) -> None:
        """Take over the whole table, which rank 0 alone has; None elsewhere."""
        ...

    def begin(self) -> None:
        """Start from the initial table."""
        ...

    def whole(self) -> NDArray[np.float32]:
        """The whole table with slots on rank 0, [V, S]; no rows on the others."""
        ...

    def replicated(self) -> list[Any]:
        """The variables that all ranks must hold alike, to be compared; none where each rank has its own rows."""
        ...

    def bytes_of(self, rank: int) -> int:
        """Bytes of the table that a rank holds."""
        ...
