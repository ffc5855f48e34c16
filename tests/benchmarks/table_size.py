"""Step time and memory of two Horovod workers whose table is not replicated, small against large, alternating in one run.

    python tests/benchmarks/table_size.py [--ids 100000 10000000] [--placements sharded shared] [--rounds 2]

The aim: a step at 10 million ids takes at most 1.3 times one at 100,000, and a rank holds half of the table.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from jobs import Job, write_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--placements", nargs="+", default=["sharded", "shared"])
    parser.add_argument("--batch", type=int, default=1024, help="of a worker")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    settings = {
        "strategy": "horovod", "workers_per_host": 2, "batch_size": arguments.batch, "steps": arguments.steps, "probe": "both",
        "intra_op_threads": 1, "inter_op_threads": 1, "omp_threads": 1,
    }  # fmt: skip
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        datasets = {ids: write_dataset(root / f"data-{ids}", ids) for ids in arguments.ids}
        for number in range(arguments.rounds):
            for placement in arguments.placements:
                for ids, dataset in datasets.items():
                    work = root / f"{placement}-{ids}-{number}"
                    job = Job(work, dataset, 9950, {**settings, "embedding_placement": placement})
                    found.setdefault((placement, ids), []).append(job.training())
    print("| placement | ids | median step, ms | times the first | table of each rank, MB | start-up, s |")
    print("|" + "---|" * 6)
    for (placement, ids), each in found.items():
        step = statistics.median(one["step_time_s"]["p50"] for one in each)
        first = statistics.median(one["step_time_s"]["p50"] for one in found[placement, arguments.ids[0]])
        held = ", ".join(f"{count / 1e6:,.0f}" for count in each[0]["table_bytes_per_rank"])
        start = statistics.median(one["startup_s"] for one in each)
        print(f"| {placement} | {ids:,} | {1000 * step:.1f} | {step / first:.2f} | {held} | {start:.1f} |", flush=True)


if __name__ == "__main__":
    main()
