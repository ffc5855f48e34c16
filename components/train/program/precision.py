"""In which precision the matrix products of deep and cross layers run: setting `mixed_precision`.

Weights, sums and optimizer stay float32 whatever it is; a served model is float32 throughout. On CPUs it is
bfloat16, which has the range of float32, so that losses need no scaling; a product adds up in float32 and its result is rounded
once. On GPUs it is float16, whose range is small: the loss is scaled (loss_scale.py). That has run on CPUs in tests, and never on a
GPU.

Source: Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training";
Micikevicius et al. 2018, "Mixed Precision Training".
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from components.resources import BFLOAT16_FLAGS
from components.train.program.config import TrainConfig

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


def _on_gpus(config: TrainConfig, gpus: int) -> bool:
    """Whether the model runs on GPUs, as devices.py decides it."""
    wanted = config.workers_per_host if config.strategy == "horovod" else config.tower_count
    return config.device == "gpu" or (config.device == "auto" and gpus >= wanted)


def choose_precision(config: TrainConfig, gpus: int, flags: Set[str]) -> Precision:
    """The precision of a training, from what this host has.

    Args:
        gpus: how many GPUs there are. flags: of the CPU.
    """
    if not config.mixed_precision:
        return FULL
    if gpus and config.device != "cpu" and config.strategy in ("single", "parameter_server"):
        return Precision("float32", f"mixed_precision on a host with GPUs: strategy {config.strategy} has no GPU variant")
    if _on_gpus(config, gpus):
        if config.model == "own":
            return Precision("float32", "mixed_precision is for the layers of this program: a model of one's own has none of them")
        return Precision("float16", "mixed_precision on GPUs, the loss scaled")
    for flag in BFLOAT16_FLAGS:
        if flag in flags:
            return Precision("bfloat16", f"mixed_precision on a CPU that has {flag}")
    return Precision("float32", f"mixed_precision is of no use here: the CPU has none of {', '.join(BFLOAT16_FLAGS)}")
