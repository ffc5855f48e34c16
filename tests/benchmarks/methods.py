"""Every distribution method on this machine: examples/s, and how far its losses are from those of `single`, same global batch.

    python tests/benchmarks/methods.py [--ids 117581] [--batch 1024] [--steps 100] [--rounds 1]

Every training goes through the launchers, on blocks, input included, as jobs do; hosts are addresses of this machine and share
its cores. Threads are what a job gets when it sets none. The difference is the largest of all steps, relative; parameter servers
are asynchronous with two workers, so only the mean of their last losses can be compared there.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from jobs import Job, write_dataset

HOROVOD = {"strategy": "horovod"}
TWO = {**HOROVOD, "workers_per_host": 2}
SERVERS = {"strategy": "parameter_server"}
# Name, hosts, workers, settings.
METHODS: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
    ("single", 1, 1, {"strategy": "single"}),
    ("tower, 2 towers", 1, 1, {"strategy": "tower"}),
    ("mirrored, reduction_to_one", 1, 1, {"strategy": "mirrored"}),
    ("mirrored, hierarchical_copy", 1, 1, {"strategy": "mirrored", "cross_device": "hierarchical_copy"}),
    ("horovod, 2 workers, shared", 1, 2, {**TWO, "embedding_placement": "shared"}),
    ("horovod, 2 workers, replicated_sparse", 1, 2, {**TWO, "embedding_placement": "replicated_sparse"}),
    ("horovod, 2 workers, replicated_dense", 1, 2, {**TWO, "embedding_placement": "replicated_dense"}),
    ("horovod, 2 workers, sharded", 1, 2, {**TWO, "embedding_placement": "sharded"}),
    ("horovod, replicated_sparse", 2, 2, {**HOROVOD, "embedding_placement": "replicated_sparse"}),
    ("horovod, replicated_dense", 2, 2, {**HOROVOD, "embedding_placement": "replicated_dense"}),
    ("horovod, sharded", 2, 2, {**HOROVOD, "embedding_placement": "sharded"}),
    ("parameter_server", 1, 1, SERVERS),
    ("parameter_server, synchronous", 2, 2, {**SERVERS, "ps_synchronous": True}),
    ("parameter_server, asynchronous", 2, 0, SERVERS),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=117_581)
    parser.add_argument("--batch", type=int, default=1024, help="global")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    common = {"steps": arguments.steps, "probe": "both"}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name, *_ in METHODS}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        dataset = write_dataset(root / "data", arguments.ids)
        for number in range(arguments.rounds):
            for index, (name, hosts, workers, settings) in enumerate(METHODS):
                # Asynchronous workers have a whole batch each: every update is one worker's.
                share = arguments.batch // workers if workers else arguments.batch
                settings = {**common, **settings, "batch_size": share}
                if hosts > 1:
                    # Hosts of this machine share its two cores.
                    settings |= {"intra_op_threads": 1, "inter_op_threads": 1, "omp_threads": 1}
                found[name].append(Job(root / f"{number}-{index}", dataset, 9900, settings, hosts).training())
    expected = np.array([loss for _, loss in found["single"][0]["losses"]])
    print("| method | hosts | examples/s | largest difference of a loss from `single`'s | start-up, s |")
    print("|" + "---|" * 5)
    for name, hosts, workers, _ in METHODS:
        losses = np.array([loss for _, loss in found[name][0]["losses"]])
        if workers:
            difference = f"{np.max(np.abs(losses / expected - 1)):.0e}"
        else:
            difference = f"mean of the last 20: {np.mean(losses[-20:]):.4f}, `single` {np.mean(expected[-20:]):.4f}"
        rate = statistics.median(one["examples_per_s"] for one in found[name])
        start = statistics.median(one["startup_s"] for one in found[name])
        print(f"| {name} | {hosts} | {rate:,.0f} | {difference} | {start:.1f} |", flush=True)


if __name__ == "__main__":
    main()
