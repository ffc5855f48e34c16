"""What parameter servers hold, how it is asked for and how it is updated.

Row `id` of the table lives on server id % n at local row id // n, beside its optimizer slots. The dense weights are flat vectors
(flat_weights.py), cut into n equal pieces with their slots, one on each server: every server holds, sends and updates the same
share of everything, and the number of messages does not grow with the layers of the model.

Every server counts the updates that it applied. Each worker's step is one update on every server, so the counts are equal
whenever no step is under way, and no server waits for another to learn the learning rate of a step.

Shapes: V rows, E parameters a row, S numbers a row with slots, U distinct ids, P dense weights in all.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.errors import InvalidConfig
from components.train.program.config import TrainConfig
from components.train.program.embedding import INIT_CHUNK_ROWS, apply_to_rows, initial_table, stored_width
from components.train.program.flat_weights import FlatWeights
from components.train.program.input import Source
from components.train.program.kernels import gather_rows
from components.train.program.model import Model
from components.train.program.optimizers import DenseOptimizer, alike

log = logging.getLogger(__name__)

# The fullest server may hold this much more than the emptiest, as a share of their mean.
LARGEST_IMBALANCE = 0.1


def server_device(index: int) -> str:
    return f"/job:ps/replica:0/task:{index}/device:CPU:0"


def check_balance(bytes_per_server: Sequence[int]) -> None:
    """Refuse servers that hold unequal shares: the fullest one would set the pace of all.

    Raises:
        InvalidConfig: they differ by more than a tenth of their mean, as a table of a few rows does.
    """
    mean = sum(bytes_per_server) / len(bytes_per_server)
    if max(bytes_per_server) - min(bytes_per_server) > LARGEST_IMBALANCE * mean:
        raise InvalidConfig(
            f"the {len(bytes_per_server)} parameter servers would hold {min(bytes_per_server)} to {max(bytes_per_server)} bytes, "
            f"more than {LARGEST_IMBALANCE:.0%} apart, because the table has so few rows; use fewer hosts"
        )


class Route(NamedTuple):
    """For each server: the local rows of the ids that it owns, and the positions of those ids in ids_U."""

    local: list[Any]
    positions: list[Any]


class Servers:
    """The servers of a job as coordinator and workers use them; what runs in a graph is placed on the server that it names."""

    def __init__(self, config: TrainConfig, source: Source, model: Model, count: int) -> None:
        self.count = count
        self._config = config
        self._rows, self._width, self._stored = source.feature_size, model.row_width, stored_width(config, model.row_width)
        if self._rows < count:
            raise InvalidConfig(f"feature_size {self._rows}: fewer rows than the {count} parameter servers; use fewer hosts")
        initial = model.initial_dense()
        self._flat = FlatWeights([value.shape for value in initial], alike(config, model.kinds), count)
        # A vector's weights are updated alike, so the first one's kind is as good as any.
        kinds = [model.kinds[members[0]] for members in self._flat.members]
        pieces = [self._flat.cut([initial[i] for i in members], vector) for vector, members in enumerate(self._flat.members)]
        self._steps, self._tables, self._dense, self._optimizers = [], [], [], []
        for server in range(count):
            with tf.device(server_device(server)):
                self._steps.append(tf.Variable(0.0))
                self._tables.append(tf.Variable(tf.zeros([len(range(server, self._rows, count)), self._stored])))
                self._dense.append([tf.Variable(by_server[server]) for by_server in pieces])
                self._optimizers.append(DenseOptimizer(config, self._dense[server], kinds))
        slots = [len(same) for same in self._optimizers[0].slots]
        self.table_bytes = [4 * self._stored * len(range(server, self._rows, count)) for server in range(count)]
        self.dense_bytes = [
            4 * sum(size * (1 + number) for size, number in zip(self._flat.sizes(server), slots, strict=True))
            for server in range(count)
        ]
        check_balance([table + weights for table, weights in zip(self.table_bytes, self.dense_bytes, strict=True)])
        for server in range(count):
            log.info(
                "parameter server %d holds %d rows, %d bytes of the table and %d bytes of dense weights, with optimizer slots",
                server, self._tables[server].shape[0], self.table_bytes[server], self.dense_bytes[server],
            )  # fmt: skip

    @property
    def step(self) -> Any:
        """How many updates a server has applied; float32 scalar."""
        return self._steps[0]

    def route(self, ids_U: Any) -> Route:
        """Which server owns which of these distinct ids."""
        owner_U = ids_U % self.count
        positions = tf.dynamic_partition(tf.range(tf.size(ids_U)), owner_U, self.count)
        return Route(tf.dynamic_partition(ids_U // self.count, owner_U, self.count), positions)

    def pull(self, route: Route) -> tuple[Any, list[Any]]:
        """The rows [U, E] of the ids of a route, and the dense weights."""
        rows, pieces = [], []
        for server, local in enumerate(route.local):
            with tf.device(server_device(server)):
                rows.append(gather_rows(self._tables[server], local, self._width))
                pieces.append([piece.read_value() for piece in self._dense[server]])
        rows_UE = tf.ensure_shape(tf.dynamic_stitch(route.positions, rows), [None, self._width])
        return rows_UE, self._flat.join(pieces)

    def flatten(self, dense: Sequence[Any]) -> Any:
        """Gradients of the dense weights as one vector [P]."""
        return self._flat.flatten(dense)

    def push(self, route: Route, gradient_UE: Any, gradient_P: Any) -> None:
        """One step of the optimizer on every server, with the gradients of the rows of a route and of the dense weights."""
        pieces = self._flat.split(gradient_P)
        for server, local in enumerate(route.local):
            gradient = tf.gather(gradient_UE, route.positions[server])
            with tf.device(server_device(server)):
                step = self._steps[server].assign_add(1.0, read_value=True)
                self._optimizers[server].apply(pieces[server], step)
                apply_to_rows(self._config, self._tables[server], local, gradient, step)

    def begin(self) -> None:
        """Fill the table as `initial_table` gives it."""
        for start in range(0, self._rows, INIT_CHUNK_ROWS):
            stop = min(start + INIT_CHUNK_ROWS, self._rows)
            self._put(start, initial_table(self._config, self._width, start, stop))

    def _put(self, start: int, rows: NDArray[np.float32]) -> None:
        """Send rows from `start` on to their servers."""
        for server in range(self.count):
            first = (server - start) % self.count
            own = rows[first :: self.count]
            local = np.arange(len(own)) + (start + first) // self.count
            with tf.device(server_device(server)):
                self._tables[server].scatter_update(tf.IndexedSlices(own, local))

    def table(self, columns: int) -> NDArray[np.float32]:
        """The first columns of the whole table, [V, columns], fetched in messages of bounded size."""
        whole = np.empty((self._rows, columns), np.float32)
        for server, part in enumerate(self._tables):
            own = whole[server :: self.count]
            for start in range(0, len(own), INIT_CHUNK_ROWS):
                with tf.device(server_device(server)):
                    rows = part.sparse_read(np.arange(start, min(start + INIT_CHUNK_ROWS, len(own))))[:, :columns]
                own[start : start + len(rows)] = rows.numpy()
        return whole

    def dense(self) -> list[NDArray[np.float32]]:
        """The dense weights in their shapes."""
        held = self._held()
        return [held[f"dense_{index}"] for index in range(len(self._flat.shapes))]

    def _pieces(self) -> list[tuple[int, str, list[Any]]]:
        """Variables that hold dense weights or a slot of them: their vector, what a name ends in, and the pieces by server."""
        found = []
        for vector, slots in enumerate(self._optimizers[0].slots):
            found.append((vector, "", [dense[vector] for dense in self._dense]))
            for slot in range(len(slots)):
                found.append((vector, f"_slot_{slot}", [optimizer.slots[vector][slot] for optimizer in self._optimizers]))
        return found

    def _held(self) -> dict[str, NDArray[np.float32]]:
        """Dense weights and slots, by the names of a checkpoint."""
        found = {}
        for vector, ending, pieces in self._pieces():
            values = self._flat.whole([piece.numpy() for piece in pieces], vector)
            for index, value in zip(self._flat.members[vector], values, strict=True):
                found[f"dense_{index}{ending}"] = value
        return found

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what `state` holds."""
        found: dict[str, tuple[int, ...]] = {"table": (self._rows, self._stored), "step": ()}
        for vector, ending, _ in self._pieces():
            found |= {f"dense_{index}{ending}": self._flat.shapes[index] for index in self._flat.members[vector]}
        return found

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that training changes, by the names that other strategies use: a job may resume with other servers."""
        return {"table": self.table(self._stored), "step": self._steps[0].numpy(), **self._held()}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state` gave."""
        for step in self._steps:
            step.assign(state["step"])
        for start in range(0, self._rows, INIT_CHUNK_ROWS):
            self._put(start, state["table"][start : start + INIT_CHUNK_ROWS])
        for vector, ending, pieces in self._pieces():
            values = [state[f"dense_{index}{ending}"] for index in self._flat.members[vector]]
            for piece, value in zip(pieces, self._flat.cut(values, vector), strict=True):
                piece.assign(value)
