"""What parameter servers hold, how it is asked for and how it is updated.

Row `id` of the table lives on server id % n at local row id // n, beside its optimizer slots. The dense weights are one flat
vector, cut into n equal pieces with their slots, one on each server: every server holds, sends and updates the same share of
everything, and the number of messages does not grow with the layers of the model.

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
from components.train.program.deepfm import INIT_CHUNK_ROWS, initial_dense, row_width
from components.train.program.embedding import DenseOptimizer, apply_to_rows, initial_table, stored_width
from components.train.program.input import Source
from components.train.program.kernels import gather_rows

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


def cuts(length: int, parts: int) -> list[int]:
    """Where to cut so many numbers into parts that differ by one at most: parts + 1 positions."""
    return [length * part // parts for part in range(parts + 1)]


class Route(NamedTuple):
    """For each server: the local rows of the ids that it owns, and the positions of those ids in ids_U."""

    local: list[Any]
    positions: list[Any]


class Servers:
    """The servers of a job as coordinator and workers use them; what runs in a graph is placed on the server that it names."""

    def __init__(self, config: TrainConfig, source: Source, count: int) -> None:
        self.count = count
        self._config = config
        self._rows, self._width, self._stored = source.feature_size, row_width(config), stored_width(config)
        if self._rows < count:
            raise InvalidConfig(f"feature_size {self._rows}: fewer rows than the {count} parameter servers; use fewer hosts")
        dense = initial_dense(config, source.field_size, source.click_rate)
        self._shapes = [value.shape for value in dense]
        self._sizes = [value.size for value in dense]
        self._cuts = cuts(sum(self._sizes), count)
        slots = stored_width(config) // row_width(config)
        self.table_bytes = [4 * self._stored * len(range(server, self._rows, count)) for server in range(count)]
        self.dense_bytes = [4 * slots * (stop - start) for start, stop in zip(self._cuts, self._cuts[1:], strict=False)]
        check_balance([table + weights for table, weights in zip(self.table_bytes, self.dense_bytes, strict=True)])
        self._steps, self._tables, self._dense, self._optimizers = [], [], [], []
        for server, piece in enumerate(self._cut(np.concatenate([value.ravel() for value in dense]))):
            with tf.device(server_device(server)):
                self._steps.append(tf.Variable(0.0))
                self._tables.append(tf.Variable(tf.zeros([len(range(server, self._rows, count)), self._stored])))
                self._dense.append(tf.Variable(piece))
                self._optimizers.append(DenseOptimizer(config, self._dense[-1:]))
            log.info(
                "parameter server %d holds %d rows, %d bytes of the table and %d bytes of dense weights, with optimizer slots",
                server, self._tables[-1].shape[0], self.table_bytes[server], self.dense_bytes[server],
            )  # fmt: skip

    def _cut(self, flat: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return np.split(flat, self._cuts[1:-1])

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
                pieces.append(self._dense[server].read_value())
        rows_UE = tf.ensure_shape(tf.dynamic_stitch(route.positions, rows), [None, self._width])
        parts = tf.split(tf.concat(pieces, axis=0), self._sizes)
        return rows_UE, [tf.reshape(part, shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def flatten(self, dense: Sequence[Any]) -> Any:
        """Gradients of the dense weights as one vector [P]."""
        return tf.concat([tf.reshape(each, [-1]) for each in dense], axis=0)

    def push(self, route: Route, gradient_UE: Any, gradient_P: Any) -> None:
        """One step of the optimizer on every server, with the gradients of the rows of a route and of the dense weights."""
        pieces = tf.split(gradient_P, np.diff(self._cuts))
        for server, local in enumerate(route.local):
            gradient = tf.gather(gradient_UE, route.positions[server])
            with tf.device(server_device(server)):
                step = self._steps[server].assign_add(1.0, read_value=True)
                self._optimizers[server].apply([pieces[server]], step)
                apply_to_rows(self._config, self._tables[server], local, gradient, step)

    def begin(self) -> None:
        """Fill the table as `initial_table` gives it."""
        for start in range(0, self._rows, INIT_CHUNK_ROWS):
            stop = min(start + INIT_CHUNK_ROWS, self._rows)
            self._put(start, initial_table(self._config, start, stop))

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

    def dense(self, slot: int | None = None) -> list[NDArray[np.float32]]:
        """The dense weights, or one slot of them, in their shapes."""
        pieces = self._dense if slot is None else [optimizer.slots[slot][0] for optimizer in self._optimizers]
        flat = np.concatenate([piece.numpy() for piece in pieces])
        parts = np.split(flat, np.cumsum(self._sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what `state` holds."""
        found: dict[str, tuple[int, ...]] = {"table": (self._rows, self._stored), "step": ()}
        for index, shape in enumerate(self._shapes):
            names = [f"dense_{index}", *(f"dense_{index}_slot_{slot}" for slot in range(len(self._optimizers[0].slots)))]
            found |= dict.fromkeys(names, shape)
        return found

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that training changes, by the names that other strategies use: a job may resume with other servers."""
        found: dict[str, NDArray[Any]] = {"table": self.table(self._stored), "step": self._steps[0].numpy()}
        found |= {f"dense_{index}": value for index, value in enumerate(self.dense())}
        for slot in range(len(self._optimizers[0].slots)):
            found |= {f"dense_{index}_slot_{slot}": value for index, value in enumerate(self.dense(slot))}
        return found

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state` gave."""
        for step in self._steps:
            step.assign(state["step"])
        for start in range(0, self._rows, INIT_CHUNK_ROWS):
            self._put(start, state["table"][start : start + INIT_CHUNK_ROWS])
        names = [f"dense_{index}" for index in range(len(self._shapes))]
        self._load_dense(self._dense, [state[name] for name in names])
        for slot in range(len(self._optimizers[0].slots)):
            pieces = [optimizer.slots[slot][0] for optimizer in self._optimizers]
            self._load_dense(pieces, [state[f"{name}_slot_{slot}"] for name in names])

    def _load_dense(self, pieces: list[Any], values: list[NDArray[np.float32]]) -> None:
        for piece, value in zip(pieces, self._cut(np.concatenate([value.ravel() for value in values])), strict=True):
            piece.assign(value)
