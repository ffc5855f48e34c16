"""How tensors travel between ranks in a training step: through Horovod, or through memory that the ranks of one host share.

Horovod over Gloo speaks TCP also inside a host, and asks all ranks for each exchange whether they are ready: what two ranks have to
say at batch 1024 costs each of them 4 ms of CPU in a step of 16 (tests/benchmarks/README.md). Ranks of one host need none
of it, and use `SharedMemoryExchange`; with ranks on several hosts all use `HorovodExchange`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import horovod.tensorflow as hvd
import tensorflow as tf

from components.errors import WorkflowError
from components.train.program.devices import HOST
from components.train.program.kernels import load
from components.train.program.shared_memory import CHANNELS, inherited_memory

# Horovod remembers what it has agreed on only when shapes are those of the step before: a message is filled up to a multiple of
# this share of the cells of a batch.
ROUNDING = 64


class Exchange(Protocol):
    """What all ranks call in the same order, in graphs or outside; `name` tells exchanges of a step apart."""

    def mean(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Means over ranks of float32 tensors that have the same shapes everywhere."""
        ...

    def gather(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Of each tensor, the rows of all ranks, by rank; ranks may have different numbers of them."""
        ...

    def alltoall(self, rows: Any, splits: Any, name: str) -> tuple[Any, Any]:
        """Rows that the ranks have for this one, by rank, and how many of each, int32 [ranks].

        Args:
            rows: rows for the ranks, by rank. splits: how many for each, int32 [ranks].
        """
        ...

    def multiple(self, cells: int) -> int:
        """Of what number the rows of a message should be a multiple, in a step whose batch has so many cells."""
        ...


class HorovodExchange:
    """Through Horovod, which may send while the model is at work."""

    def mean(self, tensors: Sequence[Any], name: str) -> list[Any]:
        means: list[Any] = hvd.grouped_allreduce(list(tensors), op=hvd.Average, name=name)
        return means

    def gather(self, tensors: Sequence[Any], name: str) -> list[Any]:
        return [hvd.allgather(tensor, name=f"{name}_{number}") for number, tensor in enumerate(tensors)]

    def alltoall(self, rows: Any, splits: Any, name: str) -> tuple[Any, Any]:
        received, counts = hvd.alltoall(rows, splits=splits, name=name)
        return received, counts

    def multiple(self, cells: int) -> int:
        return max(cells // ROUNDING, 1)


class SharedMemoryExchange:
    """Through memory that all ranks, on one host, share.

    A rank whose peer died waits in an exchange until the launcher, which sees the death, ends it too.
    """

    def __init__(self, file: int, rank: int, ranks: int) -> None:
        self._place = {"file": file, "rank": rank, "ranks": ranks}
        self._channels: dict[str, int] = {}
        self._before: list[Any] = []

    def mean(self, tensors: Sequence[Any], name: str) -> list[Any]:
        means: list[Any] = self._in_order(load().ctrflow_host_mean, list(tensors), name=name)
        return means

    def gather(self, tensors: Sequence[Any], name: str) -> list[Any]:
        gathered: list[Any] = self._in_order(load().ctrflow_host_gather, list(tensors), name=name)
        return gathered

    def alltoall(self, rows: Any, splits: Any, name: str) -> tuple[Any, Any]:
        received, counts = self._in_order(load().ctrflow_host_alltoall, rows, splits, name=name)
        return received, counts

    def multiple(self, cells: int) -> int:
        return 1

    def _in_order(self, operation: Any, *arguments: Any, name: str) -> Any:
        """Add an exchange behind the one before it: a thread that waits in one must not keep another from being reached."""
        channel = self._channels.setdefault(name, len(self._channels))
        if channel >= CHANNELS:
            raise WorkflowError(f"{name}: more than {CHANNELS} exchanges; raise CHANNELS in shared_memory.py and shared_memory.cc")
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        with tf.control_dependencies([tensor for tensor in self._before if tensor.graph is graph]):
            found = operation(*arguments, channel=channel, **self._place)
        self._before = [] if graph is None else tf.nest.flatten(found)
        return found


def exchange(device: str) -> Exchange:
    """Through shared memory where the launcher made some, else through Horovod, which must be initialized.

    Gradients on GPUs are averaged where they are, if Horovod was built with NCCL.
    """
    file = inherited_memory()
    if file is None or (device != HOST and hvd.nccl_built()):
        return HorovodExchange()
    return SharedMemoryExchange(file, hvd.rank(), hvd.size())
