"""The devices that the towers or replicas of one process run on: parts of the CPU, or GPUs.

Logical CPU devices have no cores of their own: all of them share the thread pools of the process.
"""

from typing import Any

import tensorflow as tf

from components.errors import InvalidConfig, WorkflowError
from components.train.program.config import TrainConfig

# The table, and the compiled operations, which exist for CPUs only.
HOST = "/CPU:0"


def replica_devices(config: TrainConfig) -> list[str]:
    """One device a tower. Call it before TensorFlow runs anything: afterwards its devices cannot change.

    `device` auto takes GPUs when there is one a tower, and the CPU otherwise.

    Raises:
        WorkflowError: GPUs, or NCCL, asked of a TensorFlow that has none.
        InvalidConfig: fewer GPUs than towers.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if config.device == "gpu" or (config.device == "auto" and len(gpus) >= config.tower_count):
        return _pin_gpus(gpus, config.tower_count)
    if config.strategy == "mirrored" and config.cross_device == "nccl":
        raise WorkflowError(
            f"cross_device nccl: it needs a GPU build of TensorFlow and {config.tower_count} GPUs, here are {len(gpus)}; "
            "use reduction_to_one or hierarchical_copy on CPUs"
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    configured = tf.config.get_logical_device_configuration(cpu) or []
    if len(configured) < config.tower_count:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * config.tower_count)
    return [f"/CPU:{index}" for index in range(config.tower_count)]


def rank_device(config: TrainConfig, local_rank: int, local_ranks: int) -> str:
    """The device of a Horovod rank: the GPU of its local rank, or the CPU. Call it before TensorFlow runs anything.

    `device` auto takes GPUs when there is one a rank of this host.

    Raises:
        WorkflowError: GPUs asked of a TensorFlow that has none.
        InvalidConfig: fewer GPUs than ranks.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if config.device == "gpu" or (config.device == "auto" and len(gpus) >= local_ranks):
        _check_gpus(gpus, local_ranks, "workers_per_host")
        tf.config.set_visible_devices(gpus[local_rank], "GPU")
        tf.config.experimental.set_memory_growth(gpus[local_rank], True)
        return "/GPU:0"
    return HOST


def _check_gpus(gpus: list[Any], wanted: int, name: str) -> None:
    if not tf.test.is_built_with_gpu_support():
        raise WorkflowError(
            "device gpu: this TensorFlow is a CPU build; a GPU build is needed (tensorflow[and-cuda]), or set device cpu"
        )
    if len(gpus) < wanted:
        raise InvalidConfig(f"{name} {wanted}: this host has {len(gpus)} GPUs; lower it, or set device cpu")


def _pin_gpus(gpus: list[Any], towers: int) -> list[str]:
    """The first GPUs of this host; memory is taken as it is needed, not all of it at once."""
    _check_gpus(gpus, towers, "towers")
    tf.config.set_visible_devices(gpus[:towers], "GPU")
    for gpu in gpus[:towers]:
        tf.config.experimental.set_memory_growth(gpu, True)
    return [f"/GPU:{index}" for index in range(towers)]
