"""DeepFM, which knows nothing of clusters: a logit from the embedding rows of a batch.

Source: Guo et al. 2017, "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction".

Shapes: B rows of the batch, F fields, D embedding size, U distinct ids. A row of the embedding table holds 1 + D numbers: the
first-order weight, then the embedding, so that one lookup serves both.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.config import TrainConfig
from components.train.program.kernels import Cells, embedding_terms

# Rows are drawn in chunks that have a seed each, so that any process can make any part of the table on its own.
INIT_CHUNK_ROWS = 65_536
INIT_STDDEV = 0.01


def row_width(config: TrainConfig) -> int:
    return 1 + config.embedding_size


def initial_rows(config: TrainConfig, start: int, stop: int) -> NDArray[np.float32]:
    """Rows start..stop-1 of the embedding table as every strategy begins with them, float32 [stop - start, 1 + D]."""
    rows = np.empty((stop - start, row_width(config)), np.float32)
    for chunk in range(start // INIT_CHUNK_ROWS, -(-stop // INIT_CHUNK_ROWS)):
        first = chunk * INIT_CHUNK_ROWS
        drawn = np.random.default_rng((config.seed, chunk)).standard_normal((INIT_CHUNK_ROWS, row_width(config)), np.float32)
        low, high = max(start, first), min(stop, first + INIT_CHUNK_ROWS)
        rows[low - start : high - start] = drawn[low - first : high - first] * INIT_STDDEV
    return rows


def initial_dense(config: TrainConfig, field_size: int, click_rate: float) -> list[NDArray[np.float32]]:
    """Bias [1], then weights [in, out] (Glorot uniform) and bias [out] of each deep layer and of the layer that ends in one logit.

    The first bias is the log-odds of `click_rate`: training starts at the best constant predictor instead of spending its
    first steps on the way to it. Source: Lin et al. 2017, "Focal Loss", section 4.1, for the idea of a prior.
    """
    random = np.random.default_rng((config.seed, 2**32 - 1))
    weights = [np.array([np.log(click_rate / (1 - click_rate))], np.float32)]
    if config.deep_layers:
        for fan_in, fan_out in pairwise((field_size * config.embedding_size, *config.deep_layers, 1)):
            limit = (6.0 / (fan_in + fan_out)) ** 0.5
            weights.append(random.uniform(-limit, limit, (fan_in, fan_out)).astype(np.float32))
            weights.append(np.zeros(fan_out, np.float32))
    return weights


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


def deep_logit(dense: Sequence[Any], embeddings_BX: Any) -> Any:
    """The bias and what the layers make of scaled embeddings [B, F * D]; float32 [B], or a scalar without layers."""
    if len(dense) == 1:
        return dense[0]
    hidden = embeddings_BX
    for layer in range(1, len(dense) - 2, 2):
        # bias_add, not +: TensorFlow fuses matmul, bias and relu into one operation only when it sees these three.
        hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(hidden, dense[layer]), dense[layer + 1]))
    return dense[0] + tf.squeeze(tf.matmul(hidden, dense[-2]) + dense[-1], axis=1)


def logits(dense: Sequence[Any], rows_BFE: Any, values_BF: Any) -> Any:
    """Logits float32 [B], in plain TensorFlow: what a saved model computes, and what the compiled operations must equal.

    Args:
        dense: the variables or tensors of `initial_dense`.
        rows_BFE: float32 [B, F, 1 + D] rows of the embedding table.
        values_BF: float32 [B, F] feature values.
    """
    scaled_BFE = rows_BFE * values_BF[:, :, tf.newaxis]
    first_order = tf.reduce_sum(scaled_BFE[:, :, 0], axis=1)
    embeddings_BFD = scaled_BFE[:, :, 1:]
    fields, width = embeddings_BFD.shape[1], embeddings_BFD.shape[2]
    return first_order + second_order(embeddings_BFD) + deep_logit(dense, tf.reshape(embeddings_BFD, [-1, fields * width]))


def loss(labels_B: Any, logits_B: Any) -> Any:
    """Mean log loss of a batch, a scalar."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels_B, logits=logits_B))


def loss_and_gradients(
    dense: Sequence[Any], rows_UE: Any, cells: Cells, labels_B: Any, values_BF: Any
) -> tuple[Any, list[Any], Any]:
    """Loss, gradients of the dense variables, and of the distinct rows [U, 1 + D].

    Args:
        rows_UE: the rows of the batch's distinct ids.
        cells: which of them each cell of the batch uses.
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(list(dense))
        tape.watch(rows_UE)
        terms_B, scaled_BX = embedding_terms(rows_UE, cells, values_BF)
        value = loss(labels_B, terms_B + deep_logit(dense, scaled_BX))
    *dense_gradients, rows_gradient = tape.gradient(value, [*dense, rows_UE])
    return value, dense_gradients, rows_gradient
