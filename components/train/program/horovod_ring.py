"""Horovod over Gloo: every rank holds the whole table; dense gradients are averaged, rows are exchanged sparse.

Only distinct rows of a batch travel: ids and their gradients are gathered from all ranks, and equal ids are summed.
"""

import time
from collections.abc import Mapping
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.config import TrainConfig
from components.train.program.input import Source
from components.train.program.kernels import group_by_id, sum_rows
from components.train.program.single import Single


class HorovodRing(Single):
    """Synchronous data parallel training. Call `hvd.init()` before."""

    def __init__(self, config: TrainConfig, source: Source) -> None:
        super().__init__(config, source)
        self.rank, self.size = hvd.rank(), hvd.size()
        self.communication_s = 0.0

    @tf.function(reduce_retracing=True)
    def _compute(self, labels_B: Any, ids_BF: Any, values_BF: Any) -> Any:
        return self.gradients(labels_B, ids_BF, values_BF)

    @tf.function(reduce_retracing=True)
    def _exchange(self, value: Any, dense: list[Any], ids_U: Any, rows_UE: Any) -> Any:
        """Mean loss and dense gradients, and all ranks' ids and rows, one rank after the other."""
        value, *dense = hvd.grouped_allreduce([value, *dense], op=hvd.Average, name="dense")
        return value, dense, hvd.allgather(ids_U, name="ids"), hvd.allgather(rows_UE, name="rows")

    @tf.function(reduce_retracing=True)
    def _apply(self, dense: list[Any], all_ids: Any, all_rows: Any) -> None:
        cells = group_by_id(all_ids)
        self.apply(dense, cells.ids_U, sum_rows(all_rows, cells) / float(self.size))

    def train(self, batch: tuple[Any, Any, Any]) -> float:
        """Mean loss of all ranks' batches, before the update."""
        computed = self._compute(*batch)
        start = time.monotonic()
        value, dense, all_ids, all_rows = self._exchange(*computed)
        self.communication_s += time.monotonic() - start
        self._apply(dense, all_ids, all_rows)
        return float(value)

    def agree(self, checksum: str) -> bool:
        """Whether all ranks hold the same parameters."""
        return len(set(hvd.allgather_object(checksum))) == 1

    def resume(self, found: tuple[int, Mapping[str, NDArray[Any]]] | None) -> int:
        """Rank 0 alone sees its checkpoints: its variables, slots and step go to all ranks."""
        begun = super().resume(found)
        # Without a checkpoint too: the seed makes all ranks equal, this makes it true whatever the numpy version of a host.
        hvd.broadcast_variables(list(self._variables().values()), root_rank=0)
        return int(hvd.broadcast(tf.constant(begun), root_rank=0, name="begun"))

    def stop_together(self, wish: bool) -> bool:
        """Rank 0 decides for all, so that no rank waits for one that left."""
        return bool(hvd.broadcast(tf.constant(int(wish)), root_rank=0, name="stop"))
