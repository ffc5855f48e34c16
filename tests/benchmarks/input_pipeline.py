"""What reading costs: rows/s of one reader from each encoding, and the share of a training that waits for it.

    python tests/benchmarks/input_pipeline.py [--seconds 4] [--no-jobs]

The first table reads in this process and trains on nothing; CPU microseconds are of all threads, for a row that the reader decodes,
whether it takes the row or another reader does. The second trains `single` through the launcher.
"""

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from jobs import FIELDS, ROWS, Job, write_dataset

from components.manifest import Manifest, read_manifest, write_manifest
from components.records import ENCODINGS, SUFFIXES, Encoding, concatenate, read_shard, write_shard
from components.train.program.config import TrainConfig
from components.train.program.division import Share, divide
from components.train.program.input import Source, batches, read_files
from components.train.program.read_ahead import ReadAhead

IDS, BATCH = 117_581, 1024
PORT_BASE = 15_300


@dataclass(frozen=True)
class Reading:
    """One row of the first table."""

    encoding: Encoding
    cached: bool
    readers: int


def encode_again(blocks: Path, folder: Path, encoding: Encoding) -> Path:
    """The dataset `blocks` in another encoding."""
    manifest = read_manifest(blocks)
    (folder / "train").mkdir(parents=True)
    shards = []
    for shard in manifest.train.shards:
        rows = concatenate(read_shard(blocks / shard.path, manifest.schema, "blocks"), FIELDS)
        shards.append(write_shard(folder / "train" / Path(shard.path).with_suffix(SUFFIXES[encoding]).name, rows, encoding))
    split = type(manifest.train)(examples=manifest.train.examples, positives=manifest.train.positives, shards=tuple(shards))
    write_manifest(folder, Manifest(**{**vars(manifest), "encoding": encoding, "train": split, "validation": split}))
    return folder


def read_for(dataset: Path, reading: Reading, seconds: float) -> str:
    """One line of the first table."""
    files = tuple(map(str, sorted((dataset / "train").iterdir())))
    source = Source(files=files, examples=ROWS, field_size=FIELDS, feature_size=IDS, click_rate=0.25, encoding=reading.encoding)
    shares = [Share(place="", shards=(0,), rows=ROWS, readers=reading.readers, index=n) for n in range(reading.readers)]
    division = divide(shares, TrainConfig(batch_size=BATCH, steps=1_000_000), 0, ROWS)
    found = ReadAhead(batches(read_files(files, reading.encoding), source, division, 1, cached=reading.cached))
    for _ in range(2 * division.steps_per_epoch):  # warm, and the cache full
        next(found)
    start, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < seconds:
        next(found)
        count += 1
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    decoded = count * BATCH * reading.readers
    kept = "kept in memory" if reading.cached else "read each epoch"
    return f"| {reading.encoding} | {kept} | {reading.readers} | {count * BATCH / wall:,.0f} | {cpu / decoded * 1e6:.2f} |"


def train_on(dataset: Path, root: Path, number: int, settings: dict[str, Any]) -> str:
    """One line of the second table."""
    fixed = {"strategy": "single", "batch_size": BATCH, "probe": "both", "steps": 1_000_000}
    found = Job(root / f"job{number}", dataset, PORT_BASE + 50 * number, {**fixed, **settings}).training()
    wait, step = found["input_wait_share"], found["step_time_s"]
    return f"{100 * wait:.2f} % | {step['p50'] * 1e3:.1f} | {step['p99'] * 1e3:.1f} | {found['examples_per_s']:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each line")
    parser.add_argument("--no-jobs", action="store_true", help="only the first table")
    arguments = parser.parse_args()
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(2)
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        datasets: dict[Encoding, Path] = {"blocks": write_dataset(root / "blocks", IDS)}
        datasets |= {name: encode_again(datasets["blocks"], root / name, name) for name in ENCODINGS if name != "blocks"}
        print("| encoding | rows are | readers | rows/s of this reader | CPU microseconds a decoded row |\n|" + "---|" * 5)
        for encoding in ENCODINGS:
            for cached, readers in ((False, 1), (True, 1), (False, 4)):
                print(read_for(datasets[encoding], Reading(encoding, cached, readers), arguments.seconds), flush=True)
        if arguments.no_jobs:
            return
        print("\n| encoding | intra-op | waiting | step p50, ms | p99, ms | examples/s |\n|" + "---|" * 6)
        for number, encoding in enumerate(ENCODINGS):
            for threads in (1, 2):
                settings = {"intra_op_threads": threads, "max_seconds": arguments.seconds}
                line = train_on(datasets[encoding], root, 2 * number + threads, settings)
                print(f"| {encoding} | {threads} | {line}", flush=True)


if __name__ == "__main__":
    main()
