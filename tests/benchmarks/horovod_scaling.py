"""Examples/s of two Horovod workers of one thread against twice one process of one thread, at equal batch a worker.

    python tests/benchmarks/horovod_scaling.py [--placements replicated_sparse sharded] [--batch 1024] [--ids 117581] [--rounds 3]

Every training goes through the launcher, on blocks, input included, as jobs do. The sides alternate within one run; a figure is the
median of the rounds. `two alone` are two single processes at the same time, which exchange nothing: what two workers could reach at
most on this machine.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from jobs import Job, write_dataset

PORT_BASE = 9400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--placements", nargs="+", default=["replicated_sparse", "sharded"])
    parser.add_argument("--batch", type=int, default=1024, help="of a worker")
    parser.add_argument("--ids", type=int, default=117_581)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    common = {
        "batch_size": arguments.batch, "steps": arguments.steps, "optimizer": arguments.optimizer, "probe": "both",
        "intra_op_threads": 1, "inter_op_threads": 1, "omp_threads": 1,
    }  # fmt: skip
    alone = {**common, "strategy": "single"}
    sides: dict[str, list[dict[str, Any]]] = {"one": [alone], "two alone": [alone, alone]}
    for placement in arguments.placements:
        sides[placement] = [{**common, "strategy": "horovod", "workers_per_host": 2, "embedding_placement": placement}]
    found: dict[str, list[list[dict[str, Any]]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        dataset = write_dataset(root / "data", arguments.ids)
        for number in range(arguments.rounds):
            for side, jobs in sides.items():
                running = [
                    Job(root / f"{side.replace(' ', '-')}-{number}-{index}", dataset, PORT_BASE + 50 * index, settings)
                    for index, settings in enumerate(jobs)
                ]
                found[side].append([job.training() for job in running])
    rates = {side: [sum(one["examples_per_s"] for one in round_) for round_ in rounds] for side, rounds in found.items()}
    twice = 2 * statistics.median(rates["one"])
    print("| side | examples/s | of each round | ratio to twice one | median step, ms | communicating | waiting for input |")
    print("|" + "---|" * 7)
    for side, each in rates.items():
        last = [job for round_ in found[side] for job in round_]
        cells = [side, f"{statistics.median(each):,.0f}", ", ".join(f"{rate:,.0f}" for rate in each)]
        cells.append(f"{statistics.median(each) / twice:.2f}")
        cells.append(f"{1000 * statistics.median(job['step_time_s']['p50'] for job in last):.1f}")
        for share in ("communication_share", "input_wait_share"):
            cells.append(f"{100 * statistics.median(job[share] for job in last):.0f} %")
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
