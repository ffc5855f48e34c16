"""The update rules equal the formulas, worked out by numpy in float64, and Keras's own optimizers."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from components.train.program.config import TrainConfig
from components.train.program.embedding import apply_to_rows, initial_table, stored_width
from components.train.program.optimizers import DenseOptimizer, effective_rate

Array = NDArray[Any]
RATE, WIDTH = 0.05, 9
OPTIMIZERS = ["adam", "adagrad", "ftrl", "momentum", "sgd"]


def updated_by_hand(config: TrainConfig, row: Array, gradients: list[Array]) -> Array:
    """The row after its gradients, by the formulas at the top of optimizers.py."""
    p, m, v, s, n, z = row.astype(np.float64), 0.0, 0.0, 0.0, 0.1, 0.0
    for step, gradient in enumerate(gradients, start=1):
        g = gradient.astype(np.float64) + config.l2 * p
        if config.optimizer == "adam":
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            p = p - RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step) * m / (np.sqrt(v) + 1e-7)
        elif config.optimizer == "adagrad":
            n = n + g**2
            p = p - RATE * g / (np.sqrt(n) + 1e-7)
        elif config.optimizer == "ftrl":
            before, n = n, n + g**2
            z = z + g - (np.sqrt(n) - np.sqrt(before)) / RATE * p
            p = np.where(
                np.abs(z) <= config.ftrl_l1, 0.0, (np.sign(z) * config.ftrl_l1 - z) / (np.sqrt(n) / RATE + 2 * config.ftrl_l2)
            )
        elif config.optimizer == "momentum":
            s = config.momentum * s - RATE * g
            p = p + s
        else:
            p = p - RATE * g
    return p


def drawn(steps: int) -> tuple[Array, list[Array]]:
    draw = np.random.default_rng(2)
    return draw.standard_normal((6, WIDTH)).astype(np.float32), [
        draw.standard_normal((6, WIDTH)).astype(np.float32) for _ in range(steps)
    ]


def table_of(config: TrainConfig, row: Array) -> Any:
    """A table of these rows with fresh slots."""
    table = initial_table(config, WIDTH, 0, len(row))
    assert table.shape[1] == stored_width(config, WIDTH)
    table[:, :WIDTH] = row
    return tf.Variable(table)


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_and_dense_variables_are_updated_by_the_formula(optimizer: Any, l2: float) -> None:
    config = TrainConfig(optimizer=optimizer, learning_rate=RATE, l2=l2, momentum=0.8, ftrl_l1=0.3, ftrl_l2=0.2)
    row, gradients = drawn(4)
    table, dense, bias = table_of(config, row), tf.Variable(row), tf.Variable(row)
    dense_optimizer = DenseOptimizer(config, [dense, bias], ["weight", "bias"])
    before = table.read_value()
    kept = before.numpy()
    ids = np.array([0, 2, 3, 5], np.int32)
    for step, gradient in enumerate(gradients, start=1):
        apply_to_rows(config, table, tf.constant(ids), tf.constant(gradient[ids]), tf.constant(float(step)))
        dense_optimizer.apply([tf.constant(gradient)] * 2, tf.constant(float(step)))
    expected = updated_by_hand(config, row, gradients)
    np.testing.assert_allclose(table[:, :WIDTH].numpy()[ids], expected[ids], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dense, expected, rtol=1e-4, atol=1e-5)
    # l2 is for weights.
    without = TrainConfig(optimizer=optimizer, learning_rate=RATE, momentum=0.8, ftrl_l1=0.3, ftrl_l2=0.2)
    np.testing.assert_allclose(bias, updated_by_hand(without, row, gradients), rtol=1e-4, atol=1e-5)
    # Rows that are not in the batch stay, and so does what was read before.
    np.testing.assert_array_equal(table.numpy()[[1, 4]], kept[[1, 4]])
    np.testing.assert_array_equal(before, kept)


def keras_optimizer(optimizer: str) -> Any:
    made = {
        "adam": lambda: tf.keras.optimizers.Adam(RATE),
        "adagrad": lambda: tf.keras.optimizers.Adagrad(RATE),
        "ftrl": lambda: tf.keras.optimizers.Ftrl(RATE, l1_regularization_strength=0.3, l2_regularization_strength=0.2),
        "momentum": lambda: tf.keras.optimizers.SGD(RATE, momentum=0.8),
        "sgd": lambda: tf.keras.optimizers.SGD(RATE),
    }
    return made[optimizer]()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_that_every_step_touches_end_as_keras_leaves_them(optimizer: Any) -> None:
    config = TrainConfig(optimizer=optimizer, learning_rate=RATE, momentum=0.8, ftrl_l1=0.3, ftrl_l2=0.2)
    row, gradients = drawn(10)
    table, expected, theirs = table_of(config, row), tf.Variable(row), keras_optimizer(optimizer)
    for step, gradient in enumerate(gradients, start=1):
        apply_to_rows(config, table, tf.range(6), tf.constant(gradient), tf.constant(float(step)))
        theirs.apply([tf.constant(gradient)], [expected])
    np.testing.assert_allclose(table[:, :WIDTH], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("optimizer", "lazy"), [("adam", True), ("momentum", True), ("adagrad", False), ("sgd", False)])
def test_a_row_that_a_step_does_not_touch_rests_where_a_dense_optimizer_may_move_it(optimizer: Any, lazy: bool) -> None:
    config = TrainConfig(optimizer=optimizer, learning_rate=RATE, momentum=0.8)
    row, gradients = drawn(2)
    table, theirs, dense = table_of(config, row), keras_optimizer(optimizer), tf.Variable(row)
    apply_to_rows(config, table, tf.range(6), tf.constant(gradients[0]), tf.constant(1.0))
    after_one = table.numpy()
    # The second step has no cell of row 0: to a dense optimizer that is a gradient of zero.
    second = gradients[1].copy()
    second[0] = 0.0
    apply_to_rows(config, table, tf.range(1, 6), tf.constant(second[1:]), tf.constant(2.0))
    for gradient in (gradients[0], second):
        theirs.apply([tf.constant(gradient)], [dense])
    np.testing.assert_array_equal(table[0], after_one[0])
    moved = np.abs(dense[0] - after_one[0, :WIDTH])
    assert (moved.min() > 1e-3) if lazy else (moved.max() < 1e-6)


def test_moving_statistics_go_a_fixed_share_of_their_way_whatever_the_optimizer() -> None:
    config = TrainConfig(optimizer="adam", learning_rate=RATE, batch_norm_momentum=0.75, l2=0.5)
    weight, moving = tf.Variable([1.0, 2.0]), tf.Variable([4.0, 8.0])
    optimizer = DenseOptimizer(config, [weight, moving], ["weight", "moving"])
    statistic = np.array([0.0, 4.0], np.float32)
    optimizer.apply([tf.constant([1.0, 1.0]), moving - statistic], tf.constant(1.0))
    # 4 + (0 - 4) / 4 and 8 + (4 - 8) / 4.
    np.testing.assert_allclose(moving, [3.0, 7.0], rtol=1e-6)
    assert sorted(optimizer.named(0.0)) == ["dense_0", "dense_0_slot_0", "dense_0_slot_1", "dense_1", "step"]


def test_the_bias_correction_is_right_at_the_first_step() -> None:
    rate = effective_rate(TrainConfig(learning_rate=0.5), tf.constant(1.0))
    np.testing.assert_allclose(rate, 0.5 * np.sqrt(0.001) / 0.1, rtol=1e-6)
