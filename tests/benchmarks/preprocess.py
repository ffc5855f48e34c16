"""What preprocess costs: rows/s end to end, from text and records to shards with checksums, beside a conversion script.

    python tests/benchmarks/preprocess.py [--rows 1000000] [--rounds 1]

Rows are Criteo-shaped (planted.py). `script` is what the article's users run: a line at a time, split, a tf.train.Example of Python
protobuf, a record written; on `--script-rows` rows of the same LibSVM text, in the same run. RSS is the sum over all processes, at
its highest of samples every 0.4 s; pages that processes share are counted in each.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import psutil
from planted import COUNTS, FIELDS, Planted

from components.examples import encode_example
from components.framing import frame
from components.manifest import read_manifest
from components.records import Batch

IDS = 1_000_000
PART_ROWS = 50_000
# What is run: its name, the format, and what else is said.
RUNS = (
    ("libsvm", "libsvm", ("--feature-size", str(IDS))),
    ("criteo", "criteo", ()),
    ("criteo with vocabulary", "criteo", ("--categories", "vocabulary")),
    ("tfrecord", "tfrecord", ("--feature-size", str(IDS))),
)
RUN = "import sys; from pipelines.command import main; sys.argv = ['ctrflow', *sys.argv[1:]]; main()"
SCRIPT = """
import sys, time
import tensorflow as tf
source, out, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
start = time.perf_counter()
with tf.io.TFRecordWriter(out) as writer, open(source) as lines:
    for _, line in zip(range(rows), lines):
        cells = line.split()
        pairs = [cell.split(":") for cell in cells[1:]]
        feature = {
            "label": tf.train.Feature(float_list=tf.train.FloatList(value=[float(cells[0])])),
            "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(pair[0]) for pair in pairs])),
            "values": tf.train.Feature(float_list=tf.train.FloatList(value=[float(pair[1]) for pair in pairs])),
        }
        writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
print(rows / (time.perf_counter() - start))
"""


def libsvm_lines(batch: Batch) -> str:
    values = np.char.mod("%.6g", batch.values)
    rows = zip(batch.labels.astype(int).tolist(), batch.ids.tolist(), values.tolist(), strict=True)
    return "".join(f"{label} " + " ".join(f"{i}:{v}" for i, v in zip(ids, texts, strict=True)) + "\n" for label, ids, texts in rows)


def criteo_lines(batch: Batch) -> str:
    counts = np.floor(np.expm1(batch.values[:, :COUNTS] * 8)).astype(int).tolist()
    tokens = ((batch.ids[:, COUNTS:] * 2654435761) % 2**32).tolist()
    rows = zip(batch.labels.astype(int).tolist(), counts, tokens, strict=True)
    return "".join(f"{label}\t" + "\t".join([*map(str, c), *map("{:08x}".format, t)]) + "\n" for label, c, t in rows)


def records(batch: Batch) -> bytes:
    rows = zip(batch.labels.tolist(), batch.ids, batch.values, strict=True)
    return b"".join(frame(encode_example(label, ids, values)) for label, ids, values in rows)


WRITERS: dict[str, Callable[[Batch], bytes]] = {
    "libsvm": lambda batch: libsvm_lines(batch).encode(),
    "criteo": lambda batch: criteo_lines(batch).encode(),
    "tfrecord": records,
}


def write_inputs(files: dict[str, Path], rows: int) -> None:
    """The same rows in each of the formats."""
    world = Planted(IDS)
    with ExitStack() as stack:
        opened = {format: stack.enter_context(path.open("wb")) for format, path in files.items()}
        for start in range(0, rows, PART_ROWS):
            batch = world.rows(min(PART_ROWS, rows - start), seed=start + 1)
            for format, file in opened.items():
                file.write(WRITERS[format](batch))


def resident(process: psutil.Process) -> int:
    """Bytes of a process and all its children."""
    total = 0
    for each in (process, *process.children(recursive=True)):
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def measure(source: Path, format: str, out: Path, *options: str) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and peak RSS of the command, start of the interpreter included."""
    command = [sys.executable, "-c", RUN, "preprocess", str(source), str(out), "--format", format, *options]
    start, before, peak = time.perf_counter(), os.times(), 0
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            peak = max(peak, resident(watched))
        except psutil.NoSuchProcess:
            break
        time.sleep(0.4)  # a look at all processes takes time of the cores that are measured
    wall, after = time.perf_counter() - start, os.times()
    if process.wait():
        raise SystemExit(f"{' '.join(command[3:])} failed")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--script-rows", type=int, default=20_000)
    parser.add_argument("--only", action="append", choices=[name for name, _, _ in RUNS], help="of the runs; may be given again")
    parser.add_argument("--inputs", type=Path, help="folder of inputs that an earlier run left there, or to leave them in")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = arguments.inputs or Path(work)
        folder.mkdir(parents=True, exist_ok=True)
        runs = [run for run in RUNS if not arguments.only or run[0] in arguments.only]
        files = {format: folder / format for format in ("libsvm", *(format for _, format, _ in runs))}
        if not all(path.exists() for path in files.values()):
            write_inputs(files, arguments.rows)
        print("| from | rows/s | CPU microseconds a row | peak RSS, MB | times the script |\n|" + "---|" * 5)
        for _ in range(arguments.rounds):
            script = [sys.executable, "-c", SCRIPT, str(files["libsvm"]), f"{work}/script", str(arguments.script_rows)]
            done = subprocess.run(script, check=True, capture_output=True, text=True)
            by_hand = float(done.stdout)
            print(f"| script, {arguments.script_rows:,} rows | {by_hand:,.0f} | | | 1.0 |", flush=True)
            for name, format, options in runs:
                wall, used, peak = measure(files[format], format, Path(work) / "out", *options)
                manifest = read_manifest(Path(work) / "out")
                rows = manifest.train.examples + manifest.validation.examples
                assert rows == arguments.rows, "--inputs holds another number of rows"
                assert manifest.schema.field_size == FIELDS
                rate = rows / wall
                cpu = f"{used / rows * 1e6:.1f}"
                print(f"| {name} | {rate:,.0f} | {cpu} | {peak / 1e6:,.0f} | {rate / by_hand:.1f} |", flush=True)


if __name__ == "__main__":
    main()
