"""Examples/s of parameter servers on two hosts of this machine against `single` with the same cores, at equal batch a worker.

    python tests/benchmarks/parameter_servers.py [--batch 1024] [--ids 117581] [--steps 300] [--rounds 3]

Both hosts run here, each with one server and one worker of half the cores, which share them; `single` has all of them. Every
training goes through the launcher, on blocks, input included, as jobs do. The sides alternate within one run; a figure is the
median of the rounds.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from jobs import Job, write_dataset

PORT_BASE = 9600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024, help="of a worker")
    parser.add_argument("--ids", type=int, default=117_581)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--steps", type=int, default=300, help="of a worker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["single", "parameter servers"], help="one side alone")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))

    def settings(strategy: str, threads: int) -> dict[str, Any]:
        found = {"strategy": strategy, "batch_size": arguments.batch, "steps": arguments.steps, "optimizer": arguments.optimizer}
        return {**found, "probe": "both", **dict.fromkeys(("intra_op_threads", "inter_op_threads", "omp_threads"), threads)}

    sides = {"single": (settings("single", cores), 1), "parameter servers": (settings("parameter_server", max(cores // 2, 1)), 2)}
    sides = {side: one for side, one in sides.items() if arguments.only in (None, side)}
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        dataset = write_dataset(root / "data", arguments.ids)
        for number in range(arguments.rounds):
            for side, (hyperparameters, hosts) in sides.items():
                job = Job(root / f"{side.replace(' ', '-')}-{number}", dataset, PORT_BASE, hyperparameters, hosts)
                found[side].append(job.training())
    print("| side | examples/s | of each round | ratio to single | median step, ms | communicating | waiting for input |")
    print("|" + "---|" * 7)
    rates = {side: statistics.median(one["examples_per_s"] for one in rounds) for side, rounds in found.items()}
    for side, rounds in found.items():
        cells = [side, f"{rates[side]:,.0f}", ", ".join(f"{one['examples_per_s']:,.0f}" for one in rounds)]
        cells.append(f"{rates[side] / rates['single']:.2f}" if "single" in rates else "")
        cells.append(f"{1000 * statistics.median(one['step_time_s']['p50'] for one in rounds):.1f}")
        for share in ("communication_share", "input_wait_share"):
            cells.append(f"{100 * statistics.median(one[share] or 0 for one in rounds):.0f} %")
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
