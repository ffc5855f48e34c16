"""Ranks that no longer hold the same are noticed at the start, at a checkpoint and at the end, and are named."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.errors import WorkflowError
from components.train.program import agreement
from components.train.program.agreement import check_agreement, state_checksum

DIVERGING = Path(__file__).with_name("diverging.py")
MODEL = {"embedding_size": 8, "deep_layers": "[16]", "batch_size": 16, "seed": 5}


@pytest.mark.parametrize(
    ("what", "placement", "steps", "noticed"),
    [
        ("table", "replicated_sparse", 8, 0),
        ("slot", "sharded", 20, 10),
        ("step", "sharded", 8, 8),
    ],
    ids=["table-at-the-start", "slot-at-a-checkpoint", "step-at-the-end"],
)
def test_a_rank_that_went_astray_ends_the_training(
    run_job: Callable[..., Any], dataset: Path, what: str, placement: str, steps: int, noticed: int
) -> None:
    command = (sys.executable, str(DIVERGING), "launch", what)
    settings = {"strategy": "horovod", "workers_per_host": 2, "embedding_placement": placement, "checkpoint_steps": 10}
    job = run_job(dataset, 1, command, steps=steps, **settings, **MODEL)
    assert job.wait() == [1], job.log()
    differ = f"step {noticed}: the parameters, optimizer slots or step count of rank 1 differ from those of rank 0; "
    assert job.reason().startswith(differ)
    assert not list((job.bases[0] / "checkpoints").glob("ckpt-*"))
    assert not (job.bases[0] / "model/model.json").exists()


def test_without_a_majority_the_first_is_believed() -> None:
    with pytest.raises(WorkflowError, match="of rank 1 differ from those of rank 0;"):
        check_agreement({"rank 0": "a", "rank 1": "b"}, 3)
    with pytest.raises(WorkflowError, match="of rank 0 differ from those of rank 1, rank 2;"):
        check_agreement({"rank 0": "a", "rank 1": "b", "rank 2": "b"}, 3)
    check_agreement({"rank 0": "a", "rank 1": "a"}, 3)
    check_agreement({}, 3)


@pytest.mark.parametrize("index", [0, 6, 7, 12])
def test_every_bit_of_every_row_counts(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    monkeypatch.setattr(agreement, "CHUNK_ROWS", 3)
    values = np.arange(26, dtype=np.float32).reshape(13, 2)
    changed = values.copy()
    changed[index, 1] = np.nextafter(changed[index, 1], np.float32(99))
    step, other = tf.Variable(4.0), tf.Variable(5.0)
    assert state_checksum([tf.Variable(values), step]) == state_checksum([tf.Variable(values.copy()), step])
    assert state_checksum([tf.Variable(changed), step]) != state_checksum([tf.Variable(values), step])
    assert state_checksum([tf.Variable(values), other]) != state_checksum([tf.Variable(values), step])


def test_rows_that_changed_places_are_noticed() -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert state_checksum([tf.Variable(values[::-1].copy())]) != state_checksum([tf.Variable(values)])
