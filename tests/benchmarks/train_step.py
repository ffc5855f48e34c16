"""Examples/s of one training step, compute only: plain TensorFlow against the compiled operations, interleaved in one run.

    python tests/benchmarks/train_step.py [--ids 117581 1000000] [--batch 1024 4096] [--optimizer adam adagrad] [--seconds 10]

Both sides train the same model with the same rules on the same batches, in alternating blocks of steps, so that what else the
machine does hits both alike. The ratio is that of medians; CPU milliseconds a step (all threads) hardly depend on other load.
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from planted import CRITEO

from components.train.program.config import TrainConfig
from components.train.program.input import Source
from components.train.program.model import loss, make_model
from components.train.program.optimizers import ADAM_BETA_1, ADAM_BETA_2, EPSILON, effective_rate
from components.train.program.single import Single

BLOCK_STEPS, BATCHES = 10, 8


def criteo_shaped(ids: int, batch: int, seed: int = 0) -> list[tuple[Any, Any, Any]]:
    """Batches of 13 numeric fields and 26 categorical ones, the largest cut to one cap so that there are about `ids` ids in all."""
    draw = np.random.default_rng(seed)
    cap = next(c for c in range(max(CRITEO), 0, -1000) if 13 + sum(min(c, size) for size in CRITEO) <= ids)
    sizes = [min(cap, size) for size in CRITEO]
    starts = 13 + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rows = batch * BATCHES
    cells = np.empty((rows, 39), np.int32)
    cells[:, :13] = np.arange(13)
    for number, size in enumerate(sizes):
        popularity = (np.arange(size) + 2.0) ** -draw.uniform(0.95, 1.35)
        cumulated = np.cumsum(popularity) / popularity.sum()
        cells[:, 13 + number] = starts[number] + np.minimum(np.searchsorted(cumulated, draw.random(rows)), size - 1)
    values = np.ones((rows, 39), np.float32)
    values[:, :13] = draw.random((rows, 13))
    labels = (draw.random(rows) < 0.25).astype(np.float32)
    parts = [slice(start, start + batch) for start in range(0, rows, batch)]
    return [(tf.constant(labels[p]), tf.constant(cells[p]), tf.constant(values[p])) for p in parts]


class PlainStep(Single):
    """The same step without compiled operations, as straightforward TensorFlow."""

    def _update(self, slots: list[Any], parameter: Any, gradient: Any, rate: Any) -> tuple[Any, list[Any]]:
        if self._config.optimizer == "adam":
            m = ADAM_BETA_1 * slots[0] + (1 - ADAM_BETA_1) * gradient
            v = ADAM_BETA_2 * slots[1] + (1 - ADAM_BETA_2) * tf.square(gradient)
            return parameter - rate * m / (tf.sqrt(v) + EPSILON), [m, v]
        if self._config.optimizer == "adagrad":
            total = slots[0] + tf.square(gradient)
            return parameter - rate * gradient / (tf.sqrt(total) + EPSILON), [total]
        return parameter - rate * gradient, []

    @tf.function
    def _train(self, labels_B: Any, ids_BF: Any, values_BF: Any) -> Any:
        ids_U, index = tf.unique(tf.reshape(ids_BF, [-1]))
        state_US = tf.gather(self.table, ids_U)
        rows_UE = state_US[:, : self._width]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.dense)
            tape.watch(rows_UE)
            rows_BFE = tf.gather(rows_UE, tf.reshape(index, tf.shape(ids_BF)))
            value = loss(labels_B, self._model.logits(self.dense, rows_BFE, ids_BF, values_BF))
        *dense, of_rows = tape.gradient(value, [*self.dense, rows_UE])
        rate = effective_rate(self._config, self._step.assign_add(1.0, read_value=True))
        for number, (variable, gradient) in enumerate(zip(self.dense, dense, strict=True)):
            slots = self._optimizer.slots[number]
            parameter, new = self._update(slots, variable, gradient, rate)
            variable.assign(parameter)
            for slot, state in zip(slots, new, strict=True):
                slot.assign(state)
        parts = tf.split(state_US, state_US.shape[1] // self._width, axis=1)
        parameter, new = self._update(parts[1:], parts[0], tf.convert_to_tensor(of_rows), rate)
        self.table.scatter_update(tf.IndexedSlices(tf.concat([parameter, *new], axis=1), ids_U))
        return value

    def train(self, batch: tuple[Any, Any, Any]) -> float:
        return float(self._train(*batch))


@dataclass
class Side:
    """One of the two, and its milliseconds a step, block by block."""

    train: Callable[[tuple[Any, Any, Any]], float]
    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def run_block(self, batches: list[tuple[Any, Any, Any]]) -> list[float]:
        """The losses of BLOCK_STEPS steps."""
        wall, cpu = time.perf_counter(), time.process_time()
        losses = [self.train(batches[step % BATCHES]) for step in range(BLOCK_STEPS)]
        self.wall_ms.append((time.perf_counter() - wall) * 1000 / BLOCK_STEPS)
        self.cpu_ms.append((time.process_time() - cpu) * 1000 / BLOCK_STEPS)
        return losses


def compare(ids: int, batch: int, optimizer: Any, seconds: float) -> str:
    """One line of the table; the first blocks of both sides, which trace, are not measured but their losses must agree."""
    config = TrainConfig(optimizer=optimizer, batch_size=batch)
    source = Source(files=(), examples=batch, field_size=39, feature_size=ids, click_rate=0.25, encoding="blocks")
    batches = criteo_shaped(ids, batch)
    distinct = statistics.mean(len(np.unique(cells)) / batch for _, cells, _ in batches)
    model = make_model(config, source.field_size, source.click_rate)
    plain, compiled = (Side(train=kind(config, source, model).train) for kind in (PlainStep, Single))
    np.testing.assert_allclose(compiled.run_block(batches), plain.run_block(batches), rtol=1e-4)
    for side in (plain, compiled):
        side.wall_ms.clear()
        side.cpu_ms.clear()
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(plain.wall_ms) < 5:
        for side in (plain, compiled):
            side.run_block(batches)
    cells_ = [f"{ids:,}", str(batch), optimizer, f"{distinct:.1f}"]
    for side in (plain, compiled):
        cells_ += [f"{batch * 1000 / statistics.median(side.wall_ms):,.0f}", f"{statistics.median(side.cpu_ms):.1f}"]
    ratio = [
        statistics.median(a) / statistics.median(b) for a, b in ((plain.wall_ms, compiled.wall_ms), (plain.cpu_ms, compiled.cpu_ms))
    ]
    best = batch * 1000 / min(compiled.wall_ms)
    return "| " + " | ".join([*cells_, f"{ratio[0]:.2f}", f"{ratio[1]:.2f}", f"{best:,.0f}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, nargs="+", default=[117_581, 1_000_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--optimizer", nargs="+", default=["adam", "adagrad"])
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, for each line and both sides together")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    print(
        "| ids | batch | optimizer | distinct ids an example | plain, examples/s | plain, CPU ms | compiled, examples/s"
        " | compiled, CPU ms | ratio | CPU ratio | compiled, best block |"
    )
    print("|" + "---|" * 11, flush=True)
    for ids, batch, optimizer in itertools.product(arguments.ids, arguments.batch, arguments.optimizer):
        print(compare(ids, batch, optimizer, arguments.seconds), flush=True)


if __name__ == "__main__":
    main()
