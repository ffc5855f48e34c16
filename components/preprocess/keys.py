"""The 64-bit key of a row: its place in the global shuffle, and by default the split it goes to.

It depends on the seed, the number of the file and of the line or record, and on nothing else: not on processes, line ends or
compression. Numbers of rows are mixed by a bijection of 64 bits, so that no two rows have the same key.
"""

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
# 16 million files of a million million lines.
_NUMBER_BITS = 40


def mix(numbers: Keys) -> Keys:
    """The finalizer of SplitMix64, a bijection. Source: Steele, Lea, Flood 2014, Fast splittable pseudorandom number generators."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def row_keys(seed: int, file_index: int, numbers: NDArray[np.int64]) -> Keys:
    """Keys of rows of one file by their line or record numbers [B]."""
    start = mix(np.array([(seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64], np.uint64))
    return mix(mix(start ^ (np.uint64(file_index << _NUMBER_BITS) + numbers.astype(np.uint64))))


def below(keys: Keys, fraction: float) -> NDArray[np.bool_]:
    """Which rows are of the share `fraction` of all keys, the smallest."""
    return keys < np.uint64(min(int(fraction * 2.0**64), 2**64 - 1))
