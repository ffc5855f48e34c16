"""Parameter servers: table and weights live on them, workers compute gradients, the coordinator (chief) drives both.

Row `id` lives on server id % n at local row id // n, so every server holds the same share of the table. A worker asks each
server for its distinct rows and sends their gradients back; the server that owns a row updates it. Only the rows of a batch travel.

The coordinator runs one thread a worker, and every worker runs its own equal number of steps on its own rows: ClusterCoordinator
would hand steps to whichever worker is free, and then no example count is exact. Workers are asynchronous: a server applies the
updates to a table or variable one after the other, but the weights that a gradient was computed from may have moved meanwhile.
`ps_synchronous` combines the gradients of all workers at each step instead, on the coordinator; it is for comparing results, not
for speed.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.errors import InvalidConfig
from components.train.program.config import TrainConfig
from components.train.program.deepfm import initial_dense, loss_and_gradients, row_width
from components.train.program.embedding import DenseOptimizer, apply_to_rows, initial_table
from components.train.program.fit import Recorder, Step
from components.train.program.input import Division, Source, batches
from components.train.program.kernels import gather_rows, group_by_id, load, sum_rows

log = logging.getLogger(__name__)

# Rows sent to a server in one message while its part of the table is filled.
FILL_ROWS = 100_000


def _step(worker: int, rows: int, start: float, loss: float) -> Step:
    end = time.monotonic()
    return Step(worker=worker, rows=rows, duration_s=end - start, wait_s=None, communication_s=None, ended=end, loss=loss)


def cluster_of_environment() -> dict[str, list[str]]:
    """Addresses of chief, workers and servers, as TensorFlow's own TF_CONFIG lists them."""
    cluster: dict[str, list[str]] = json.loads(os.environ["TF_CONFIG"])["cluster"]
    return cluster


def serve(role: str, index: int) -> None:
    """Be worker or parameter server `index` until killed."""
    # The coordinator's graphs run here, and name operations that this process must know.
    load()
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=tf.config.threading.get_inter_op_parallelism_threads(),
    )
    server = tf.distribute.Server(cluster_of_environment(), job_name=role, task_index=index, protocol="grpc", config=config)
    server.join()


class ParameterServers:
    """The coordinator's side."""

    rank = 0

    def __init__(self, config: TrainConfig, source: Source) -> None:
        cluster = cluster_of_environment()
        self.size, self.servers = len(cluster["worker"]), len(cluster["ps"])
        if source.feature_size < self.servers:
            raise InvalidConfig(
                f"feature_size {source.feature_size}: fewer rows than the {self.servers} parameter servers; use fewer"
            )
        filters = tf.config.experimental.ClusterDeviceFilters()
        for worker in range(self.size):
            # Workers never talk to each other: without this each waits for all of them before its first step.
            filters.set_device_filters("worker", worker, ["/job:ps", "/job:chief"])
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec(cluster),
            job_name="chief",
            task_index=0,
            protocol="grpc",
            make_master_device_default=False,
            cluster_device_filters=filters,
        )
        self._config, self._source = config, source
        self._width = row_width(config)
        with tf.device(self._server(0)):
            self._step = tf.Variable(0.0)
            self.dense = [tf.Variable(value) for value in initial_dense(config, source.field_size, source.click_rate)]
            self._optimizer = DenseOptimizer(config, self.dense)
        self._shards = [self._fill_shard(server) for server in range(self.servers)]

    def _server(self, index: int) -> str:
        return f"/job:ps/replica:0/task:{index}/device:CPU:0"

    def _worker(self, index: int) -> str:
        return f"/job:worker/replica:0/task:{index}/device:CPU:0"

    def _fill_shard(self, server: int) -> Any:
        """One server's rows as `initial_table` gives them."""
        own = np.arange(server, self._source.feature_size, self.servers)
        table = initial_table(self._config, 0, self._source.feature_size)[own]
        with tf.device(self._server(server)):
            shard = tf.Variable(tf.zeros(table.shape), name=f"table_{server}")
        self._fill(shard, server, table)
        log.info("parameter server %d holds %d rows, %d bytes", server, len(table), table.nbytes)
        return shard

    def _fill(self, shard: Any, server: int, table: NDArray[np.float32]) -> None:
        """Send rows to their server, in messages of bounded size."""
        with tf.device(self._server(server)):
            for start in range(0, len(table), FILL_ROWS):
                part = table[start : start + FILL_ROWS]
                shard.scatter_update(tf.IndexedSlices(part, np.arange(start, start + len(part))))

    def _route(self, ids_U: Any) -> tuple[list[Any], list[Any]]:
        """For each server: local rows of the ids it owns, and their positions in ids_U."""
        owner, local = ids_U % self.servers, ids_U // self.servers
        positions = tf.dynamic_partition(tf.range(tf.size(ids_U)), owner, self.servers)
        return tf.dynamic_partition(local, owner, self.servers), positions

    def _gradients(self, labels_B: Any, ids_BF: Any, values_BF: Any) -> tuple[Any, list[Any], Any, Any]:
        """Loss, dense gradients, distinct ids [U] and their gradients [U, 1 + D] of a batch, computed where this is called."""
        cells = group_by_id(ids_BF)
        local, positions = self._route(cells.ids_U)
        parts = []
        for server, rows in enumerate(local):
            with tf.device(self._server(server)):
                parts.append(gather_rows(self._shards[server], rows, self._width))
        rows_UE = tf.ensure_shape(tf.dynamic_stitch(positions, parts), [None, self._width])
        dense = [variable.read_value() for variable in self.dense]
        value, dense_gradients, rows_gradient = loss_and_gradients(dense, rows_UE, cells, labels_B, values_BF)
        return value, dense_gradients, cells.ids_U, rows_gradient

    def _apply(self, dense: list[Any], ids_U: Any, rows_UE: Any) -> None:
        """One step of the optimizer, on the servers."""
        with tf.device(self._server(0)):
            step = self._step.assign_add(1.0, read_value=True)
            self._optimizer.apply(dense, step)
        local, positions = self._route(ids_U)
        for server, rows in enumerate(local):
            gradient = tf.gather(rows_UE, positions[server])
            with tf.device(self._server(server)):
                apply_to_rows(self._config, self._shards[server], rows, gradient, step)

    def _iterator(self, division: Division, worker: int, begun: int) -> Any:
        """This worker's batches, read by the worker itself."""
        own = Division(**{**vars(division), "rank": worker})
        with tf.device(self._worker(worker)):
            return iter(batches(self._source, own, self._config.seed, begun))

    def fit(self, division: Division, recorder: Recorder, begun: int, save: Callable[[int], None]) -> None:
        """The steps of all workers after the first `begun`; all workers wait for each other where a checkpoint is due."""
        iterators = [self._iterator(division, worker, begun) for worker in range(self.size)]
        loop = self._synchronous(division, recorder) if self._config.ps_synchronous else self._asynchronous(division, recorder)
        every = self._config.checkpoint_steps or division.steps
        while begun < division.steps and not recorder.over():
            steps = min(every - begun % every, division.steps - begun)
            loop(iterators, steps)
            begun += steps
            if begun < division.steps:
                save(begun)

    def _asynchronous(self, division: Division, recorder: Recorder) -> Callable[[list[Any], int], None]:
        """A function that runs so many steps on every worker at once."""

        @tf.function
        def train(iterator: Any) -> Any:
            value, dense, ids_U, rows_UE = self._gradients(*next(iterator))
            self._apply(dense, ids_U, rows_UE)
            return value

        failed, tracing = threading.Event(), threading.Lock()

        def run(worker: int, iterator: Any, steps: int) -> None:
            try:
                with tf.device(self._worker(worker)):
                    with tracing:
                        step = train.get_concrete_function(iterator)
                    for _ in range(steps):
                        start = time.monotonic()
                        value = float(step(iterator))
                        recorder.add(_step(worker, division.batch_size, start, value))
                        if failed.is_set() or recorder.over():
                            return
            except BaseException:
                failed.set()
                raise

        def loop(iterators: list[Any], steps: int) -> None:
            with ThreadPoolExecutor(self.size, thread_name_prefix="worker") as pool:
                for future in [pool.submit(run, worker, iterator, steps) for worker, iterator in enumerate(iterators)]:
                    future.result()

        return loop

    def _synchronous(self, division: Division, recorder: Recorder) -> Callable[[list[Any], int], None]:
        """A function that runs so many steps, each with the gradients of all workers combined."""

        @tf.function
        def compute(iterator: Any) -> Any:
            return self._gradients(*next(iterator))

        @tf.function
        def combine(values: list[Any], dense: list[list[Any]], ids: list[Any], rows: list[Any]) -> Any:
            cells = group_by_id(tf.concat(ids, axis=0))
            rows_UE = sum_rows(tf.concat(rows, axis=0), cells) / float(self.size)
            self._apply([tf.add_n(list(same)) / float(self.size) for same in zip(*dense, strict=True)], cells.ids_U, rows_UE)
            return tf.add_n(values) / float(self.size)

        def loop(iterators: list[Any], steps: int) -> None:
            for _ in range(steps):
                start = time.monotonic()
                results = []
                for worker, iterator in enumerate(iterators):
                    with tf.device(self._worker(worker)):
                        results.append(compute(iterator))
                with tf.device("/job:chief/replica:0/task:0/device:CPU:0"):
                    value = float(combine(*(list(part) for part in zip(*results, strict=True))))
                recorder.add(_step(0, division.batch_size * self.size, start, value))

        return loop

    def agree(self) -> bool:
        """There is only one copy."""
        return True

    def figures(self) -> dict[str, Any]:
        """What training.json says of this strategy alone."""
        return {"table_bytes_per_server": [int(np.prod(shard.shape)) * 4 for shard in self._shards]}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what `state` holds."""
        table = (self._source.feature_size, int(self._shards[0].shape[1]))
        return {"table": table, **{name: tuple(v.shape) for name, v in self._optimizer.named(self._step).items()}}

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that training changes, by name, the table as one: a job may resume with another number of servers."""
        table = np.empty((self._source.feature_size, self._shards[0].shape[1]), np.float32)
        for server, shard in enumerate(self._shards):
            table[server :: self.servers] = shard.numpy()
        return {"table": table, **{name: variable.numpy() for name, variable in self._optimizer.named(self._step).items()}}

    def resume(self, found: tuple[int, Mapping[str, NDArray[Any]]] | None) -> int:
        """Take over the state found and return its step; 0 when there is none."""
        if found is None:
            return 0
        begun, state = found
        for name, variable in self._optimizer.named(self._step).items():
            variable.assign(state[name])
        for server, shard in enumerate(self._shards):
            self._fill(shard, server, state["table"][server :: self.servers])
        return begun

    def parameters(self) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """The embedding table without slots [V, 1 + D], and the dense weights."""
        table = np.empty((self._source.feature_size, self._width), np.float32)
        for server, shard in enumerate(self._shards):
            table[server :: self.servers] = shard.numpy()[:, : self._width]
        return table, [variable.numpy() for variable in self.dense]
