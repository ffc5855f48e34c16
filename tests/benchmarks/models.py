"""A training step of every model, in float32 and with the products of its layers in bfloat16, interleaved; compute only.

python tests/benchmarks/models.py [--batch 1024] [--seconds 60]
"""

import argparse
import os
import statistics
import time
from typing import Any

import tensorflow as tf
from train_step import Side, criteo_shaped

from components.resources import cpu_flags
from components.train.program.config import TrainConfig
from components.train.program.input import Source
from components.train.program.model import make_model
from components.train.program.precision import FULL, choose_precision
from components.train.program.single import Single

IDS = 117_581
MODELS: dict[str, dict[str, Any]] = {
    "deepfm": {},
    "deepfm, batch_norm and dropout 0.5": {"batch_norm": True, "dropout": (0.5,)},
    "wide_and_deep": {"model": "wide_and_deep"},
    "dcn_v2, rank 64": {"model": "dcn_v2"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    batches = criteo_shaped(IDS, arguments.batch)
    source = Source(files=(), examples=arguments.batch, field_size=39, feature_size=IDS, click_rate=0.25, encoding="blocks")
    sides: dict[tuple[str, str], Side] = {}
    for name, settings in MODELS.items():
        config = TrainConfig(batch_size=arguments.batch, mixed_precision=True, **settings)
        for precision in dict.fromkeys((FULL, choose_precision(config, 0, cpu_flags()))):
            model = make_model(config, source.field_size, source.click_rate, precision)
            sides[name, precision.name] = Side(train=Single(config, source, model).train)
    for side in sides.values():
        side.run_block(batches)  # traces
        side.wall_ms.clear()
        side.cpu_ms.clear()
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        for side in sides.values():
            side.run_block(batches)
    print("| model | products in | examples/s | CPU ms a step |\n|---|---|---|---|")
    for (name, precision), side in sides.items():
        rate, cpu = arguments.batch * 1000 / statistics.median(side.wall_ms), statistics.median(side.cpu_ms)
        print(f"| {name} | {precision} | {rate:,.0f} | {cpu:.1f} |")


if __name__ == "__main__":
    main()
