"""Every rank holds the whole table; the gradient of the whole table is averaged, rows that no rank touched included.

For small tables: the bytes do not grow with the number of ranks. A column of counts travels with the gradients, because a row that
was touched is updated even when its gradient is zero (its moments move on), and one that was not is left alone.
"""

from typing import Any

import tensorflow as tf

from components.train.program.kernels import Cells, gather_rows
from components.train.program.replicated_sparse import ReplicatedSparse


class ReplicatedDense(ReplicatedSparse):
    def lookup(self, cells: Cells) -> tuple[Any, Any]:
        return gather_rows(self._variable, cells.ids_U, self._table.parameters), cells.ids_U

    def exchange(self, found: Any, gradient_UE: Any) -> Any:
        counted = tf.concat([gradient_UE, tf.ones([tf.shape(gradient_UE)[0], 1])], axis=1)
        of_table = tf.scatter_nd(found[:, tf.newaxis], counted, [self._table.rows, self._table.parameters + 1])
        return self._exchange.mean([of_table], "table")[0]

    def update(self, exchanged: Any) -> None:
        ids_U = tf.squeeze(tf.cast(tf.where(exchanged[:, -1] > 0), tf.int32), axis=1)
        self._table.update(self._variable, ids_U, tf.gather(exchanged[:, :-1], ids_U))
