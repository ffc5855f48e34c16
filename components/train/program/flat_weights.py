"""Dense weights as flat vectors, cut into pieces of equal size: what parameter servers hold of them.

Weights that are updated alike share a vector, so that a server updates its piece of them with one operation. Without `l2` and batch
normalisation that is one vector of all.

Shapes: P dense weights in all.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

Arrays = list[NDArray[np.float32]]


def cuts(length: int, parts: int) -> list[int]:
    """Where to cut so many numbers into parts that differ by one at most: parts + 1 positions."""
    return [length * part // parts for part in range(parts + 1)]


class FlatWeights:
    """How weights of these shapes become pieces, and pieces weights again. `alike` tells which are updated alike."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], alike: Sequence[Hashable], parts: int) -> None:
        self.shapes = list(shapes)
        self._vectors = [[i for i, own in enumerate(alike) if own == each] for each in dict.fromkeys(alike)]
        self._order = [index for vector in self._vectors for index in vector]
        self._sizes = [int(np.prod(shape)) for shape in shapes]
        self._cuts = [cuts(sum(self._sizes[index] for index in vector), parts) for vector in self._vectors]

    @property
    def members(self) -> list[list[int]]:
        """For each vector, which weights it holds."""
        return self._vectors

    def sizes(self, part: int) -> list[int]:
        """Of each vector, the numbers in one part's piece."""
        return [positions[part + 1] - positions[part] for positions in self._cuts]

    def cut(self, values: Sequence[NDArray[np.float32]], vector: int) -> Arrays:
        """One vector's pieces of weights, by part.

        Args:
            values: of the members of the vector.
        """
        return np.split(np.concatenate([value.ravel() for value in values]), self._cuts[vector][1:-1])

    def whole(self, pieces: Sequence[NDArray[np.float32]], vector: int) -> Arrays:
        """The members of one vector in their shapes, from its pieces by part."""
        members = self._vectors[vector]
        parts = np.split(np.concatenate(pieces), np.cumsum([self._sizes[index] for index in members])[:-1])
        return [part.reshape(self.shapes[index]) for index, part in zip(members, parts, strict=True)]

    def flatten(self, tensors: Sequence[Any]) -> Any:
        """Tensors of all weights as one vector [P], one vector's members after the other's."""
        return tf.concat([tf.reshape(tensors[index], [-1]) for index in self._order], axis=0)

    def split(self, flat_P: Any) -> list[list[Any]]:
        """What `flatten` gave as pieces, for each part one of each vector."""
        lengths = [length for positions in self._cuts for length in np.diff(positions)]
        pieces = iter(tf.split(flat_P, lengths))
        by_vector = [[next(pieces) for _ in positions[1:]] for positions in self._cuts]
        return [list(each) for each in zip(*by_vector, strict=True)]

    def join(self, pieces: Sequence[Sequence[Any]]) -> list[Any]:
        """Tensors of all weights in their shapes, from pieces as `split` gives them."""
        flat_P = tf.concat([piece for by_part in zip(*pieces, strict=True) for piece in by_part], axis=0)
        found = dict(zip(self._order, tf.split(flat_P, [self._sizes[index] for index in self._order]), strict=True))
        return [tf.reshape(found[index], shape) for index, shape in enumerate(self.shapes)]
