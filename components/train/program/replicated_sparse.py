"""Every rank holds the whole table; the distinct rows of a batch travel: all ranks gather all ids and gradients, and sum equal ids.

Ids are gathered as soon as they are known, while the model is still at work. Lengths are rounded up, because Horovod remembers what
it has agreed on only when shapes are those of the step before.
"""

from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.exchange import Exchange
from components.train.program.kernels import Cells, gather_rows, group_by_id, sum_rows
from components.train.program.table import Table


class ReplicatedSparse:
    lookup_travels = False

    def __init__(self, table: Table, exchange: Exchange) -> None:
        self._table, self._size, self._exchange = table, hvd.size(), exchange
        self._variable = tf.Variable(tf.zeros([table.rows, table.stored]), name="table")

    def lookup(self, cells: Cells) -> tuple[Any, Any]:
        return gather_rows(self._variable, cells.ids_U, self._table.parameters), cells

    def exchange(self, found: Any, gradient_UE: Any) -> Any:
        padding = -tf.size(found.ids_U) % self._exchange.multiple(found.order_N.shape[0])
        # More of the last id, whose gradient is zero there.
        ids = tf.concat([found.ids_U, tf.repeat(found.ids_U[-1:], padding)], axis=0)
        gradient = tf.pad(gradient_UE, [[0, padding], [0, 0]])
        all_ids, all_gradients = self._exchange.gather([ids, gradient], "rows")
        return group_by_id(all_ids), all_gradients

    def update(self, exchanged: Any) -> None:
        cells, gradient = exchanged
        self._table.update(self._variable, cells.ids_U, sum_rows(gradient, cells) / float(self._size))

    def begin(self) -> None:
        self.load(self._table.initial(0, self._table.rows) if hvd.rank() == 0 else None)

    def load(self, table_VS: NDArray[np.float32] | None) -> None:
        if table_VS is not None:
            self._variable.assign(table_VS)
        hvd.broadcast_variables([self._variable], root_rank=0)

    def whole(self) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._variable.numpy() if hvd.rank() == 0 else np.empty((0, self._table.stored), np.float32)
        return found

    def replicated(self) -> list[Any]:
        return [self._variable]

    def bytes_of(self, rank: int) -> int:
        return self._table.rows * self._table.row_bytes
