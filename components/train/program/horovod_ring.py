"""Horovod over Gloo: every rank trains on its own rows; dense gradients are averaged, the table is where its placement has it.

A step is one graph, so that Horovod agrees on an exchange and sends while the model is still at work. Only the time in which a rank
does nothing but wait for others is counted as communication.
"""

import logging
from collections.abc import Mapping
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.errors import InvalidConfig
from components.train.program.agreement import state_checksum
from components.train.program.clock import time_after
from components.train.program.config import TrainConfig
from components.train.program.devices import rank_device
from components.train.program.division import Share
from components.train.program.embedding import apply_to_rows, initial_table, stored_width
from components.train.program.exchange import exchange
from components.train.program.input import Source
from components.train.program.kernels import group_by_id
from components.train.program.layout import Layout
from components.train.program.loss_scale import loss_scale_for, overflow
from components.train.program.model import Model
from components.train.program.optimizers import DenseOptimizer
from components.train.program.placement import Load, bytes_a_step, place, place_for
from components.train.program.table import Table
from components.train.program.traced import traced

log = logging.getLogger(__name__)


class HorovodRing:
    """Synchronous data parallel training. Call `hvd.init()` before."""

    def __init__(self, config: TrainConfig, source: Source, model: Model) -> None:
        self.rank, self.size = hvd.rank(), hvd.size()
        self._device = rank_device(config, hvd.local_rank(), hvd.local_size())
        self.communication_s = 0.0
        self._model, self._width = model, model.row_width
        self._step = tf.Variable(0.0, name="step")
        self.dense = [tf.Variable(value) for value in model.initial_dense()]
        self._optimizer = DenseOptimizer(config, self.dense, model.kinds)
        table = Table(
            rows=source.feature_size,
            parameters=self._width,
            stored=stored_width(config, self._width),
            initial=lambda start, stop: initial_table(config, self._width, start, stop),
            update=lambda variable, ids_U, gradient_UE: apply_to_rows(config, variable, ids_U, gradient_UE, self._step),
        )
        self._table, self._shape = table, (table.rows, table.stored)
        chosen = place_for(config, source, table, self.size, hvd.local_size()) if self.rank == 0 else None
        self.placement_name, why = hvd.broadcast_object(chosen, root_rank=0)
        if self.rank == 0:
            log.info("embedding placement %s: %s", self.placement_name, why)
        self._exchange = exchange(self._device)
        self._placement = place(self.placement_name, table, self._exchange)
        self.loss_scale = loss_scale_for(model.precision)
        self._check_precision(config, model.precision.name)
        self._traced: Any = None

    def _check_precision(self, config: TrainConfig, own: str) -> None:
        """Refuse ranks of which some scale their loss: they would wait in a step for what the others never send."""
        names = hvd.allgather_object(own) if config.mixed_precision else [own]
        if "float16" in names and len(set(names)) > 1:
            each = ", ".join(f"rank {rank} {name}" for rank, name in enumerate(names))
            raise InvalidConfig(f"mixed_precision: hosts with and without GPUs for it ({each}); leave it out")

    @traced
    def _train(self, labels_B: Any, ids_BF: Any, values_BF: Any) -> Any:
        """Mean loss of all ranks before the update, and the seconds in which this rank waited; float64 [2]."""
        cells = group_by_id(ids_BF)
        looked = time_after(cells.ids_U)
        rows_UE, found = self._placement.lookup(cells)
        waited = time_after(rows_UE) - looked if self._placement.lookup_travels else tf.constant(0.0, tf.float64)
        with tf.device(self._device):
            # The compiled operations, which exist for CPUs only, stay there; TensorFlow copies what crosses.
            value, dense, gradient_UE = self._model.loss_and_gradients(
                self.dense, rows_UE, cells, labels_B, values_BF, self._step, self.rank, self.loss_scale and self.loss_scale.scale
            )
        computed = time_after([value, dense, gradient_UE])
        exchanged = self._placement.exchange(found, gradient_UE)
        # Gradients of rows go to their owners alone: what overflowed anywhere is told to all ranks, so that all skip the step.
        overflowed = [] if self.loss_scale is None else [overflow([*dense, gradient_UE])]
        means = self._exchange.mean([value, *dense, *overflowed], "dense")
        value, dense = means[0], means[1 : 1 + len(dense)]
        waited += time_after([value, dense, exchanged]) - computed
        self._step.assign_add(1.0)

        def update() -> None:
            self._optimizer.apply(dense, self._step)
            self._placement.update(exchanged)

        if self.loss_scale is None:
            update()
        else:
            self.loss_scale.apply_if_finite(tf.equal(means[-1], 0.0), update)
        return tf.stack([tf.cast(value, tf.float64), waited])

    def train(self, batch: tuple[Any, Any, Any]) -> float:
        """Mean loss of all ranks' batches, before the update; all batches have the shapes of the first."""
        if self._traced is None:
            self._traced = self._train.get_concrete_function(*batch)
        value, waited = self._traced(*batch).numpy()
        self.communication_s += float(waited)
        return float(value)

    def shares(self, layout: Layout) -> list[Share]:
        """What every rank reads, by rank; each knows only what its own host has."""
        found: list[Share] = hvd.allgather_object(layout.own())
        return found

    def stop_together(self, wish: bool) -> bool:
        """Rank 0 decides for all, so that no rank waits for one that left."""
        return bool(self._exchange.gather([tf.constant([int(wish)])], "stop")[0][0])

    def each_rank(self, own: Any) -> list[Any]:
        """What every rank has to say, by rank; all ranks must call it."""
        found: list[Any] = hvd.allgather_object(own)
        return found

    def sent_bytes(self, rows: float) -> float:
        """What a rank sends in a step whose batch has so many distinct rows; on one host, through its memory."""
        dense: float = 8.0 * (self.size - 1) / self.size * sum(int(np.prod(variable.shape)) for variable in self.dense)
        if self.placement_name == "shared":
            rows_sent: float = 4.0 * (self.size - 1) / self.size * rows * (1 + self._width)
            return dense + rows_sent
        load = Load(ranks=self.size, local_ranks=hvd.local_size(), distinct_ids=int(rows), memory_bytes=0)
        return dense + bytes_a_step(self._table, load)[self.placement_name]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what a state must hold; one of another precision has no loss scale."""
        return {"table": self._shape, **{name: tuple(v.shape) for name, v in self._optimizer.named(self._step).items()}}

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that training changes, by name, complete on rank 0; all ranks must call it."""
        return {"table": self._placement.whole(), **{name: v.numpy() for name, v in self._variables().items()}}

    def _variables(self) -> dict[str, Any]:
        """What all ranks hold alike, but for the table."""
        return self._optimizer.named(self._step) | (self.loss_scale.variables() if self.loss_scale else {})

    def resume(self, found: tuple[int, Mapping[str, NDArray[Any]]] | None) -> int:
        """Rank 0 alone sees what is taken over: its variables, slots and step go to all ranks."""
        told = hvd.broadcast(tf.constant([int(found is not None), found[0] if found else 0]), root_rank=0, name="begun").numpy()
        taken_over, begun = bool(told[0]), int(told[1])
        if found is not None:
            for name, variable in self._optimizer.named(self._step).items():
                variable.assign(found[1][name])
            if self.loss_scale:
                self.loss_scale.resume(found[1])
        # From a fresh start too: the seed makes all ranks equal, this makes it true whatever the numpy version of a host.
        hvd.broadcast_variables(list(self._variables().values()), root_rank=0)
        if taken_over:
            self._placement.load(found[1]["table"] if found else None)
        else:
            self._placement.begin()
        return begun

    def parameters(self) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """The embedding table without slots [V, E], which only rank 0 has, and the dense weights; all ranks must call it."""
        return self._placement.whole()[:, : self._width], [variable.numpy() for variable in self.dense]

    def checksums(self) -> dict[str, str]:
        """Of what all ranks must hold alike: dense weights, their slots, the step, and the table where it is replicated."""
        own = state_checksum([*self._variables().values(), *self._placement.replicated()])
        return {f"rank {rank}": checksum for rank, checksum in enumerate(hvd.allgather_object(own))}

    def end(self) -> None:
        """End Horovod's threads on all ranks together; nothing can be exchanged after it."""
        hvd.shutdown()

    def figures(self) -> dict[str, Any]:
        """What training.json says of this strategy alone."""
        held = [self._placement.bytes_of(rank) for rank in range(self.size)]
        scale = self.loss_scale.figures() if self.loss_scale else {}
        return {"embedding_placement": self.placement_name, "table_bytes_per_rank": held, **scale}
