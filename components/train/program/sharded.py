"""Row `id` lives on rank id % n at local row id // n: a table may be larger than the memory of one host.

A step makes three exchanges, each rank with each: distinct ids go to the rank that holds their rows, the rows come back, their
gradients follow the ids. What arrives is ordered by rank and equal ids are summed in that order, so results are reproducible. No
rank ever holds the whole table, but rank 0 while a checkpoint is read or written and at the end.
"""

from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.exchange import Exchange
from components.train.program.kernels import Cells, gather_rows, group_by_id, sum_rows
from components.train.program.table import Table

# Local rows that a rank makes, sends or takes over at a time.
CHUNK_ROWS = 65_536


def fill_up(rows: Any, splits: Any, multiple: int) -> tuple[Any, Any]:
    """Rows with zeros after them, which go to the last rank with its own, and the splits with those counted."""
    padding = -tf.shape(rows)[0] % multiple
    filled = tf.pad(rows, [[0, padding]] + [[0, 0]] * (len(rows.shape) - 1))
    return filled, tf.concat([splits[:-1], splits[-1:] + padding], axis=0)


class Sharded:
    lookup_travels = True

    def __init__(self, table: Table, exchange: Exchange) -> None:
        self._table, self._rank, self._size = table, hvd.rank(), hvd.size()
        self._exchange = exchange
        self._variable = tf.Variable(tf.zeros([self._rows_of(self._rank), table.stored]), name="shard")

    def _rows_of(self, rank: int) -> int:
        return len(range(rank, self._table.rows, self._size))

    def lookup(self, cells: Cells) -> tuple[Any, Any]:
        """Ids travel as local row + 1; 0 fills up, and stands for no row."""
        owner_U = cells.ids_U % self._size
        order_U = group_by_id(owner_U).order_N
        sent = tf.math.bincount(owner_U, minlength=self._size, maxlength=self._size)
        multiple = self._exchange.multiple(cells.order_N.shape[0])
        ids, sent_filled = fill_up(tf.gather(cells.ids_U // self._size, order_U) + 1, sent, multiple)
        wanted, received = self._exchange.alltoall(ids, sent_filled, "ids")
        held = gather_rows(self._variable, tf.maximum(wanted - 1, 0), self._table.parameters)
        rows, arrived = self._exchange.alltoall(*fill_up(held, received, multiple), "rows")
        # A rank's rows begin where those of the ranks before it end, with what filled them up.
        shift = tf.cumsum(arrived, exclusive=True) - tf.cumsum(sent, exclusive=True)
        place_U = tf.math.invert_permutation(order_U) + tf.gather(shift, owner_U)
        rows_UE = tf.gather(tf.ensure_shape(rows, [None, self._table.parameters]), place_U)
        return rows_UE, (order_U, sent, multiple, group_by_id(wanted))

    def exchange(self, found: Any, gradient_UE: Any) -> Any:
        order_U, sent, multiple, wanted = found
        gradients, splits = fill_up(tf.gather(gradient_UE, order_U), sent, multiple)
        return wanted, self._exchange.alltoall(gradients, splits, "gradients")[0]

    def update(self, exchanged: Any) -> None:
        wanted, gradient = exchanged
        # Ids ascend: no row, where there is any, is the first.
        first = tf.math.count_nonzero(wanted.ids_U[:1] == 0, dtype=tf.int32)
        mean = sum_rows(gradient, wanted) / float(self._size)
        self._table.update(self._variable, wanted.ids_U[first:] - 1, mean[first:])

    def _chunks(self) -> list[tuple[int, int]]:
        """First and last + 1 local row of every chunk of the longest shard; others may end before."""
        longest = self._rows_of(0)
        return [(start, min(start + CHUNK_ROWS, longest)) for start in range(0, longest, CHUNK_ROWS)]

    def _put(self, start: int, rows: Any) -> None:
        self._variable.scatter_update(tf.IndexedSlices(rows, tf.range(start, start + len(rows))))

    def begin(self) -> None:
        for start, stop in self._chunks():
            first = start * self._size
            rows = self._table.initial(first, min(stop * self._size, self._table.rows))
            self._put(start, rows[self._rank :: self._size])

    def load(self, table_VS: NDArray[np.float32] | None) -> None:
        for start, stop in self._chunks():
            parts = [np.empty((0, self._table.stored), np.float32)] * self._size
            if table_VS is not None:
                whole = table_VS[start * self._size : stop * self._size]
                parts = [whole[rank :: self._size] for rank in range(self._size)]
            sizes = [len(part) for part in parts]
            rows, _ = hvd.alltoall(tf.constant(np.concatenate(parts)), splits=tf.constant(sizes, tf.int32), name="load")
            self._put(start, rows)

    def whole(self) -> NDArray[np.float32]:
        table = np.empty((self._table.rows if self._rank == 0 else 0, self._table.stored), np.float32)
        for start, stop in self._chunks():
            # Not a slice: reading a variable that is updated in place would copy all of it for every chunk.
            part = self._variable.sparse_read(np.arange(start, min(stop, self._rows_of(self._rank))))
            sizes = tf.constant([len(part)] + [0] * (self._size - 1), tf.int32)
            rows, counts = hvd.alltoall(part, splits=sizes, name="whole")
            if self._rank == 0:
                for rank, own in enumerate(np.split(rows.numpy(), np.cumsum(counts.numpy())[:-1])):
                    table[start * self._size + rank : stop * self._size : self._size] = own
        return table

    def replicated(self) -> list[Any]:
        return []

    def bytes_of(self, rank: int) -> int:
        return self._rows_of(rank) * self._table.row_bytes
