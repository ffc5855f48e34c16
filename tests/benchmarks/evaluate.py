"""Rows/s of evaluate against examples/s of training, on the same data in one run; and 50 million scores in a bounded memory.

    python tests/benchmarks/evaluate.py [--rows 400000] [--rounds 2] [--merge-rows 50000000]

The built-in sample, half of it held out. In turn: a training by one process with its defaults, and the evaluation of the whole
validation split, alone, and with a champion (two models on every row, and the comparison). Training's rate is that of its steps;
that of evaluate has everything in it but the import of TensorFlow: loading the models, all figures, and the page.
"""

import argparse
import json
import logging
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from components.champion import Champion, champion_model, write_champion
from components.evaluate.metrics import exact_auc
from components.evaluate.ranking import Ranking, Scores, sorted_scores
from components.evaluate.step import EvaluateConfig, evaluate

PART = 1 << 20
# No multiple of it is a number of rows that anybody would ask for, so that it steps through all of them.
STRIDE = 1_000_003


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def scores_of(odd: int, rows: int) -> Iterator[Scores]:
    """Every other one of `rows` neighbouring float32 numbers, in no order that a sort could use."""
    for start in range(0, rows, PART):
        numbers = (np.arange(start, min(start + PART, rows), dtype=np.int64) * STRIDE) % rows
        yield (numbers[numbers % 2 == odd] * (0x3F800000 // rows)).astype(np.uint32).view(np.float32)


def merge(rows: int, folder: Path) -> str:
    """Clicks and others take turns, so click k of n lies above k others: the AUC is (n + 1) / 2n, to the last bit."""
    began = time.perf_counter()
    clicks, others = (sorted_scores(scores_of(odd, rows), folder / f"{odd}") for odd in (1, 0))
    found, expected = exact_auc(Ranking(positives=clicks, negatives=others)), (rows // 2 + 1) / rows
    if found != expected:
        raise SystemExit(f"AUC {found!r} of {rows:,} scores, it is {expected!r}")
    return f"{rows:,} scores: {time.perf_counter() - began:.1f} s, AUC exact, peak RSS {peak_mib():,.0f} MiB"


def ctrflow(*arguments: Any) -> None:
    command = [sys.executable, "-m", "pipelines.cli", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def put_in_force(model: Path, store: Path) -> None:
    """The model as its own champion: evaluate does the same work as with any other."""
    champion = Champion(
        name="deepfm",
        version=1,
        model_digest="",
        data_digest="",
        auc=0.5,
        log_loss=0.5,
        promoted_at="2026-01-01T00:00:00+00:00",
        run_id="",
    )
    place = champion_model(store, champion)
    place.parent.mkdir(parents=True)
    place.symlink_to(model)
    write_champion(store, champion)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--merge-rows", type=int, default=50_000_000)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        print(merge(given.merge_rows, folder), flush=True)
        ctrflow("sample", folder / "clicks.tsv", "--rows", given.rows)
        ctrflow("preprocess", folder / "clicks.tsv", folder / "dataset", "--format", "criteo", "--validation-fraction", 0.5)
        import tensorflow  # noqa: F401  # its import is in neither rate

        print("| training, examples/s | evaluate, rows/s | ratio | evaluate with a champion, rows/s | ratio | peak RSS, MiB |")
        print("|" + "---|" * 6, flush=True)
        for _ in range(given.rounds):
            ctrflow("train", folder / "dataset", folder / "trained")
            trained = json.loads((folder / "trained" / "training.json").read_text())["examples_per_s"]
            cells = [f"{trained:,.0f}"]
            store = folder / "models"
            if not store.exists():
                put_in_force(folder / "trained" / "model", store)
            for against in (None, store):
                began = time.perf_counter()
                paths = (folder / "trained" / "model", folder / "dataset", folder / "evaluation.json", folder / "report.html")
                found = evaluate(EvaluateConfig(), *paths, against)
                rate = found.rows / (time.perf_counter() - began)
                cells += [f"{rate:,.0f}", f"{rate / trained:.2f}"]
            print("| " + " | ".join([*cells, f"{peak_mib():,.0f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
