"""The factor that a loss is multiplied with before its gradients are taken, so that float16 can hold small ones.

A step whose gradients are not all finite is skipped, on all ranks, and halves the factor; so many good steps in a row double it.
The step count goes on in a skipped step. Only a training whose products run in float16 has one.

Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from components.train.program.devices import HOST
from components.train.program.precision import Precision

FIRST_SCALE = 2.0**15
# The smallest number of float16 is 2^-24: nothing that float32 gradients of a sound model hold is lost at this scale. A limit,
# because gradients that are all zero would double it until it is infinite.
LARGEST_SCALE = 2.0**24
GROW_AFTER_STEPS = 2000


class LossScale:
    """The factor, how many good steps there were since it changed, and how many steps were skipped; part of a checkpoint."""

    def __init__(self) -> None:
        with tf.device(HOST):
            self.scale = tf.Variable(FIRST_SCALE, name="loss_scale")
            self._good_steps = tf.Variable(0, name="good_steps")
            self._skipped_steps = tf.Variable(0, name="skipped_steps")
            self._spent = tf.Variable(False, name="spent")

    def variables(self) -> dict[str, Any]:
        """By the names that a checkpoint gives them."""
        return {
            "loss_scale": self.scale,
            "loss_scale_good_steps": self._good_steps,
            "loss_scale_skipped_steps": self._skipped_steps,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take over what a checkpoint holds; one that was made in another precision, or a champion, has none: begin anew."""
        for name, variable in self.variables().items():
            if name in state:
                variable.assign(state[name])

    def apply_if_finite(self, finite: Any, update: Callable[[], Any]) -> None:
        """Run the update unless gradients overflowed, and change the factor as that demands.

        Args:
            finite: a boolean scalar that is the same on all ranks, which may meet in `update`.
        """

        def updated() -> Any:
            update()
            return tf.constant(True)

        tf.cond(finite, updated, lambda: tf.constant(False))
        self.count(finite)

    def count(self, finite: Any) -> None:
        """Change the factor after a step whose gradients were finite or not, a boolean scalar."""
        with tf.device(HOST):
            scale = self.scale.read_value()
            good = tf.where(finite, self._good_steps + 1, 0)
            grow = good >= GROW_AFTER_STEPS
            grown = tf.where(grow, tf.minimum(scale * 2.0, LARGEST_SCALE), scale)
            self.scale.assign(tf.where(finite, grown, tf.maximum(scale / 2.0, 1.0)))
            self._good_steps.assign(tf.where(grow, 0, good))
            self._skipped_steps.assign_add(tf.where(finite, 0, 1))
            self._spent.assign(tf.logical_and(tf.logical_not(finite), scale <= 1.0))

    def spent(self) -> bool:
        """Whether the last step's gradients overflowed though nothing was left to halve: training cannot go on."""
        return bool(self._spent.numpy())

    def figures(self) -> dict[str, Any]:
        """What training.json says of it."""
        return {"loss_scale": float(self.scale.numpy()), "skipped_steps": int(self._skipped_steps.numpy())}


def loss_scale_for(precision: Precision) -> LossScale | None:
    """None where the precision has the range of float32."""
    return LossScale() if precision.name == "float16" else None


def overflow(gradients: Sequence[Any]) -> Any:
    """0.0 where all numbers of all gradients are finite, else 1.0, a scalar: its mean over ranks is 0 only if it is 0 on all."""
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
    return 1.0 - tf.cast(finite, tf.float32)
