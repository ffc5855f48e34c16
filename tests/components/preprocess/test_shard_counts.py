"""How many shards the rows become: figures of the table in shard_counts.py, and what follows from them."""

import pytest

from components.preprocess.shard_counts import shard_count


@pytest.mark.parametrize(
    ("train_rows", "shards"),
    [
        (2, 4),
        (393_215, 4),
        (393_216, 12),
        (786_431, 12),
        (786_432, 24),
        (1_572_864, 48),
        (50_331_648, 48),
        (50_331_649, 96),
        (1_000_000_000, 960),
    ],
)
def test_shards_are_neither_small_nor_large(train_rows: int, shards: int) -> None:
    assert shard_count(train_rows) == shards


@pytest.mark.parametrize(
    ("train_rows", "evenly"),
    [
        (10_000, [1, 2, 4]),
        (500_000, [1, 2, 3, 4, 6, 12]),
        (1_000_000, [1, 2, 3, 4, 6, 8, 12, 24]),
        (10_000_000, [1, 2, 3, 4, 6, 8, 12, 16, 24, 48]),
    ],
)
def test_workers_that_nobody_knows_yet_share_them_evenly(train_rows: int, evenly: list[int]) -> None:
    assert [workers for workers in range(1, 49) if shard_count(train_rows) % workers == 0] == evenly


@pytest.mark.parametrize(
    ("train_rows", "workers", "shards"),
    [(100, 3, 12), (100, 8, 8), (100, 10, 20), (1_000_000, 5, 20), (2_000_000, 5, 60), (2_000_000, 16, 48), (10_000_000, 7, 168)],
)
def test_every_known_worker_has_as_many_as_the_others_and_at_least_one(train_rows: int, workers: int, shards: int) -> None:
    assert shard_count(train_rows, workers) == shards
    assert shards % workers == 0
