"""Scores of clicks and of other rows, each in ascending order: all that AUC and its kin are made of.

Sorted runs on disk are merged by ranges of value, so that any number of scores is in exact order with a bounded part of them in
memory. What comes of it depends on the scores only: not on their order, nor on how many workers gave them.

Array suffixes: B rows, Q queries.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]
Counts = NDArray[np.int64]
# Scores that are in memory at once while they are sorted and merged, and while something is counted.
ROWS_AT_ONCE = 1 << 22
# The bits of float32 1.0; those of scores in 0..1 are in the order of the scores.
_BITS_OF_ONE = 0x3F800000


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Scores of the positive and the negative rows, ascending; memory-mapped where there are many."""

    positives: Scores
    negatives: Scores

    @property
    def rows(self) -> int:
        return len(self.positives) + len(self.negatives)

    def below(self, scores_Q: Scores) -> Counts:
        """How many rows of both classes score less than each, int64 [Q]."""
        found: Counts = np.searchsorted(self.positives, scores_Q) + np.searchsorted(self.negatives, scores_Q)
        return found

    def at_rank(self, ranks_Q: Counts) -> Scores:
        """The scores of the rows with these ranks, 0 the lowest, float32 [Q]."""
        return largest_with(lambda scores_Q: self.below(scores_Q) <= ranks_Q, len(ranks_Q))


def ranked(labels_B: NDArray[np.floating[Any]], scores_B: NDArray[np.floating[Any]]) -> Ranking:
    """Rows that are in memory, their scores as float32."""
    return Ranking(
        positives=np.sort(scores_B[labels_B > 0.5].astype(np.float32)),
        negatives=np.sort(scores_B[labels_B <= 0.5].astype(np.float32)),
    )


def largest_with(holds: Callable[[Scores], NDArray[np.bool_]], queries: int) -> Scores:
    """The largest score in 0..1 for which each of a number of conditions holds, which all hold at 0 and cease only once.

    A score is found by its bits, one after the other: no list of all scores is ever needed.
    """
    found_Q = np.zeros(queries, np.uint32)
    for bit in range(29, -1, -1):
        tried_Q = np.minimum(found_Q | np.uint32(1 << bit), np.uint32(_BITS_OF_ONE))
        found_Q = np.where(holds(tried_Q.view(np.float32)), np.maximum(tried_Q, found_Q), found_Q)
    return found_Q.view(np.float32)


def sorted_scores(parts: Iterable[Scores], target: Path, rows_at_once: int = ROWS_AT_ONCE) -> Scores:
    """All scores of all parts in ascending order, memory-mapped from the file `target`.

    Args:
        rows_at_once: how many may be in memory together, besides one part.
    """
    ends = [0]
    runs = target.with_name(f"{target.name}.runs")
    with runs.open("wb") as file:
        for run in _in_runs(parts, rows_at_once):
            # Not by `tofile`, whose error does not say that a disk is full.
            file.write(np.sort(run).data)
            ends.append(ends[-1] + len(run))
    if len(ends) <= 2:
        runs.replace(target)
    else:
        whole = mapped(runs, np.float32)
        # Not emptied: an earlier file of this name may be mapped still.
        target.unlink(missing_ok=True)
        with target.open("wb") as file:
            for piece in _merged([whole[start:stop] for start, stop in pairwise(ends)], rows_at_once):
                file.write(piece.data)
        runs.unlink()
    return mapped(target, np.float32)


def mapped(path: Path, kind: type[np.generic]) -> NDArray[Any]:
    """The numbers of a file, which may be empty."""
    return np.memmap(path, kind, "r") if path.stat().st_size else np.empty(0, kind)


def _in_runs(parts: Iterable[Scores], rows: int) -> Iterator[Scores]:
    waiting: list[Scores] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= rows:
            whole = np.concatenate(waiting)
            for start in range(0, len(whole) - len(whole) % rows, rows):
                yield whole[start : start + rows]
            waiting = [whole[len(whole) - len(whole) % rows :]]
    if sum(map(len, waiting)):
        yield np.concatenate(waiting)


def _merged(runs: Sequence[Scores], rows: int) -> Iterator[Scores]:
    """Sorted runs as one, piece by piece.

    Between two neighbours among every `step`-th score of all runs, no run has more than `step` others, so that a piece has at most
    `rows`; scores that are equal to one of those need no sorting, however many they are.
    """
    step = max(rows // len(runs), 1)
    marks = np.unique(np.concatenate([run[::step] for run in runs]))
    before = [0] * len(runs)
    for mark in marks:
        first = [int(np.searchsorted(run, mark, "left")) for run in runs]
        yield np.sort(np.concatenate([run[start:stop] for run, start, stop in zip(runs, before, first, strict=True)]))
        before = [int(np.searchsorted(run, mark, "right")) for run in runs]
        equal = sum(before) - sum(first)
        for start in range(0, equal, rows):
            yield np.full(min(rows, equal - start), mark, np.float32)
    yield np.sort(np.concatenate([run[start:] for run, start in zip(runs, before, strict=True)]))
