"""Whether preprocess keeps within its bound of memory: peak RSS of all its processes for many rows, beside that for few.

    python tests/benchmarks/preprocess_memory.py [--rows 10000000]

Rows are LibSVM text of 39 fields, made here: a table of all words once, from which rows are drawn as bytes, 508 a row (10 million:
5 GB of disk, and twice as much for scratch and shards). The bound is what rows may take; the interpreter and its libraries, which
the run of few rows shows, come on top. Both runs have as many processes. It ends with exit code 1 where the bound is exceeded.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from preprocess import measure

from components.manifest import read_manifest
from components.preprocess.bounds import memory_bound
from components.resources import usable_cpus

FIELDS, IDS = 39, 1_000_000
# So that an id is a word of one width, without leading zeros.
SMALLEST_ID = IDS // 10
FEW_ROWS, PART_ROWS = 1000, 200_000


def write_rows(path: Path, rows: int) -> None:
    """Ids of a field are its own and skewed, as those of click logs are: half of its rows have a tenth of them."""
    numbers = np.arange(SMALLEST_ID, IDS)
    words = np.frombuffer("".join(f" {each}:0.{each % 900 + 100}" for each in numbers.tolist()).encode(), np.uint8)
    words = words.reshape(len(numbers), -1)
    own = len(numbers) // FIELDS
    draw = np.random.default_rng(1)
    with path.open("wb") as file:
        for start in range(0, rows, PART_ROWS):
            count = min(PART_ROWS, rows - start)
            places = (draw.random((count, FIELDS), np.float32) ** 3.3 * own).astype(np.int64) + own * np.arange(FIELDS)
            line = np.empty((count, 1 + FIELDS * words.shape[1] + 1), np.uint8)
            line[:, 0] = ord("0") + (draw.random(count) < 0.25)
            line[:, 1:-1] = words[places].reshape(count, -1)
            line[:, -1] = ord("\n")
            file.write(line.data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    arguments = parser.parse_args()
    bound, processes, peaks = memory_bound(), usable_cpus().count, []
    print("| rows | rows/s | peak RSS of all processes, MB | above that of few rows, MB | bound, MB |\n|" + "---|" * 5)
    with tempfile.TemporaryDirectory() as work:
        for rows in (FEW_ROWS, arguments.rows):
            source, out = Path(work) / f"{rows}.libsvm", Path(work) / "out"
            write_rows(source, rows)
            wall, _, peak = measure(source, "libsvm", out, "--feature-size", str(IDS), "--processes", str(processes))
            manifest = read_manifest(out)
            assert manifest.train.examples + manifest.validation.examples == rows
            peaks.append(peak)
            above = peak - peaks[0]
            print(f"| {rows:,} | {rows / wall:,.0f} | {peak / 1e6:,.0f} | {above / 1e6:,.0f} | {bound / 1e6:,.0f} |", flush=True)
    if peaks[1] - peaks[0] > bound:
        raise SystemExit(f"{(peaks[1] - peaks[0]) / 1e6:,.0f} MB are more than the bound")


if __name__ == "__main__":
    main()
