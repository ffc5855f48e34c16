"""The placement of the embedding table is chosen by bytes, waits and memory."""

import numpy as np
import pytest

from components.train.program.placement import Load, bytes_a_step, choose
from components.train.program.table import Table

GB = 10**9


def table(rows: int) -> Table:
    """Rows of 33 parameters with two moments each."""
    return Table(
        rows=rows,
        parameters=33,
        stored=99,
        initial=lambda start, stop: np.zeros((stop - start, 99), np.float32),
        update=lambda variable, ids, gradient: None,
    )


def test_bytes_a_rank_sends_in_a_step() -> None:
    load = Load(ranks=4, local_ranks=1, distinct_ids=1000, memory_bytes=64 * GB)
    assert bytes_a_step(table(50_000), load) == {
        "replicated_sparse": 3 * 1000 * 34 * 4,
        "replicated_dense": 2 * 3 / 4 * 50_000 * 34 * 4,
        "sharded": 3 / 4 * 1000 * (1 + 33 + 33) * 4,
    }


@pytest.mark.parametrize(
    ("rows", "load", "expected"),
    [
        # On one host nothing is cheaper than one table for all.
        (117_581, Load(ranks=2, local_ranks=2, distinct_ids=7_000, memory_bytes=64 * GB), "shared"),
        (500, Load(ranks=8, local_ranks=8, distinct_ids=450, memory_bytes=64 * GB), "shared"),
        # Two ranks send the same sparse and sharded, and sharded waits more often.
        (117_581, Load(ranks=2, local_ranks=1, distinct_ids=7_000, memory_bytes=64 * GB), "replicated_sparse"),
        # Every other rank gets a copy of what a rank sends; sharded sends it once.
        (117_581, Load(ranks=8, local_ranks=1, distinct_ids=7_000, memory_bytes=64 * GB), "sharded"),
        # Few rows, nearly all of them in every batch.
        (500, Load(ranks=8, local_ranks=1, distinct_ids=450, memory_bytes=64 * GB), "replicated_dense"),
        # 10 million rows are 4 GB a rank.
        (10_000_000, Load(ranks=4, local_ranks=2, distinct_ids=7_000, memory_bytes=16 * GB), "sharded"),
        (10_000_000, Load(ranks=2, local_ranks=1, distinct_ids=7_000, memory_bytes=16 * GB), "replicated_sparse"),
    ],
)
def test_the_cheapest_that_fits_is_chosen(rows: int, load: Load, expected: str) -> None:
    assert choose(table(rows), load)[0] == expected
