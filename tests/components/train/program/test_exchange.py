"""Ranks of one host exchange through shared memory what numpy says they should, over and over, in graphs of one thread."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from components.train.program.shared_memory import SHARED_MEMORY, make_memory

ROUNDS = 40
RANKS = 3


def given(rank: int, turn: int) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
    """What a rank has to say in a round: tensors to average, tensors to gather, rows for the ranks and how many for each."""
    alike, own = np.random.default_rng(turn), np.random.default_rng((rank, turn))
    shapes = [tuple(alike.integers(1, 40, 2)), (1,), ()]
    averaged = [own.standard_normal(shape).astype(np.float32) for shape in shapes]
    # Some rounds a rank has nothing.
    rows = int(own.integers(0, 50)) * (turn % 5 != rank)
    gathered = [own.integers(0, 1000, rows).astype(np.int32), own.standard_normal((rows, 7)).astype(np.float32)]
    splits = own.integers(0, 20, RANKS).astype(np.int32)
    return averaged, gathered, own.standard_normal((int(splits.sum()), 3)).astype(np.float32), splits


def part(rows: np.ndarray, splits: np.ndarray, rank: int) -> np.ndarray:
    start = int(splits[:rank].sum())
    return rows[start : start + int(splits[rank])]


def be_rank(rank: int) -> None:
    """One process of the test."""
    import tensorflow as tf

    from components.train.program.exchange import SharedMemoryExchange
    from components.train.program.shared_memory import inherited_memory

    tf.config.threading.set_inter_op_parallelism_threads(1)
    exchange = SharedMemoryExchange(inherited_memory() or 0, rank, RANKS)

    @tf.function(reduce_retracing=True)
    def step(averaged, gathered, rows, splits):  # type: ignore[no-untyped-def]
        return exchange.mean(averaged, "mean"), exchange.gather(gathered, "gather"), exchange.alltoall(rows, splits, "alltoall")

    for turn in range(ROUNDS):
        everyone = [given(each, turn) for each in range(RANKS)]
        means, gathered, (rows, counts) = step(*everyone[rank])
        for index, mean in enumerate(means):
            np.testing.assert_allclose(
                mean, np.mean([each[0][index] for each in everyone], axis=0, dtype=np.float64), rtol=1e-5, atol=1e-6
            )
        for index, found in enumerate(gathered):
            np.testing.assert_array_equal(found, np.concatenate([each[1][index] for each in everyone]))
        np.testing.assert_array_equal(rows, np.concatenate([part(each[2], each[3], rank) for each in everyone]))
        np.testing.assert_array_equal(counts, [each[3][rank] for each in everyone])
        # The same bits on all ranks.
        bits = b"".join(mean.numpy().tobytes() for mean in means)
        alike = exchange.gather([tf.constant(np.frombuffer(bits, np.int32)[np.newaxis])], "bits")[0].numpy()
        assert (alike == alike[0]).all()


def test_three_ranks_exchange_what_numpy_says() -> None:
    memory = make_memory(RANKS)
    try:
        command = [sys.executable, str(Path(__file__))]
        own = {**os.environ, SHARED_MEMORY: str(memory)}
        ranks = [
            subprocess.Popen([*command, str(rank)], env=own, pass_fds=(memory,), stderr=subprocess.PIPE) for rank in range(RANKS)
        ]
        try:
            told = [rank.communicate(timeout=120)[1].decode() for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    finally:
        os.close(memory)
    assert [rank.returncode for rank in ranks] == [0] * RANKS, "\n".join(told)[-3000:]


def test_shared_memory_takes_no_memory_until_it_is_written() -> None:
    memory = make_memory(64)
    try:
        assert os.fstat(memory).st_size > 2**42
        assert os.fstat(memory).st_blocks == 0
    finally:
        os.close(memory)


@pytest.mark.parametrize("splits", [[1, 1], [1, -1, 3], [1, 1, 2]], ids=["too-few", "negative", "other-sum"])
def test_splits_that_do_not_fit_the_rows_are_refused(splits: list[int]) -> None:
    import tensorflow as tf

    from components.train.program.exchange import SharedMemoryExchange

    memory = make_memory(3)
    try:
        with pytest.raises(tf.errors.InvalidArgumentError, match="split"):
            SharedMemoryExchange(memory, 0, 3).alltoall(tf.zeros([3, 2]), tf.constant(splits), "rows")
    finally:
        os.close(memory)


if __name__ == "__main__":
    be_rank(int(sys.argv[1]))
