"""The fit against SciPy, and against steps whose parts are known."""

import numpy as np
import pytest
from scipy.optimize import nnls

from components.select_strategy.least_squares import nonnegative_least_squares


@pytest.mark.parametrize("seed", range(20))
def test_least_squares_are_those_of_scipy(seed: int) -> None:
    chance = np.random.default_rng(seed)
    # Columns as far apart as seconds of a step and operations of an example.
    rows = chance.normal(size=(14, 8)) * 10.0 ** chance.uniform(-2, 2, size=8)
    target = chance.normal(size=14)
    expected, error = nnls(rows, target)
    found = nonnegative_least_squares(rows, target)
    assert (found >= 0).all()
    assert float(np.linalg.norm(rows @ found - target)) == pytest.approx(error)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_what_only_negative_numbers_would_explain_is_zero() -> None:
    assert nonnegative_least_squares(np.eye(3), np.array([1.0, -2.0, 3.0])).tolist() == [1.0, 0.0, 3.0]
