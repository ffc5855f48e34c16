"""The table exists once, in memory that all ranks of one host share; row `id` is updated by rank id % n, and read by all.

No rows travel. A step makes one exchange, each rank with each: distinct ids and their gradients go to the rank that updates these
rows. What arrives is ordered by rank and equal ids are summed in that order, so results are reproducible. Memory of the host,
and the work of updates, do not grow with the number of ranks.
"""

from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.errors import InvalidConfig
from components.train.program.exchange import Exchange
from components.train.program.kernels import Cells, gather_rows, group_by_id, load, sum_rows
from components.train.program.shared_memory import inherited_memory
from components.train.program.table import Table

# Rows that are made or taken over at a time.
CHUNK_ROWS = 65_536


class Shared:
    lookup_travels = False

    def __init__(self, table: Table, exchange: Exchange) -> None:
        self._table, self._rank, self._size, self._exchange = table, hvd.rank(), hvd.size(), exchange
        file = inherited_memory()
        if file is None:
            raise InvalidConfig("embedding_placement shared: its ranks must be on one host; use sharded, or one host")
        self._variable = tf.Variable(tf.zeros([0, table.stored]), shape=[None, table.stored], name="table")
        load().ctrflow_host_table(self._variable.handle, file=file, ranks=self._size, rows=table.rows, width=table.stored)

    def lookup(self, cells: Cells) -> tuple[Any, Any]:
        return gather_rows(self._variable, cells.ids_U, self._table.parameters), cells.ids_U

    def exchange(self, found: Any, gradient_UE: Any) -> Any:
        owner_U = found % self._size
        order_U = group_by_id(owner_U).order_N
        splits = tf.math.bincount(owner_U, minlength=self._size, maxlength=self._size)
        ids, _ = self._exchange.alltoall(tf.gather(found, order_U), splits, "ids")
        gradient, _ = self._exchange.alltoall(tf.gather(gradient_UE, order_U), splits, "gradients")
        return group_by_id(ids), gradient

    def update(self, exchanged: Any) -> None:
        cells, gradient = exchanged
        updated = self._table.update(self._variable, cells.ids_U, sum_rows(gradient, cells) / float(self._size))
        with tf.control_dependencies([updated]):
            # No rank may look rows up again before all ranks have updated theirs.
            self._wait_for_all()

    def _wait_for_all(self) -> None:
        self._exchange.gather([tf.zeros([1])], "ready")

    def _put(self, start: int, rows: Any) -> None:
        self._variable.scatter_update(tf.IndexedSlices(rows, tf.range(start, start + len(rows))))

    def begin(self) -> None:
        for start in range(self._rank * CHUNK_ROWS, self._table.rows, self._size * CHUNK_ROWS):
            self._put(start, self._table.initial(start, min(start + CHUNK_ROWS, self._table.rows)))
        self._wait_for_all()

    def load(self, table_VS: NDArray[np.float32] | None) -> None:
        if table_VS is not None:
            for start in range(0, self._table.rows, CHUNK_ROWS):
                self._put(start, table_VS[start : start + CHUNK_ROWS])
        self._wait_for_all()

    def whole(self) -> NDArray[np.float32]:
        # A step ends when all ranks have updated their rows, and no rank updates rows again before this one takes part.
        found: NDArray[np.float32] = self._variable.numpy() if self._rank == 0 else np.empty((0, self._table.stored), np.float32)
        return found

    def replicated(self) -> list[Any]:
        return []

    def bytes_of(self, rank: int) -> int:
        return len(range(rank, self._table.rows, self._size)) * self._table.row_bytes
