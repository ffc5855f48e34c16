"""Keys of rows: SplitMix64's published outputs, uniform shuffles, shares that are kept."""

import numpy as np
import pytest

from components.preprocess.keys import below, mix, row_keys

ROWS = np.arange(1, 100_001)


def test_mixing_gives_the_published_outputs_of_splitmix64() -> None:
    """The first outputs from seed 1234567, as in the test vectors of Rosetta Code and of the xoshiro authors' splitmix64.c."""
    states = np.array([1234567 + k * 0x9E3779B97F4A7C15 & 2**64 - 1 for k in range(1, 6)], np.uint64)
    assert mix(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_keys_differ_by_row_file_and_seed_and_not_by_how_rows_are_divided() -> None:
    keys = row_keys(7, 2, ROWS)
    assert keys.dtype == np.uint64
    assert len(np.unique(keys)) == len(ROWS)
    parts = [row_keys(7, 2, part) for part in np.array_split(ROWS, 9)]
    np.testing.assert_array_equal(keys, np.concatenate(parts))
    for other in (row_keys(8, 2, ROWS), row_keys(7, 3, ROWS), row_keys(2, 7, ROWS)):
        assert not np.isin(keys, other).any()


def test_the_order_of_keys_is_a_uniform_shuffle() -> None:
    """Each of ten rows is in each place about 1000 times of 10,000: chi-squared with 81 degrees of freedom, 99.9 % below 126."""
    places = np.array([np.argsort(row_keys(seed, 0, np.arange(10))) for seed in range(10_000)])
    counts = np.array([np.bincount(places[:, place], minlength=10) for place in range(10)])
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 126


@pytest.mark.parametrize("fraction", [0.001, 0.1, 0.5, 0.9])
def test_a_fraction_of_the_rows_is_held_out(fraction: float) -> None:
    found = below(row_keys(1, 0, ROWS), fraction).mean()
    assert abs(found - fraction) < 4 * np.sqrt(fraction * (1 - fraction) / len(ROWS))


def test_keys_are_uniform_and_distinct_and_differ_by_seed_and_file() -> None:
    numbers = np.arange(100_000)
    keys = [row_keys(seed, file, numbers) for seed in (0, 1) for file in (0, 1)]
    assert len(np.unique(np.concatenate(keys))) == 400_000
    for each in keys:
        counts = np.bincount((each >> np.uint64(60)).astype(np.int64), minlength=16)
        # 16 cells of 6,250: chi-square of 15 degrees of freedom is above 44.3 once in 10,000.
        assert ((counts - 6250) ** 2 / 6250).sum() < 44.3
        assert abs(below(each, 0.3).mean() - 0.3) < 0.006
