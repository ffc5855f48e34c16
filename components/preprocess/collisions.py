"""How many distinct tokens a hashed column has, and how many of them share their id: told from the smallest of their hashes.

Source: Bar-Yossef et al. 2002, k minimum values.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from components.preprocess.transform import Transform

# Distinct tokens of a column up to which collisions are counted; beyond, they are worked out from an estimate.
SAMPLED_TOKENS = 65_536


class TokenSketch:
    """The smallest hashes of a column's tokens, each once, whatever the order they came in."""

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint64)
        self._waiting: list[NDArray[np.uint64]] = []

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Hashes of the tokens of some rows, in any order."""
        if len(self._kept) == SAMPLED_TOKENS:
            hashes = hashes[hashes < self._kept[-1]]
        if len(hashes):
            self._waiting.append(hashes)
        # Sorting what is kept again for each small part would take longer than hashing the part did.
        if sum(map(len, self._waiting)) > SAMPLED_TOKENS:
            self.hashes()

    def hashes(self) -> NDArray[np.uint64]:
        """Those that are kept, sorted."""
        if self._waiting:
            together = np.sort(np.concatenate([self._kept, *self._waiting]))
            self._kept = together[np.append(True, together[1:] != together[:-1])][:SAMPLED_TOKENS]
            self._waiting = []
        return self._kept

    def distinct(self) -> int:
        """How many there were; beyond SAMPLED_TOKENS an estimate, right within 1 %."""
        hashes = self.hashes()
        if len(hashes) < SAMPLED_TOKENS:
            return len(hashes)
        return round((len(hashes) - 1) * 2.0**64 / float(hashes[-1]))

    def collision_rate(self, size: int) -> float:
        """The share of tokens whose id in a table of `size` another one has too.

        Beyond SAMPLED_TOKENS its expectation, 1 - (1 - 1/size)^(distinct - 1).
        """
        hashes = self.hashes()
        if len(hashes) < SAMPLED_TOKENS:
            _, counts = np.unique(hashes % np.uint64(size), return_counts=True)
            return float(counts[counts > 1].sum() / max(len(hashes), 1))
        return float(-np.expm1((self.distinct() - 1) * np.log1p(-1.0 / size))) if size > 1 else 1.0


def with_collisions(transform: Transform, sketches: Sequence[TokenSketch]) -> Transform:
    """The transform with what its hashed columns, of which there is a sketch each, held in the rows that it was made for."""
    hashed = [field for field in transform.categories if field.rare is None]
    told = {
        field.name: replace(field, distinct=sketch.distinct(), collision_rate=sketch.collision_rate(field.size))
        for field, sketch in zip(hashed, sketches, strict=True)
    }
    return replace(transform, categories=tuple(told.get(field.name, field) for field in transform.categories))
