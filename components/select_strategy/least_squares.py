"""Non-negative least squares.

SciPy has the same, but Keras reads SciPy wherever it is installed: 0.35 of the 3.2 s of CPU time in which every training process
imports TensorFlow, and 13 MB. A few columns do not make up for that.
"""

import numpy as np
from numpy.typing import NDArray


def nonnegative_least_squares(rows: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The x >= 0 for which |rows x - target| is smallest. The columns must be independent.

    Source: Lawson and Hanson 1974, Solving Least Squares Problems, algorithm NNLS.
    """
    columns = rows.shape[1]
    found, free = np.zeros(columns), np.zeros(columns, dtype=bool)
    tolerance = 1e-10 * float(np.abs(rows.T @ target).max(initial=0.0))
    while True:
        gain = rows.T @ (target - rows @ found)
        if free.all() or gain[~free].max() <= tolerance:
            return found
        free[np.argmax(np.where(free, -np.inf, gain))] = True
        while True:
            wanted = np.zeros(columns)
            wanted[free] = np.linalg.lstsq(rows[:, free], target, rcond=None)[0]
            below = free & (wanted <= 0)
            if not below.any():
                break
            # As far towards it as nothing becomes negative; what reaches 0 is no longer free.
            found = found + np.min(found[below] / (found[below] - wanted[below])) * (wanted - found)
            free &= found > 1e-14 * found.max(initial=0.0)
            found[~free] = 0.0
        found = wanted
