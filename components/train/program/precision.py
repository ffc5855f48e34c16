"""In which precision the matrix products of deep and cross layers run.

Weights, sums and optimizer stay float32 whatever it is; a served model is float32 throughout.
"""

from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

PrecisionName = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Precision:
    """A precision and why it was taken."""

    name: PrecisionName
    reason: str

    def product(self, left: Any, right: Any, training: object) -> Any:
        """left @ right, float32; in training in this precision, in serving (`training` None) in float32."""
        if self.name == "float32" or training is None:
            return tf.matmul(left, right)
        return tf.cast(tf.matmul(tf.cast(left, self.name), tf.cast(right, self.name)), tf.float32)


FULL = Precision("float32", "mixed_precision is off")
