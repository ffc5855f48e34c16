"""Examples/s of one training step on one process: single against tower and mirrored, interleaved in one run, compute only.

    python tests/benchmarks/towers.py [--towers 2] [--ids 117581] [--batch 1024 4096] [--optimizer adam] [--seconds 20]

All train the same model on the same batches, in alternating blocks of steps, so that what else the machine does hits all
alike; their losses must agree. The ratio is that of medians; CPU milliseconds a step (all threads) hardly depend on other load.
"""

import argparse
import itertools
import os
import statistics
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from train_step import Side, criteo_shaped

from components.train.program.config import TrainConfig
from components.train.program.devices import replica_devices
from components.train.program.input import Source
from components.train.program.mirrored import Mirrored
from components.train.program.model import make_model
from components.train.program.single import Single
from components.train.program.tower import Tower


def compare(ids: int, batch: int, optimizer: Any, towers: int, seconds: float) -> list[str]:
    """A line of the table for each strategy; the first blocks, which trace, are not measured but their losses must agree."""
    # First of all: nothing can divide the CPU into devices once TensorFlow has run.
    replica_devices(TrainConfig(strategy="tower", batch_size=batch, towers=towers, device="cpu"))
    source = Source(files=(), examples=batch, field_size=39, feature_size=ids, click_rate=0.25, encoding="blocks")
    batches = criteo_shaped(ids, batch)

    def side(kind: Any, **settings: Any) -> Side:
        config = TrainConfig(optimizer=optimizer, batch_size=batch, **settings)
        return Side(train=kind(config, source, make_model(config, source.field_size, source.click_rate)).train)

    sides = {"single": side(Single), "tower": side(Tower, strategy="tower", towers=towers, device="cpu")}
    for operation in ("reduction_to_one", "hierarchical_copy"):
        sides[f"mirrored, {operation}"] = side(Mirrored, strategy="mirrored", towers=towers, cross_device=operation, device="cpu")
    expected = sides["single"].run_block(batches)
    for name, each in sides.items():
        if name != "single":
            np.testing.assert_allclose(each.run_block(batches), expected, rtol=1e-4)
        each.wall_ms.clear()
        each.cpu_ms.clear()
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(sides["single"].wall_ms) < 5:
        for each in sides.values():
            each.run_block(batches)
    lines = []
    for name, each in sides.items():
        wall, cpu = statistics.median(each.wall_ms), statistics.median(each.cpu_ms)
        ratio = statistics.median(sides["single"].wall_ms) / wall
        cells = [f"{ids:,}", str(batch), optimizer, name, f"{batch * 1000 / wall:,.0f}", f"{cpu:.1f}", f"{ratio:.2f}"]
        lines.append("| " + " | ".join([*cells, f"{batch * 1000 / min(each.wall_ms):,.0f}"]) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towers", type=int, default=2)
    parser.add_argument("--ids", type=int, nargs="+", default=[117_581])
    parser.add_argument("--batch", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--optimizer", nargs="+", default=["adam"])
    parser.add_argument("--seconds", type=float, default=20.0, help="measured, for each batch size and all strategies together")
    parser.add_argument("--intra", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--inter", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.intra)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.inter)
    print("| ids | batch | optimizer | strategy | examples/s | CPU ms a step | ratio to single | best block |")
    print("|" + "---|" * 8, flush=True)
    for ids, batch, optimizer in itertools.product(arguments.ids, arguments.batch, arguments.optimizer):
        print("\n".join(compare(ids, batch, optimizer, arguments.towers, arguments.seconds)), flush=True)


if __name__ == "__main__":
    main()
