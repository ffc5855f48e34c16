"""Examples/s and AUC of `single` against hand-written PyTorch and Keras 3, on the same rows, the sides alternating in one run.

    python tests/benchmarks/peers.py [--ids 117581 1000000] [--batch 1024 4096] [--torch-python .venv-torch/bin/python]
    python tests/benchmarks/peers.py --quality --ids 117581

`single` goes through the launcher as jobs do, from `blocks`, its input included; the peers take slices of arrays in memory. A rate
is the median of the rounds, after a warm-up. --quality trains one whole pass with each of three seeds and compares mean AUC.
PyTorch is no dependency of ctrflow: its sides run in whatever environment --torch-python names (pip install torch numpy), and are
left out without one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jobs import Job
from planted import Planted, write_dataset

from components.evaluate.metrics import exact_auc
from components.records import Batch

HERE = Path(__file__).parent
THREADS = 2
RATES = {"adam": 5e-4, "adagrad": 0.01}
Side = Callable[[Path, int], dict[str, Any]]


def single(work: Path, seed: int, *, dataset: Path, settings: dict[str, Any], test: Batch, labels: Any) -> dict[str, Any]:
    """Train through the launcher; with --quality the model scores the test rows."""
    training = Job(work, dataset, 9800, {**settings, "seed": seed}).training()
    found = {"examples_per_s": training["examples_per_s"], "input_wait_share": training["input_wait_share"]}
    if settings["probe"] == "none":
        from components.model_files import load_scorer

        score = load_scorer(work / "algo-1" / "model")
        parts = [slice(start, start + 4096) for start in range(0, len(test), 4096)]
        found["auc"] = exact_auc(labels, np.concatenate([score(test.ids[part], test.values[part]) for part in parts]))
    return found


def peer(work: Path, seed: int, *, python: str, script: str, options: list[str], rows: Path, labels: Any) -> dict[str, Any]:
    """Run a peer's script."""
    out = work.with_suffix(".json")
    command = [python, str(HERE / script), str(rows), str(out), "--seed", str(seed), "--threads", str(THREADS), *options]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(THREADS)})
    if ran.returncode != 0:
        sys.exit(f"{script}: {ran.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(out.read_text())
    return {"examples_per_s": found["examples_per_s"], "auc": exact_auc(labels, np.array(found["scores"], np.float64))}


def sides_of(arguments: Any, root: Path, ids: int, batch: int, optimizer: str, test: Batch) -> dict[str, Side]:
    """The sides of one comparison by name; `single` first."""
    steps = 0 if arguments.quality else arguments.steps
    rate = RATES[optimizer]
    settings = {
        "batch_size": batch, "optimizer": optimizer, "learning_rate": rate, "steps": steps,
        "probe": "none" if arguments.quality else "both",
        "intra_op_threads": THREADS, "inter_op_threads": THREADS, "omp_threads": THREADS,
    }  # fmt: skip
    labels = np.asarray(test.labels, np.float64)
    common = ["--batch", str(batch), "--optimizer", optimizer, "--rate", str(rate)]
    options = [*common, "--steps", str(steps)]
    rows = root / "rows.npz"
    sides: dict[str, Side] = {"single": partial(single, dataset=root / "data", settings=settings, test=test, labels=labels)}
    if arguments.torch_python:
        torch = partial(peer, python=arguments.torch_python, script="peer_torch.py", rows=rows, labels=labels)
        sides["PyTorch, one table, lazy"] = partial(torch, options=[*options, "--variant", "one_table"])
        if ids < 500_000:
            # At a million ids it is far behind: a dense optimizer touches every row.
            sides["PyTorch, dense, compiled"] = partial(torch, options=[*options, "--variant", "dense"])
    # A dense Adam over a million rows takes a third of a second a step.
    slow = [*common, "--steps", str(min(steps, 40) if steps else 0)]
    keras = partial(peer, python=sys.executable, script="peer_keras.py", rows=rows, labels=labels)
    sides["Keras 3 model.fit"] = partial(keras, options=slow)
    if arguments.quality and optimizer == "adam":
        sides["Keras 3 model.fit, gradients summed"] = partial(keras, options=[*slow, "--summed"])
    return sides


def compare(arguments: Any, root: Path, ids: int, batch: int, optimizer: str, test: Batch) -> None:
    """Print one table."""
    sides = sides_of(arguments, root, ids, batch, optimizer, test)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for number in range(arguments.rounds):
        for name, run in sides.items():
            work = root / f"{ids}-{batch}-{optimizer}-{number}-{list(sides).index(name)}"
            found[name].append(run(work, number + 1))
    print(f"\n{ids:,} ids, batch {batch}, {optimizer}\n")
    print("| side | examples/s | of each round | single is so many times as fast |" + (" mean AUC |" if arguments.quality else ""))
    print("|" + "---|" * (5 if arguments.quality else 4))
    ours = statistics.median(one["examples_per_s"] for one in found["single"])
    for name, each in found.items():
        rates = [one["examples_per_s"] for one in each]
        cells = [name, f"{statistics.median(rates):,.0f}", ", ".join(f"{rate:,.0f}" for rate in rates)]
        cells.append(f"{ours / statistics.median(rates):.2f}")
        if arguments.quality:
            cells.append(f"{statistics.mean(one['auc'] for one in each):.4f}")
        print("| " + " | ".join(cells) + " |", flush=True)
    wait = statistics.median(one["input_wait_share"] for one in found["single"])
    print(f"\nsingle waits for input {100 * wait:.1f} % of a step", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, nargs="+", default=[117_581, 1_000_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[1024])
    parser.add_argument("--optimizer", nargs="+", choices=list(RATES), default=["adam"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--quality", action="store_true", help="one pass by each side and seed, and the AUC on 100,000 other rows")
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON", ""))
    arguments = parser.parse_args()
    for ids in arguments.ids:
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(temporary)
            world = Planted(ids)
            train, test = world.rows(arguments.rows, seed=1), world.rows(100_000, seed=2)
            write_dataset(root / "data", train, test, ids)
            np.savez(
                root / "rows.npz", size=ids, ids=train.ids.astype(np.int32), values=train.values, labels=train.labels,
                test_ids=test.ids.astype(np.int32), test_values=test.values,
            )  # fmt: skip
            del train
            for batch in arguments.batch:
                for optimizer in arguments.optimizer:
                    compare(arguments, root, ids, batch, optimizer, test)


if __name__ == "__main__":
    main()
