"""A training whose products run in float16 although there is no GPU, for test_loss_scale.py.

float16.py launch             the launcher of a host, whose processes run this file
float16.py                    one process; in one step gradients of the second rank or tower, where there is one, overflow
float16.py launch "rank 1"    the same, but products of rank 1 alone run in float16
"""

import os
import sys
from typing import Any

import tensorflow as tf

from components.train.program import launch, model, training
from components.train.program.__main__ import main
from components.train.program.precision import Precision


class Overflows(model.Model):
    def loss_and_gradients(self, *arguments: Any) -> tuple[Any, list[Any], Any]:
        value, dense, rows_UE = super().loss_and_gradients(*arguments)
        step, part = arguments[5:7]
        # The rows alone: other ranks see these only where they own one.
        now = tf.logical_and(tf.equal(step, 6.0), tf.equal(tf.cast(part, tf.int32), 1))
        return value, dense, tf.where(now, float("inf"), rows_UE)


if __name__ == "__main__":
    if sys.argv[1:2] == ["launch"]:
        launch.COMMAND = (sys.executable, __file__, *sys.argv[2:])
        sys.exit(launch.main())
    if sys.argv[1:] in ([], [os.environ["CTRFLOW_ROLE"]]):
        training.choose_precision = lambda *_: Precision("float16", "for this test")
    model.Model = Overflows  # type: ignore[misc]
    code = main()
    sys.stdout.flush()
    os._exit(code)
