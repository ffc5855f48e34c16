"""Category codes in the place of values: fields of which nearly every value is a large whole number, and many different ones."""

import numpy as np
from numpy.typing import NDArray

# Rows of each chunk that are looked at.
WATCHED_ROWS = 1024
# Counts and prices in a sensible unit are smaller, or are scaled.
LARGE = 1000.0
# Different values that a field must have, and slots of the sketch that tells; 64 of 256 are taken by about 74 different ones.
MANY, SLOTS = 64, 256


class ValueCodes:
    """What is counted of each field: values other than 0, large whole ones of these, and a sketch of the different ones."""

    def __init__(self, field_size: int) -> None:
        self.filled_F = np.zeros(field_size, np.int64)
        self.large_F = np.zeros(field_size, np.int64)
        self.seen_FS = np.zeros((field_size, SLOTS), bool)

    def add(self, values_BF: NDArray[np.float32]) -> None:
        values = values_BF[:WATCHED_ROWS]
        self.filled_F += np.count_nonzero(values, axis=0)
        large = (np.abs(values) >= LARGE) & (np.rint(values) == values)
        if large.any():
            self.large_F += large.sum(axis=0)
            bits = np.ascontiguousarray(values).view(np.uint32)[large]
            self.seen_FS[np.nonzero(large)[1], (bits * np.uint32(0x9E3779B1)) >> np.uint32(24)] = True

    def merge(self, other: "ValueCodes") -> None:
        self.filled_F += other.filled_F
        self.large_F += other.large_F
        self.seen_FS |= other.seen_FS

    def fields(self) -> list[int]:
        """Fields that look like category codes; 0 is no value, because it fills rows up."""
        mostly = (self.large_F > 0) & (self.large_F >= 0.9 * self.filled_F)
        return np.flatnonzero(mostly & (self.seen_FS.sum(axis=1) >= MANY)).tolist()
