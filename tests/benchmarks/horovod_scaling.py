"""Examples/s of two Horovod workers of one thread against twice one process of one thread, at equal batch a worker.

    python tests/benchmarks/horovod_scaling.py [--placements replicated_sparse sharded] [--batch 1024] [--ids 117581] [--rounds 3]

Every training goes through the launcher, on blocks, input included, as jobs do. The sides alternate within one run; a figure is the
median of the rounds. `two alone` are two single processes at the same time, which exchange nothing: what two workers could reach at
most on this machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from train_step import criteo_shaped

from components.manifest import Manifest, Split, Statistics, write_manifest
from components.records import Batch, Schema, write_shard

FIELDS, ROWS, PORT_BASE = 39, 65_536, 9400


def write_dataset(folder: Path, ids: int) -> Path:
    """A dataset of Criteo-shaped rows."""
    rows = [[np.asarray(part) for part in batch] for batch in criteo_shaped(ids, ROWS // 8)]
    (folder / "train").mkdir(parents=True)
    shards = []
    for index, (labels, cells, values) in enumerate(rows):
        part = Batch(labels=labels, ids=cells.astype(np.int64), values=values)
        shards.append(write_shard(folder / "train" / f"part-{index:05d}.tfrecord", part, "blocks"))
    split = Split(examples=ROWS, positives=sum(shard.positives for shard in shards), shards=tuple(shards))
    statistics_ = Statistics(
        smallest_id=0,
        largest_id=ids - 1,
        smallest_value=0.0,
        largest_value=1.0,
        missing=0,
        click_rate=0.25,
        distinct_ids_by_field=(ids,) * FIELDS,
        validation_rows_in_train=0,
    )
    schema = Schema(field_size=FIELDS, feature_size=ids)
    write_manifest(
        folder,
        Manifest(encoding="blocks", schema=schema, train=split, validation=split, statistics=statistics_, sources=(), versions={}),
    )
    return folder


class Job:
    """One training on one host, started at once."""

    def __init__(self, root: Path, dataset: Path, port_base: int, settings: dict[str, Any]) -> None:
        self._base = root
        for folder in ("input/config", "input/data/manifest"):
            (root / folder).mkdir(parents=True)
        resources = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}
        (root / "input/config/resourceconfig.json").write_text(json.dumps(resources))
        texts = {key: str(value) for key, value in settings.items()}
        (root / "input/config/hyperparameters.json").write_text(json.dumps(texts))
        (root / "input/data/train").symlink_to(dataset / "train")
        (root / "input/data/manifest/manifest.json").write_bytes((dataset / "manifest.json").read_bytes())
        own = {"SAGEMAKER_BASE_DIR": str(root), "CTRFLOW_PORT_BASE": str(port_base)}
        own["CTRFLOW_HOST_ADDRESSES"] = json.dumps({"algo-1": "127.0.0.1"})
        self._log = root.with_suffix(".log")
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "components.train.program.launch"]
            self._launcher = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)

    def training(self) -> dict[str, Any]:
        """What training.json says once the job is over."""
        if self._launcher.wait() != 0:
            sys.exit(self._log.read_text())
        found: dict[str, Any] = json.loads((self._base / "output/data/training.json").read_text())
        return found


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
