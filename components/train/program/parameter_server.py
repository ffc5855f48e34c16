"""Parameter servers: table and weights live on them, workers compute gradients, the coordinator (chief) drives both.

A worker asks each server for the distinct rows of its batch and for the dense weights, computes, and sends the gradients back; the
server that owns a row or a weight updates it (servers.py). Only the rows of a batch travel.

The coordinator runs one thread a worker, and every worker runs its own equal number of steps on its own rows: ClusterCoordinator
would hand steps to whichever worker is free, and then no example count is exact. Workers are asynchronous: a server applies the
updates to a table or vector one after the other, but the weights that a gradient was computed from may have moved meanwhile.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.eager import context, executor

from components.train.program.channels import find_channels
from components.train.program.clock import time_after
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.division import Division, Share
from components.train.program.fit import Recorder, Step
from components.train.program.input import Source, batches, find_source, read_files
from components.train.program.kernels import Cells, group_by_id, load, sum_rows
from components.train.program.layout import Layout
from components.train.program.model import Model
from components.train.program.servers import Route, Servers
from components.train.program.tower import split_batch
from components.train.program.traced import traced

log = logging.getLogger(__name__)

COORDINATOR = "/job:chief/replica:0/task:0/device:CPU:0"


def worker_device(index: int) -> str:
    return f"/job:worker/replica:0/task:{index}/device:CPU:0"


def _step(worker: int, rows: int, start: float, seen: NDArray[np.float64]) -> Step:
    """A step from what its worker saw: loss, seconds of waiting for input, of computing and of asking servers, distinct rows.

    Seconds are differences of one process's clock, the worker's; what is left of the coordinator's own was spent on the way.
    """
    end = time.monotonic()
    value, wait, compute, servers, distinct = (float(each) for each in seen)
    duration = end - start
    communication = max(duration - wait - compute, 0.0)
    return Step(
        worker=worker,
        rows=rows,
        duration_s=duration,
        wait_s=wait,
        communication_s=communication,
        ended=end,
        loss=value,
        servers_s=min(servers, communication),
        distinct=int(distinct),
    )


def cluster_of_environment() -> dict[str, list[str]]:
    """Addresses of chief, workers and servers, as TensorFlow's own TF_CONFIG lists them."""
    cluster: dict[str, list[str]] = json.loads(os.environ["TF_CONFIG"])["cluster"]
    return cluster


def serve(role: str, index: int, container: Container, config: TrainConfig) -> None:
    """Be worker or parameter server `index` until killed.

    Raises:
        WorkflowError: this host's data cannot be trained on; the coordinator sees only its own.
    """
    if role == "worker":
        find_source(container, config, find_channels(container, config), 0)
    # The coordinator's graphs run here, and name operations that this process must know.
    load()
    session = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=tf.config.threading.get_inter_op_parallelism_threads(),
    )
    server = tf.distribute.Server(cluster_of_environment(), job_name=role, task_index=index, protocol="grpc", config=session)
    server.join()


def part_of(union: Cells, parts: list[Cells]) -> list[Any]:
    """For each part of a batch, where its distinct ids stand among those of all parts.

    Args:
        union: of the parts' distinct ids, one part after the other.
    """
    found: list[Any] = tf.split(union.index, [tf.size(cells.ids_U) for cells in parts], num=len(parts))
    return found


class ParameterServers:
    """The coordinator's side."""

    rank = 0

    def __init__(self, config: TrainConfig, source: Source, model: Model) -> None:
        cluster = cluster_of_environment()
        self.size = len(cluster["worker"])
        self.loss_scale = None
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
        self._model = model
        self._servers = Servers(config, source, model, len(cluster["ps"]))
        self._files: list[tuple[str, ...]] = []

    def _gradients(self, iterator: Any, worker: int) -> tuple[Any, Any, Any, Any, Route]:
        """One worker's part of a step on its next batch, computed where this is called.

        Returns:
            loss, seconds of waiting, of computing and of asking servers, and distinct rows, float64 [5]; dense gradients [P];
            distinct ids [U] and their gradients [U, E]; where those rows are.
        """
        began = tf.timestamp()
        with tf.control_dependencies([began]):
            batch = next(iterator)
        read = time_after(batch)
        parts = split_batch(batch, self._config.tower_count)
        cells = [group_by_id(ids_BF) for _, ids_BF, _ in parts]
        union = group_by_id(tf.concat([each.ids_U for each in cells], axis=0)) if len(cells) > 1 else cells[0]
        route = self._servers.route(union.ids_U)
        asked = time_after(route)
        rows_UE, dense = self._servers.pull(route)
        answered = time_after([rows_UE, dense])
        own = [tf.gather(rows_UE, where) for where in part_of(union, cells)] if len(cells) > 1 else [rows_UE]
        found = [
            self._model.loss_and_gradients(dense, rows, each, labels_B, values_BF, self._servers.step, worker * len(parts) + number)
            for number, (rows, each, (labels_B, _, values_BF)) in enumerate(zip(own, cells, parts, strict=True))
        ]
        values, dense_gradients, rows_gradients = zip(*found, strict=True)
        count = float(len(parts))
        value = tf.add_n(values) / count
        gradient_P = tf.add_n([self._servers.flatten(each) for each in dense_gradients]) / count
        gradient_UE = sum_rows(tf.concat(rows_gradients, axis=0), union) / count if len(cells) > 1 else rows_gradients[0]
        computed = time_after([value, gradient_P, gradient_UE])
        computing, distinct = asked - read + computed - answered, tf.cast(tf.size(union.ids_U), tf.float64)
        seen = tf.stack([tf.cast(value, tf.float64), read - began, computing, answered - asked, distinct])
        return seen, gradient_P, union.ids_U, gradient_UE, route

    def shares(self, layout: Layout) -> list[Share]:
        """What every worker reads; each host's files are listed by its worker."""
        # Every process runs in the base directory of its host, wherever that is.
        folder = layout.folder(0).relative_to(layout.base)
        found = []
        for worker in range(self.size):
            with tf.device(worker_device(worker)):
                paths = tf.io.matching_files(f"{folder}/*").numpy()
            found.append(layout.share(worker, 0, [Path(path.decode()).name for path in paths]))
        self._files = [layout.files(share, folder) for share in found]
        return found

    def _iterator(self, division: Division, worker: int, begun: int, cached: bool) -> Any:
        """This worker's batches, read by the worker itself."""
        own, payloads = replace(division, rank=worker), self._payloads(worker)
        with tf.device(worker_device(worker)):
            return iter(batches(payloads, self._source, own, self._config.seed, begun, cached=cached, how=self._config))

    def _payloads(self, worker: int) -> Any:
        return read_files(self._files[worker], self._source.encoding, self._config.parallel_reads)

    def fit(self, division: Division, recorder: Recorder, begun: int, save: Callable[[int], None], cached: bool) -> None:
        """The steps of all workers after the first `begun`; all workers wait for each other where a checkpoint is due."""
        iterators = [self._iterator(division, worker, begun, cached) for worker in range(self.size)]
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

        @traced
        def train(iterator: Any, worker: int) -> Any:
            seen, gradient_P, _, gradient_UE, route = self._gradients(iterator, worker)
            self._servers.push(route, gradient_UE, gradient_P)
            return seen

        failed, tracing = threading.Event(), threading.Lock()

        def run(worker: int, iterator: Any, steps: int) -> None:
            try:
                # Steps that share an executor, as threads do unless told otherwise, run one after the other on a server.
                with context.executor_scope(executor.new_executor(enable_async=False)), tf.device(worker_device(worker)):
                    with tracing:
                        step = train.get_concrete_function(iterator, worker)
                    for _ in range(steps):
                        start = time.monotonic()
                        seen = step(iterator, worker).numpy()
                        recorder.add(_step(worker, division.batch_size, start, seen))
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

        @traced
        def compute(iterator: Any, worker: int) -> Any:
            return self._gradients(iterator, worker)[:4]

        @traced
        def combine(seen: list[Any], dense: list[Any], ids: list[Any], rows: list[Any]) -> Any:
            cells = group_by_id(tf.concat(ids, axis=0))
            gradient_UE = sum_rows(tf.concat(rows, axis=0), cells) / float(self.size)
            self._servers.push(self._servers.route(cells.ids_U), gradient_UE, tf.add_n(dense) / float(self.size))
            # The mean loss and rows; the seconds of all workers, which take their turns.
            return tf.add_n(seen) / tf.constant([self.size, 1, 1, 1, self.size], tf.float64)

        def loop(iterators: list[Any], steps: int) -> None:
            for _ in range(steps):
                start = time.monotonic()
                results = []
                for worker, iterator in enumerate(iterators):
                    with tf.device(worker_device(worker)):
                        results.append(compute(iterator, worker))
                with tf.device(COORDINATOR):
                    seen = combine(*(list(part) for part in zip(*results, strict=True))).numpy()
                recorder.add(_step(0, division.batch_size * self.size, start, seen))

        return loop

    def each_rank(self, own: Any) -> list[Any]:
        """The coordinator sees all workers itself."""
        return [own]

    def sent_bytes(self, rows: float) -> float:
        """What a worker sends to the servers in a step whose batch has so many distinct rows: ids, and all gradients."""
        return rows * 4 * (1 + self._model.row_width) + 4.0 * sum(value.size for value in self._model.initial_dense())

    def checksums(self) -> dict[str, str]:
        """None: there is only one copy."""
        return {}

    def figures(self) -> dict[str, Any]:
        """What training.json says of this strategy alone."""
        return {"table_bytes_per_server": self._servers.table_bytes, "dense_bytes_per_server": self._servers.dense_bytes}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what `state` holds."""
        return self._servers.shapes()

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that training changes, by name."""
        return self._servers.state()

    def resume(self, found: tuple[int, Mapping[str, NDArray[Any]]] | None) -> int:
        """Take over the state found and return its step; 0 when there is none."""
        if found is None:
            self._servers.begin()
            return 0
        begun, state = found
        self._servers.load(state)
        return begun

    def parameters(self) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """The embedding table without slots [V, E], and the dense weights."""
        return self._servers.table(self._model.row_width), self._servers.dense()
