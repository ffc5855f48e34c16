"""float16 with a scaled loss: on CPUs, since no test has a GPU."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.train.program.config import TrainConfig
from components.train.program.divergence import likely_cause
from components.train.program.input import Source
from components.train.program.loss_scale import FIRST_SCALE, GROW_AFTER_STEPS, LARGEST_SCALE, LossScale, overflow
from components.train.program.model import make_model
from components.train.program.precision import FULL, Precision
from components.train.program.single import Single

FLOAT16 = Precision("float16", "for this test")
CONFIG = TrainConfig(embedding_size=4, deep_layers=(8,), batch_size=16, learning_rate=0.01)
SOURCE = Source(files=(), examples=16, field_size=3, feature_size=50, click_rate=0.3, encoding="blocks")


def make(precision: Precision) -> Single:
    return Single(CONFIG, SOURCE, make_model(CONFIG, 3, 0.3, precision))


def batch(value: float = 1.0) -> tuple[Any, Any, Any]:
    draw = np.random.default_rng(4)
    ids = draw.integers(0, 50, (16, 3)).astype(np.int32)
    values = np.full((16, 3), value, np.float32)
    return tf.constant(draw.integers(0, 2, 16), tf.float32), tf.constant(ids), tf.constant(values)


def test_overflow_is_seen_in_any_gradient() -> None:
    sound = [tf.constant([1.0, -3e38]), tf.zeros([2, 2])]
    assert float(overflow(sound)) == 0.0
    for bad in (np.inf, -np.inf, np.nan):
        assert float(overflow([*sound, tf.constant([[0.0, bad]])])) == 1.0


def test_overflow_halves_the_scale_down_to_1_where_it_is_spent() -> None:
    scale = LossScale()
    seen = []
    for _ in range(15):
        scale.count(tf.constant(False))
        seen.append(float(scale.scale))
        assert not scale.spent()
    assert seen == [2.0**power for power in range(14, -1, -1)]
    scale.count(tf.constant(False))
    assert scale.spent()
    assert scale.figures() == {"loss_scale": 1.0, "skipped_steps": 16}
    scale.count(tf.constant(True))
    assert not scale.spent()


def test_so_many_good_steps_in_a_row_double_it_up_to_a_limit() -> None:
    scale = LossScale()
    count = tf.function(scale.count)
    for _ in range(GROW_AFTER_STEPS - 1):
        count(tf.constant(True))
    count(tf.constant(False))
    assert float(scale.scale) == FIRST_SCALE / 2
    for _ in range(GROW_AFTER_STEPS - 1):
        count(tf.constant(True))
    assert float(scale.scale) == FIRST_SCALE / 2
    count(tf.constant(True))
    assert float(scale.scale) == FIRST_SCALE
    scale.resume({"loss_scale": LARGEST_SCALE, "loss_scale_good_steps": GROW_AFTER_STEPS - 1})
    count(tf.constant(True))
    assert float(scale.scale) == LARGEST_SCALE


def test_a_skipped_step_leaves_weights_and_slots_and_counts() -> None:
    strategy = make(FLOAT16)
    strategy.train(batch())
    before = strategy.state()
    assert strategy.loss_scale is not None
    # Far beyond what a product's gradient can hold in float16.
    strategy.loss_scale.scale.assign(2.0**40)
    assert np.isfinite(strategy.train(batch()))
    after = strategy.state()
    for name in before.keys() - {"step", "loss_scale", "loss_scale_good_steps", "loss_scale_skipped_steps"}:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    assert (before["step"], after["step"]) == (1.0, 2.0)
    assert after["loss_scale"] == 2.0**39
    assert (before["loss_scale_good_steps"], after["loss_scale_good_steps"]) == (1, 0)
    assert strategy.figures()["skipped_steps"] == 1


def test_small_gradients_survive_only_scaled() -> None:
    """Of a mean over very many rows: 1e-9 is 0 in float16, and 2^15 times that is not."""
    model = make_model(CONFIG, 3, 0.3, FLOAT16)
    matrix = tf.constant(model.initial_dense()[1])
    inputs = tf.constant(np.random.default_rng(1).standard_normal((4, matrix.shape[0])), tf.float32)

    def gradient(scale: float) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(matrix)
            value = tf.reduce_sum(FLOAT16.product(inputs, matrix, True)) * (1e-9 * scale)
        return tape.gradient(value, matrix) / scale

    assert not np.any(gradient(1.0))
    expected = 1e-9 * np.repeat(inputs.numpy().sum(0)[:, np.newaxis], matrix.shape[1], axis=1)
    np.testing.assert_allclose(gradient(FIRST_SCALE), expected, rtol=0.02, atol=1e-11)


def test_scale_and_counters_resume_and_begin_anew_from_another_precision() -> None:
    first, second = make(FLOAT16), make(FLOAT16)
    assert first.loss_scale is not None
    first.train(batch())
    first.loss_scale.scale.assign(2.0**40)
    first.train(batch())
    first.train(batch())
    second.resume((3, first.state()))
    for name, value in first.state().items():
        np.testing.assert_array_equal(second.state()[name], value, err_msg=name)
    full = make(FULL)
    assert full.shapes() == first.shapes()
    full.resume((3, first.state()))
    third = make(FLOAT16)
    third.resume((3, full.state()))
    assert third.state()["loss_scale"] == FIRST_SCALE


def test_float32_has_no_trace_of_it() -> None:
    strategy = make(FULL)
    assert strategy.loss_scale is None
    strategy.train(batch())
    kinds = {operation.type for operation in strategy._traced.graph.get_operations()}
    assert not kinds & {"IsFinite", "If", "StatelessIf"}
    assert "skipped_steps" not in strategy.figures()


def test_the_cause_is_named() -> None:
    assert likely_cause(CONFIG, [batch()], float16=True).startswith("float16 overflow (a product above 65,504), turn mixed")
    assert "float16" not in likely_cause(CONFIG, [batch()])


FLOAT16_JOB = Path(__file__).with_name("float16.py")
SETTINGS = {"embedding_size": 8, "deep_layers": "[16]", "learning_rate": 0.002, "steps": 40}


@pytest.mark.parametrize(
    ("settings", "skipped"),
    [
        ({"strategy": "single", "batch_size": 64}, 0),
        ({"strategy": "tower", "batch_size": 64}, 1),
        ({"strategy": "mirrored", "batch_size": 64}, 1),
        *(
            ({"strategy": "horovod", "batch_size": 32, "workers_per_host": 2, "embedding_placement": placement}, 1)
            for placement in ("shared", "replicated_sparse", "replicated_dense", "sharded")
        ),
    ],
    ids=["single", "tower", "mirrored", "shared", "replicated_sparse", "replicated_dense", "sharded"],
)
def test_all_skip_what_overflows_on_one_and_learn_what_float32_learns(
    run_job: Callable[..., Any], dataset: Path, alone: Callable[..., Any], settings: dict[str, Any], skipped: int
) -> None:
    job = run_job(dataset, command=(sys.executable, str(FLOAT16_JOB), "launch"), **{**SETTINGS, **settings})
    # Ranks and replicas that differed at the end would have failed the job.
    assert job.wait() == [0], job.log()
    training = job.training()
    assert (training["skipped_steps"], training["loss_scale"]) == (skipped, FIRST_SCALE / 2**skipped)
    # One update of 40 is missing, and products have 11 binary digits.
    np.testing.assert_allclose(job.losses(), alone(**SETTINGS, batch_size=64).losses, rtol=0.01)


def test_ranks_of_which_only_some_scale_their_loss_are_refused(run_job: Callable[..., Any], dataset: Path) -> None:
    """Hosts with and without GPUs: without a word they would wait for each other in the first step."""
    command = (sys.executable, str(FLOAT16_JOB), "launch", "rank 1")
    job = run_job(dataset, command=command, strategy="horovod", workers_per_host=2, batch_size=32, mixed_precision=True, **SETTINGS)
    assert job.wait() == [1], job.log()
    assert "hosts with and without GPUs for it (rank 0" in job.reason()
    assert "rank 1 float16)" in job.reason()
