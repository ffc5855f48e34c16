"""Tower and mirrored: what they refuse, what they sum, and that they end like every other job.

That they learn what `single` learns is in test_strategies.py, that they resume in test_resume.py.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.errors import InvalidConfig
from components.train.program.config import TrainConfig, parse_hyperparameters
from components.train.program.mirrored import update_variable
from components.train.program.optimizers import SLOT_STARTS, DenseOptimizer, effective_rate, rule_of
from components.train.program.tower import combine_rows, split_batch


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"strategy": "tower", "batch_size": "65"}, "batch_size 65: must be divisible by the 2 towers that share it"),
        ({"strategy": "mirrored", "batch_size": "64", "towers": "3"}, "batch_size 64: must be divisible by the 3 towers"),
        ({"strategy": "tower", "towers": "-1"}, "towers -1: must not be negative"),
        ({"strategy": "tower", "workers_per_host": "2"}, "workers_per_host 2: strategy tower has one worker"),
        (
            {"strategy": "mirrored", "batch_size": "66", "towers": "3", "cross_device": "hierarchical_copy"},
            "towers 3: cross_device hierarchical_copy pairs devices; use an even number",
        ),
        (
            {"strategy": "mirrored", "cross_device": "nccl", "device": "cpu"},
            "cross_device nccl: it is for GPUs; use reduction",
        ),
        (
            {"strategy": "mirrored", "cross_device": "ring"},
            "'ring' is none of reduction_to_one, hierarchical_copy, nccl",
        ),
        (
            {"strategy": "single", "device": "gpu"},
            "device gpu: strategy single has no GPU variant; tower, mirrored and horovod have",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_starts(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_hyperparameters(settings)
    assert reason in str(caught.value)


def test_other_strategies_do_not_mind_a_batch_that_towers_could_not_share() -> None:
    assert parse_hyperparameters({"batch_size": "65"}).batch_size == 65


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="what a machine without GPUs says")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"strategy": "tower", "device": "gpu"}, "a GPU build is needed"),
        ({"strategy": "mirrored", "device": "gpu"}, "a GPU build is needed"),
        (
            {"strategy": "mirrored", "cross_device": "nccl"},
            "nccl: it needs a GPU build of TensorFlow and 2 GPUs, here are 0",
        ),
    ],
    ids=["tower", "mirrored", "nccl"],
)
def test_gpus_that_are_not_there_are_refused_by_name(
    run_job: Callable[..., Any], dataset: Path, settings: dict[str, Any], reason: str
) -> None:
    job = run_job(dataset, batch_size=32, **settings)
    assert job.wait() == [1]
    assert reason in job.reason()
    assert len(job.reason().splitlines()) == 1


def test_one_host_is_all_they_use(run_job: Callable[..., Any], dataset: Path) -> None:
    job = run_job(dataset, 2, strategy="tower", batch_size=32)
    assert job.wait() == [1, 1]
    assert "strategy tower on 2 hosts: it uses one; set instance count 1" in job.reason()


@pytest.mark.parametrize("strategy", ["tower", "mirrored"])
def test_a_killed_process_ends_the_job_and_is_named(run_job: Callable[..., Any], dataset: Path, strategy: str) -> None:
    job = run_job(dataset, strategy=strategy, batch_size=32, epochs=1000, embedding_size=8, deep_layers="[16]")
    processes = job.wait_for_steps()
    processes["rank 0"].kill()
    killed = time.monotonic()
    assert job.wait(30.0) == [1], job.log()
    assert time.monotonic() - killed < 10
    assert job.reason() == "rank 0 was killed by signal 9 (SIGKILL)"
    assert not (job.bases[0] / "model/model.json").exists()


def test_towers_take_the_rows_of_a_batch_in_order() -> None:
    batch = tf.constant([0.0, 1.0, 0.0, 1.0]), tf.constant([[1], [2], [3], [4]]), tf.constant([[0.5], [1.5], [2.5], [3.5]])
    first, second = split_batch(batch, 2)
    assert [part.numpy().tolist() for part in first] == [[0.0, 1.0], [[1], [2]], [[0.5], [1.5]]]
    assert [part.numpy().tolist() for part in second] == [[0.0, 1.0], [[3], [4]], [[2.5], [3.5]]]


def test_a_row_of_several_towers_gets_the_mean_of_their_gradients_once() -> None:
    ids, gradient = combine_rows(
        [tf.constant([3, 7]), tf.constant([1, 7])], [tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[5.0, 6.0], [7.0, 8.0]])]
    )
    assert ids.numpy().tolist() == [1, 3, 7]
    # The other tower's gradient of rows 1 and 3 is zero: half of its own remains. Row 7: (3 + 7) / 2 and (4 + 8) / 2.
    assert gradient.numpy().tolist() == [[2.5, 3.0], [0.5, 1.0], [5.0, 6.0]]


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "ftrl", "momentum", "sgd"])
def test_a_replicas_update_is_that_of_the_compiled_operation(optimizer: Any) -> None:
    config = TrainConfig(optimizer=optimizer, learning_rate=0.05, l2=0.03, ftrl_l1=0.2, ftrl_l2=0.1)
    draw = np.random.default_rng(2)
    start = draw.standard_normal((7, 3)).astype(np.float32)
    compiled, own = tf.Variable(start), tf.Variable(start)
    reference = DenseOptimizer(config, [compiled], ["weight"])
    slots = [tf.Variable(tf.fill(own.shape, begin)) for begin in SLOT_STARTS[config.optimizer]]
    for step in range(1, 6):
        gradient = tf.constant(draw.standard_normal((7, 3)), tf.float32)
        reference.apply([gradient], tf.constant(float(step)))
        update_variable(rule_of(config), own, slots, gradient, effective_rate(config, tf.constant(float(step))))
    np.testing.assert_allclose(own.numpy(), compiled.numpy(), rtol=1e-5, atol=1e-6)
    assert float(np.abs(own.numpy() - start).max()) > 0.05
