"""Checkpoints survive what interruptions do to them, and never start a training from nothing in silence."""

import logging
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from components.errors import WorkflowError
from components.train.program.checkpoint import check_shapes, listed, read_newest, write

CASES = Path(__file__).parents[5] / "shared" / "cases" / "20-resume-from-damaged-checkpoints"


def variables(step: int) -> dict[str, np.ndarray]:
    return {"table": np.arange(6, dtype=np.float32) + step, "step": np.array(step)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (100, 200):
        write(tmp_path, step, variables(step), keep=2)
    return tmp_path


def test_the_newest_is_read_and_only_so_many_are_kept(folder: Path) -> None:
    write(folder, 300, variables(300), keep=2)
    assert [one.step for one in listed(folder)] == [300, 200]
    step, found = read_newest(folder) or (0, {})
    assert step == 300
    np.testing.assert_array_equal(found["table"], variables(300)["table"])
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint",
        *(f"ckpt-{step}.{part}" for step in (200, 300) for part in ("data-00000-of-00001", "index")),
    ]


def test_tensorflow_itself_reads_them(folder: Path) -> None:
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "ckpt-200")
    table = tf.Variable(tf.zeros(6))
    tf.train.Checkpoint(table=table).restore(str(folder / "ckpt-200")).expect_partial()
    np.testing.assert_array_equal(table.numpy(), variables(200)["table"])


@pytest.mark.parametrize("victim", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["missing", "cut", "bit"])
def test_a_damaged_one_is_named_and_the_one_before_is_used(
    folder: Path, victim: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / f"ckpt-200.{victim}"
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[3] ^= 4
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        step, found = read_newest(folder) or (0, {})
    assert step == 100
    np.testing.assert_array_equal(found["table"], variables(100)["table"])
    assert "ckpt-200" in caplog.text


def test_the_pointer_file_is_not_needed_and_not_believed(folder: Path) -> None:
    (folder / "checkpoint").write_text('model_checkpoint_path: "ckpt-900"\n')
    assert (read_newest(folder) or (0, {}))[0] == 200
    (folder / "checkpoint").unlink()
    assert (read_newest(folder) or (0, {}))[0] == 200


def test_nothing_but_damage_is_an_error_and_an_empty_folder_is_a_start(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("ckpt-*.index"):
        path.unlink()
    with pytest.raises(WorkflowError, match=r"no complete checkpoint \(steps 200, 100 are damaged\); empty the folder"):
        read_newest(folder)
    assert read_newest(tmp_path / "empty") is None


def test_another_shape_is_named(folder: Path) -> None:
    _, found = read_newest(folder) or (0, {})
    with pytest.raises(WorkflowError, match=r"table \(6,\) in the checkpoint, \(9,\) in this model"):
        check_shapes(found, {"table": (9,)}, folder)
    with pytest.raises(WorkflowError, match="no variable extra in the checkpoint"):
        check_shapes(found, {"extra": (1,)}, folder)


@pytest.mark.skipif(not CASES.is_dir(), reason="../shared is not here")
@pytest.mark.parametrize(
    ("case", "step"),
    [
        ("complete", 200),
        ("data_missing", 100),
        ("data_cut", 100),
        ("index_missing", 100),
        ("state_file_missing", 200),
        ("state_points_to_gone", 100),
        ("state_absolute_path", 100),
    ],
)
def test_real_folders(case: str, step: int) -> None:
    found = read_newest(CASES / case)
    assert found is not None
    assert found[0] == step == int(found[1]["step"])
    np.testing.assert_array_equal(found[1]["emb"], np.arange(6) + step)


@pytest.mark.skipif(not CASES.is_dir(), reason="../shared is not here")
def test_a_real_folder_of_a_grown_vocabulary() -> None:
    _, found = read_newest(CASES / "other_shape") or (0, {})
    with pytest.raises(WorkflowError, match=r"emb \(9,\) in the checkpoint, \(6,\) in this model"):
        check_shapes(found, {"emb": (6,)}, CASES / "other_shape")
