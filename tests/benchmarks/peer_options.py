"""What the scripts of the peers are told, and the rows that they read: the same for PyTorch as for Keras, with numpy alone."""

import argparse
from typing import Any

import numpy as np


def peer_parser() -> argparse.ArgumentParser:
    """The arguments that every peer takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rows")
    parser.add_argument("out")
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=0, help="timed steps; 0 for one pass")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def lengths(arguments: argparse.Namespace, rows: int) -> tuple[int, int, int]:
    """Batches of a pass, steps of warm-up, timed steps."""
    batches = rows // arguments.batch
    warmup = min(arguments.warmup, batches - 1)
    return batches, warmup, arguments.steps or batches - warmup


def read_rows(path: str) -> tuple[int, list[Any], list[Any]]:
    """Size of the id table; ids, values and labels to train on; ids and values to score."""
    with np.load(path) as found:
        return (
            int(found["size"]),
            [found[name] for name in ("ids", "values", "labels")],
            [found[f"test_{name}"] for name in ("ids", "values")],
        )
