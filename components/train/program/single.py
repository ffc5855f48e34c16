"""One process: the whole table and every gradient are here."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.config import TrainConfig
from components.train.program.division import Share
from components.train.program.embedding import apply_to_rows, initial_table
from components.train.program.input import Source
from components.train.program.kernels import gather_rows, group_by_id
from components.train.program.layout import Layout
from components.train.program.loss_scale import loss_scale_for, overflow
from components.train.program.model import Model
from components.train.program.optimizers import DenseOptimizer
from components.train.program.traced import traced


class Single:
    """The reference that the other strategies must equal."""

    rank = 0
    size = 1
    communication_s = 0.0

    def __init__(self, config: TrainConfig, source: Source, model: Model) -> None:
        self._config, self._model = config, model
        self._width = model.row_width
        self._step = tf.Variable(0.0, name="step")
        self.table = tf.Variable(initial_table(config, self._width, 0, source.feature_size), name="table")
        self.dense = [tf.Variable(value) for value in model.initial_dense()]
        self._optimizer = DenseOptimizer(config, self.dense, model.kinds)
        self.loss_scale = loss_scale_for(model.precision)
        self._traced: Any = None

    def gradients(self, labels_B: Any, ids_BF: Any, values_BF: Any, part: Any = 0) -> tuple[Any, list[Any], Any, Any]:
        """Loss, dense gradients, distinct ids [U], and the gradient of their rows [U, E], of a part of the batch."""
        cells = group_by_id(ids_BF)
        rows_UE = gather_rows(self.table, cells.ids_U, self._width)
        value, dense, gradient_UE = self._model.loss_and_gradients(
            self.dense, rows_UE, cells, labels_B, values_BF, self._step, part, self.loss_scale and self.loss_scale.scale
        )
        return value, dense, cells.ids_U, gradient_UE

    def apply(self, dense: list[Any], ids_U: Any, gradient_UE: Any) -> None:
        """One step of the optimizer; with float16, of its weights only if no gradient overflowed."""
        self._step.assign_add(1.0)

        def update() -> None:
            self._optimizer.apply(dense, self._step)
            apply_to_rows(self._config, self.table, ids_U, gradient_UE, self._step)

        if self.loss_scale is None:
            update()
        else:
            self.loss_scale.apply_if_finite(tf.equal(overflow([*dense, gradient_UE]), 0.0), update)

    @traced
    def _train(self, labels_B: Any, ids_BF: Any, values_BF: Any) -> Any:
        value, dense, ids_U, gradient_UE = self.gradients(labels_B, ids_BF, values_BF)
        self.apply(dense, ids_U, gradient_UE)
        return value

    def train(self, batch: tuple[Any, Any, Any]) -> float:
        """Loss of one batch, before its update; all batches have the shapes of the first."""
        if self._traced is None:
            # A tf.function compares arguments and captures with its traces at each call: 0.3 ms of a 10 ms step.
            self._traced = self._train.get_concrete_function(*batch)
        return float(self._traced(*batch))

    def _variables(self) -> dict[str, Any]:
        return {"table": self.table, **self._optimizer.named(self._step)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what a state must hold; one of another precision has no loss scale."""
        return {name: tuple(variable.shape) for name, variable in self._variables().items()}

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that training changes, by name; what a checkpoint holds."""
        variables = self._variables() | (self.loss_scale.variables() if self.loss_scale else {})
        return {name: variable.numpy() for name, variable in variables.items()}

    def resume(self, found: tuple[int, Mapping[str, NDArray[Any]]] | None) -> int:
        """Take over the state that rank 0 found, on all ranks, and return its step; 0 when there is none."""
        if found is None:
            return 0
        for name, variable in self._variables().items():
            variable.assign(found[1][name])
        if self.loss_scale:
            self.loss_scale.resume(found[1])
        return found[0]

    def shares(self, layout: Layout) -> list[Share]:
        """What every rank reads: there is one."""
        return [layout.own()]

    def stop_together(self, wish: bool) -> bool:
        """Whether to end a time-limited probe now."""
        return wish

    def each_rank(self, own: Any) -> list[Any]:
        """What every rank has to say, by rank; all ranks must call it."""
        return [own]

    def sent_bytes(self, rows: float) -> float:
        """What a worker sends to others in a step whose batch has so many distinct rows."""
        return 0.0

    def parameters(self) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """The embedding table without slots [V, E], and the dense weights."""
        return self.table[:, : self._width].numpy(), [variable.numpy() for variable in self.dense]

    def checksums(self) -> dict[str, str]:
        """Of every copy of what all ranks must hold alike, by who holds it: none where there is one copy."""
        return {}

    def figures(self) -> dict[str, Any]:
        """What training.json says of this strategy alone."""
        held = {"table_bytes_per_rank": [int(np.prod(self.table.shape)) * 4]}
        return held | (self.loss_scale.figures() if self.loss_scale else {})
