"""The embedding rows of a batch as a model asks for them: in training by distinct id, in serving cell by cell.

Shapes: B rows of the batch, F fields, U distinct ids, E numbers a row of the table, D embedding size. A row ends in its embedding;
what a model keeps before it, such as a first-order weight, is E - D numbers.
"""

from typing import Any, Protocol

import tensorflow as tf

from components.train.program.kernels import Cells, embedding_terms, expand_rows


class Lookup(Protocol):
    """What a model may ask of its batch."""

    values_BF: Any

    def ids(self) -> Any:
        """int32 [B, F]."""
        ...

    def columns(self, first: int, last: int | None = None) -> Any:
        """Columns first..last-1 of every cell's row, not scaled by its value, float32 [B, F, last - first]."""
        ...

    def factorization(self) -> tuple[Any, Any]:
        """Of rows [weight, embedding]: first plus second order logits [B], and the scaled embeddings [B, F * D].

        Source: Guo et al. 2017, DeepFM; Rendle 2010, Factorization Machines.
        """
        ...


def first_order(lookup: Lookup) -> Any:
    """Sum of the first column of every cell's row times the cell's value, float32 [B]."""
    return tf.reduce_sum(tf.squeeze(lookup.columns(0, 1), axis=2) * lookup.values_BF, axis=1)


def scaled_embeddings(lookup: Lookup, first: int) -> Any:
    """Columns from `first` on of every cell's row, times the cell's value, side by side: float32 [B, F * (E - first)]."""
    scaled_BFD = lookup.columns(first) * lookup.values_BF[:, :, tf.newaxis]
    return tf.reshape(scaled_BFD, [-1, scaled_BFD.shape[1] * scaled_BFD.shape[2]])


class DistinctRows:
    """A training batch: the rows of its distinct ids [U, E], and which of them each cell uses."""

    def __init__(self, rows_UE: Any, cells: Cells, values_BF: Any) -> None:
        self._rows_UE, self._cells, self.values_BF = rows_UE, cells, values_BF

    def ids(self) -> Any:
        return tf.gather(self._cells.ids_U, self._cells.index)

    def columns(self, first: int, last: int | None = None) -> Any:
        # Sliced before the rows are repeated for their cells: there are several times as many cells as distinct ids.
        return expand_rows(self._rows_UE[:, first:last], self._cells)

    def factorization(self) -> tuple[Any, Any]:
        return embedding_terms(self._rows_UE, self._cells, self.values_BF)


class CellRows:
    """A served batch, in plain TensorFlow: the row of every cell [B, F, E]."""

    def __init__(self, rows_BFE: Any, ids_BF: Any, values_BF: Any) -> None:
        self._rows_BFE, self._ids_BF, self.values_BF = rows_BFE, ids_BF, values_BF

    def ids(self) -> Any:
        return tf.cast(self._ids_BF, tf.int32)

    def columns(self, first: int, last: int | None = None) -> Any:
        return self._rows_BFE[:, :, first:last]

    def factorization(self) -> tuple[Any, Any]:
        scaled_BFE = self._rows_BFE * self.values_BF[:, :, tf.newaxis]
        embeddings_BFD = scaled_BFE[:, :, 1:]
        fields, width = embeddings_BFD.shape[1], embeddings_BFD.shape[2]
        terms_B = tf.reduce_sum(scaled_BFE[:, :, 0], axis=1) + second_order(embeddings_BFD)
        return terms_B, tf.reshape(embeddings_BFD, [-1, fields * width])


def second_order(embeddings_BFD: Any) -> Any:
    """Sum of all pairwise dot products of field embeddings, O(F*D) an example.

    Args:
        embeddings_BFD: float32 [B, F, D], already scaled by feature value.
    Returns:
        float32 [B] logits.
    Source: Rendle 2010 for the identity.
    """
    square_of_sum = tf.square(tf.reduce_sum(embeddings_BFD, axis=1))
    sum_of_squares = tf.reduce_sum(tf.square(embeddings_BFD), axis=1)
    return 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1)
