"""Mixed precision is chosen from what the machine has, says why, and changes matrix products alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.resources import cpu_flags
from components.train.program.config import TrainConfig
from components.train.program.deep_layers import DeepLayers
from components.train.program.precision import FULL, Precision, choose_precision

BFLOAT16 = Precision("bfloat16", "for this test")
TRAINING: Any = object()


@pytest.mark.parametrize(
    ("settings", "gpus", "flags", "name", "reason"),
    [
        ({}, 0, {"avx512_bf16"}, "float32", "mixed_precision is off"),
        ({"mixed_precision": True}, 0, {"avx2", "avx512_bf16"}, "bfloat16", "a CPU that has avx512_bf16"),
        ({"mixed_precision": True}, 0, {"amx_bf16", "avx512_bf16"}, "bfloat16", "a CPU that has amx_bf16"),
        ({"mixed_precision": True}, 0, {"avx2"}, "float32", "the CPU has none of amx_bf16, avx512_bf16"),
        ({"mixed_precision": True}, 1, {"amx_bf16"}, "float32", "strategy single has no GPU variant"),
        ({"mixed_precision": True, "strategy": "tower"}, 2, {"amx_bf16"}, "float16", "on GPUs, the loss scaled"),
        ({"mixed_precision": True, "strategy": "horovod", "workers_per_host": 2}, 2, set(), "float16", "on GPUs, the loss scaled"),
        ({"mixed_precision": True, "strategy": "tower"}, 1, {"amx_bf16"}, "bfloat16", "a CPU that has amx_bf16"),
        (
            {"mixed_precision": True, "strategy": "tower", "device": "cpu"},
            1,
            {"amx_bf16"},
            "bfloat16",
            "a CPU that has amx_bf16",
        ),
    ],
)
def test_the_precision_is_the_machines_and_says_why(
    settings: dict[str, Any], gpus: int, flags: set[str], name: str, reason: str
) -> None:
    found = choose_precision(TrainConfig(**settings), gpus, flags)
    assert found.name == name
    assert reason in found.reason


def test_flags_are_read_as_linux_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx512_bf16 sse\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert cpu_flags(path) == {"fpu", "avx512_bf16", "sse"}
    assert cpu_flags(tmp_path / "missing") == frozenset()


def rounded(values: Any) -> Any:
    """To bfloat16 by hand, as float64: the upper half of a float32's bits, to nearest, ties to even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def test_a_product_rounds_its_factors_and_its_result_and_adds_up_in_float32() -> None:
    draw = np.random.default_rng(6)
    left, right = draw.standard_normal((5, 300)).astype(np.float32), draw.standard_normal((300, 4)).astype(np.float32)
    found = BFLOAT16.product(tf.constant(left), tf.constant(right), TRAINING)
    assert found.dtype == tf.float32
    # Half a unit in the last of eight binary digits; a sum of 300 that was itself kept in bfloat16 would be off by several such.
    exact = rounded(left) @ rounded(right)
    np.testing.assert_allclose(found, exact, rtol=2**-8, atol=1e-4)
    assert np.array_equal(found, rounded(found))
    np.testing.assert_array_equal(BFLOAT16.product(left, right, None), FULL.product(left, right, TRAINING))


def test_weights_and_their_gradients_stay_float32() -> None:
    layers = DeepLayers(TrainConfig(deep_layers=(4,)), 3, BFLOAT16)
    weights = [tf.Variable(weight.value) for weight in layers.weights(np.random.default_rng(1))]
    inputs = tf.constant(np.random.default_rng(2).standard_normal((6, 3)), tf.float32)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layers.logit(weights, inputs, TRAINING))
    gradients = tape.gradient(value, weights)
    assert {gradient.dtype for gradient in gradients} == {tf.float32}
    exact = DeepLayers(TrainConfig(deep_layers=(4,)), 3, FULL)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(exact.logit(weights, inputs, TRAINING))
    for found, expected in zip(gradients, tape.gradient(value, weights), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.05)
