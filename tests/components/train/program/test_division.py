"""Equal steps for every worker, every row once an epoch or counted: the sharding table, and uneven, empty and too few shards."""

import re

import pytest

from components.errors import InvalidConfig, InvalidRecords
from components.train.program.config import TrainConfig
from components.train.program.division import Division, Share, check_cover, divide

FILES = [f"train/part-{index:05d}.tfrecord" for index in range(4)]
# 13 rows in all, the last shard empty.
ROWS = (7, 5, 1, 0)


def share(shards: tuple[int, ...] | None, readers: int, index: int, place: str = "algo-1, channel train") -> Share:
    rows = sum(ROWS[shard] for shard in shards or ())
    return Share(place=place, shards=shards, rows=rows, readers=readers, index=index)


def division(workers: int, batch_size: int = 2, **settings: int) -> Division:
    shares = [share((0, 1, 2, 3), workers, worker) for worker in range(workers)]
    check_cover(shares, FILES)
    return divide(shares, TrainConfig(batch_size=batch_size, **settings), 0, 13)


@pytest.mark.parametrize(
    ("workers", "steps_per_epoch", "used", "left_out", "repeated"),
    [(1, 6, 12, 1, 0), (2, 3, 12, 1, 0), (3, 2, 12, 1, 0), (4, 1, 8, 5, 0), (8, 1, 13, 0, 3), (13, 1, 13, 0, 13)],
)
def test_thirteen_rows_in_batches_of_two(workers: int, steps_per_epoch: int, used: int, left_out: int, repeated: int) -> None:
    found = division(workers, epochs=2)
    assert (found.steps_per_epoch, found.steps, found.epochs) == (steps_per_epoch, 2 * steps_per_epoch, 2)
    assert (found.used, found.left_out, found.repeated) == (used, left_out, repeated)


def test_more_workers_than_rows_are_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidConfig, match="16 workers, and the train split has 13 rows; every worker needs one"):
        division(16)


def test_steps_that_are_set_decide() -> None:
    found = division(2, steps=7)
    assert (found.steps, found.steps_per_epoch, found.epochs) == (7, 3, 3)


def test_the_place_with_fewest_rows_decides_for_all() -> None:
    """Two hosts of two workers; S3 gave one host 7 rows and the other 6."""
    here, there = (0,), (1, 2, 3)
    shares = [share(here, 2, 0), share(here, 2, 1), share(there, 2, 0, "algo-2"), share(there, 2, 1, "algo-2")]
    check_cover(shares, FILES)
    found = divide(shares, TrainConfig(batch_size=1), 3, 13)
    # Three batches of 1 for each of two workers on either host.
    assert (found.steps_per_epoch, found.used, found.left_out, found.repeated) == (3, 12, 1, 0)
    assert found.share == shares[3]


def test_one_place_may_be_filled_up_while_another_has_enough() -> None:
    shares = [share((0, 1), 1, 0), share((2, 3), 1, 0, "algo-2")]
    found = divide(shares, TrainConfig(batch_size=4), 0, 13)
    # 4 of 12 rows here; there the only row four times.
    assert (found.steps_per_epoch, found.used, found.left_out, found.repeated) == (1, 5, 8, 3)


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        (
            [share((0, 1), 1, 0), share((3,), 1, 0, "algo-2")],
            "part-00002.tfrecord: the manifest lists it, and it is in none of algo-1",
        ),
        (
            [share((0, 1, 2, 3), 1, 0), share((0, 1, 2, 3), 1, 0, "algo-2")],
            "part-00000.tfrecord: read 2 times, in algo-1, channel train, algo-2, where 1 readers divide its rows",
        ),
        ([share((0, 1), 1, 0), share((1, 2, 3), 1, 0, "algo-2")], "part-00001.tfrecord: read 2 times"),
        ([share((0, 1, 2, 3), 2, 0), share((0, 1, 2), 2, 1, "algo-2")], "part-00003.tfrecord: read 1 times, in algo-1"),
    ],
    ids=["on-no-host", "whole-on-both", "overlap", "hosts-of-a-channel-differ"],
)
def test_a_shard_that_is_not_read_exactly_once_is_named(shares: list[Share], reason: str) -> None:
    with pytest.raises(InvalidRecords, match=re.escape(reason)):
        check_cover(shares, FILES)


def test_a_place_with_fewer_rows_than_readers_is_named() -> None:
    shares = [share((0, 1), 2, 0), share((0, 1), 2, 1), share((2, 3), 2, 0, "algo-2"), share((2, 3), 2, 1, "algo-2")]
    with pytest.raises(InvalidConfig, match="algo-2: 1 rows for 2 workers"):
        divide(shares, TrainConfig(batch_size=1), 0, 13)
