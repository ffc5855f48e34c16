"""When the warm-up of a series of steps is over, and how sure its rate is."""

import math
from itertools import accumulate

import numpy as np
import pytest
import scipy.stats

from components.train.program.throughput import FEWEST_BLOCKS, MOST_BLOCKS, T_95, throughput


def ends(seconds: list[float]) -> list[float]:
    return list(accumulate(seconds, initial=100.0))[1:]


def test_a_slow_beginning_is_left_out_of_the_rate() -> None:
    draw = np.random.default_rng(3)
    # One step that builds the graph, 12 that fill buffers, then 10 ms each, give or take 5 %.
    steady = [float(each) for each in draw.normal(0.010, 0.0005, 400)]
    found = throughput(100.0, ends([1.5, *[0.030] * 12, *steady]), 1024)
    assert 10 <= found.warmup_steps <= 20  # MSER looks at steps in fives
    assert found.steady
    assert found.rate == pytest.approx(1024 / 0.010, rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.rate < found.high
    assert found.half_width < 0.01


def test_a_series_that_gets_faster_until_its_end_is_not_steady() -> None:
    assert not throughput(100.0, ends([0.02 / (1 + number / 10) for number in range(100)]), 64).steady


def test_a_training_keeps_a_slow_first_epoch_in_its_rate() -> None:
    seconds = [0.02] * 50 + [0.01] * 50
    assert throughput(100.0, ends(seconds), 64).warmup_steps == 50
    assert throughput(100.0, ends(seconds), 64, most_warm_up=0.1).rate == pytest.approx(64 / 0.015, rel=0.05)


def test_the_interval_is_that_of_students_t_over_batch_means() -> None:
    draw = np.random.default_rng(4)
    seconds = [float(each) for each in draw.normal(0.010, 0.002, 200)]
    found = throughput(100.0, ends(seconds), 1.0)
    measured = np.array(seconds[found.warmup_steps :])
    size = len(measured) // MOST_BLOCKS
    means = measured[-size * MOST_BLOCKS :].reshape(MOST_BLOCKS, size).mean(axis=1)
    half = scipy.stats.t.ppf(0.975, MOST_BLOCKS - 1) * scipy.stats.sem(means)
    assert found.low == pytest.approx(1 / (measured.mean() + half), rel=1e-3)
    assert found.high == pytest.approx(1 / (measured.mean() - half), rel=1e-3)
    assert (found.block_steps, found.block_s) == (size, pytest.approx(means))


def test_an_interval_of_95_percent_holds_the_true_rate_about_that_often() -> None:
    draw = np.random.default_rng(5)
    held = 0
    for _ in range(300):
        # Steps that are like the one before, as they are where something else runs on the machine now and then.
        noise = np.zeros(300)
        for step in range(1, 300):
            noise[step] = 0.5 * noise[step - 1] + draw.normal(0, 0.001)
        found = throughput(0.0, list(np.cumsum(0.020 + noise)), 1.0)
        held += found.low is not None and found.high is not None and found.low <= 50.0 <= found.high
    assert 0.85 <= held / 300 <= 0.99


@pytest.mark.parametrize("steps", [1, 4, 2 * FEWEST_BLOCKS - 1])
def test_a_few_steps_have_a_rate_and_no_interval(steps: int) -> None:
    found = throughput(100.0, ends([0.5] * steps), 10)
    assert (found.rate, found.low, found.high, found.half_width, found.block_s) == (pytest.approx(20), None, None, math.inf, ())


def test_the_table_is_students_t() -> None:
    assert pytest.approx([scipy.stats.t.ppf(0.975, df) for df in range(1, MOST_BLOCKS)], abs=6e-4) == T_95
