"""Time inside a graph, by the clock of the process that runs the operation: only differences within one process mean something."""

from typing import Any

import tensorflow as tf


def time_after(tensors: Any) -> Any:
    """Seconds, a float64 scalar, when all of these are there."""
    with tf.control_dependencies(tf.nest.flatten(tensors)):
        return tf.timestamp()
