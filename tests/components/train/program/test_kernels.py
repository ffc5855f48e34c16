"""The compiled operations equal plain TensorFlow and the formulas, to float tolerance, and do not depend on threads."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.errors import WorkflowError
from components.train.program import kernels
from components.train.program.config import TrainConfig
from components.train.program.embedding import apply_to_rows
from components.train.program.export import Scorer
from components.train.program.kernel_library import library_path
from components.train.program.kernels import embedding_terms, expand_rows, gather_rows, group_by_id, sum_rows
from components.train.program.model import loss, make_model
from components.train.program.optimizers import effective_rate
from components.train.program.training import describe_rate


def arrays(rows: int, fields: int, size: int, table: int, seed: int = 3) -> tuple[Any, Any, Any, Any]:
    """Labels, ids, values (a fifth of them 0) and an embedding table."""
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((rows, fields)).astype(np.float32)
    values[draw.random((rows, fields)) < 0.2] = 0.0
    return (
        (draw.random(rows) < 0.3).astype(np.float32),
        draw.integers(0, table, (rows, fields)).astype(np.int32),
        values,
        draw.standard_normal((table, 1 + size)).astype(np.float32) * 0.3,
    )


@pytest.mark.parametrize(
    ("ids", "distinct", "index", "order", "starts"),
    [
        ([[7, 3], [3, 9]], [3, 7, 9], [[1, 0], [0, 2]], [1, 2, 0, 3], [0, 2, 3, 4]),
        ([[5]], [5], [[0]], [0], [0, 1]),
        ([[0, 0, 0]], [0], [[0, 0, 0]], [0, 1, 2], [0, 3]),
        ([2**31 - 1, 2048, 0, 2047], [0, 2047, 2048, 2**31 - 1], [3, 2, 0, 1], [2, 3, 1, 0], [0, 1, 2, 3, 4]),
        ([], [], [], [], [0]),
    ],
    ids=["duplicates", "one-cell", "one-id", "every-digit-of-the-sort", "empty"],
)
def test_cells_are_grouped_by_id(ids: Any, distinct: Any, index: Any, order: Any, starts: Any) -> None:
    for found, expected in zip(group_by_id(tf.constant(ids, tf.int32)), (distinct, index, order, starts), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_many_cells_are_grouped_as_numpy_does() -> None:
    ids = np.random.default_rng(1).zipf(1.2, (1024, 39)).clip(max=3_000_000).astype(np.int32)
    cells = group_by_id(tf.constant(ids))
    distinct, index, counts = np.unique(ids, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(cells.ids_U, distinct)
    np.testing.assert_array_equal(cells.index, index.reshape(ids.shape))
    np.testing.assert_array_equal(cells.order_N, np.argsort(ids, axis=None, kind="stable"))
    np.testing.assert_array_equal(np.diff(cells.starts_U1), counts)


@pytest.mark.parametrize(
    ("rows", "fields", "size", "table"),
    [(64, 5, 8, 40), (300, 39, 32, 500), (1, 39, 16, 90), (1, 1, 1, 1), (50, 7, 4, 1), (33, 3, 5, 1000), (20, 2, 64, 9)],
    ids=["small", "criteo", "one-row", "one-of-all", "one-distinct-id", "odd-sizes", "wide"],
)
@pytest.mark.parametrize("layers", [(12, 6), ()], ids=["deep", "no-layers"])
def test_loss_and_gradients_equal_plain_tensorflow(rows: int, fields: int, size: int, table: int, layers: tuple[int, ...]) -> None:
    labels, ids, values, weights = arrays(rows, fields, size, table)
    model = make_model(TrainConfig(embedding_size=size, deep_layers=layers), fields, 0.3)
    dense = [tf.Variable(value) for value in model.initial_dense()]
    whole = tf.Variable(weights)
    with tf.GradientTape() as tape:
        expected = loss(labels, model.logits(dense, tf.gather(whole, ids), ids, tf.constant(values)))
    *expected_dense, expected_rows = tape.gradient(expected, [*dense, whole])

    cells = group_by_id(tf.constant(ids))
    found, found_dense, found_rows = tf.function(model.loss_and_gradients)(
        dense, gather_rows(whole, cells.ids_U, 1 + size), cells, tf.constant(labels), tf.constant(values), 0.0
    )
    close = {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for one, other in zip(found_dense, expected_dense, strict=True):
        np.testing.assert_allclose(one, other, **close)
    np.testing.assert_allclose(found_rows, tf.gather(tf.convert_to_tensor(expected_rows), cells.ids_U), **close)


def test_terms_equal_the_formula_pair_by_pair() -> None:
    _, ids, values, weights = arrays(9, 4, 3, 6)
    cells = group_by_id(tf.constant(ids))
    terms, scaled = embedding_terms(tf.gather(weights, cells.ids_U), cells, tf.constant(values))
    x = weights.astype(np.float64)[ids] * values[:, :, None]
    pairs = sum((x[:, i, 1:] * x[:, j, 1:]).sum(axis=1) for i in range(4) for j in range(i + 1, 4))
    np.testing.assert_allclose(terms, x[:, :, 0].sum(axis=1) + pairs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scaled, x[:, :, 1:].reshape(9, -1), rtol=1e-6)


def test_rows_of_equal_ids_are_summed() -> None:
    cells = group_by_id(tf.constant([4, 1, 4, 4]))
    rows = tf.constant([[1.0, 2.0], [10.0, 20.0], [0.5, 0.0], [-1.0, 1.0]])
    np.testing.assert_array_equal(sum_rows(rows, cells), [[10.0, 20.0], [0.5, 3.0]])


def test_rows_are_repeated_for_their_cells_and_their_gradients_summed() -> None:
    ids = tf.constant([[4, 1], [4, 4]])
    cells = group_by_id(ids)
    rows = tf.constant([[10.0, 20.0], [1.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(rows)
        expanded = expand_rows(rows, cells)
        value = tf.reduce_sum(expanded * tf.constant([[[1.0, 1.0], [2.0, 3.0]], [[5.0, 0.5], [0.0, 7.0]]]))
    np.testing.assert_array_equal(expanded, [[[1.0, 2.0], [10.0, 20.0]], [[1.0, 2.0], [1.0, 2.0]]])
    np.testing.assert_array_equal(tape.gradient(value, rows), [[2.0, 3.0], [6.0, 8.5]])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have no instructions to lack")
@pytest.mark.parametrize(
    ("flags", "missing"),
    [("fpu sse4_2 avx", "no avx2 and no fma"), ("fpu avx avx2", "no fma,"), ("fpu avx fma", "no avx2,")],
)
def test_a_cpu_without_the_instructions_is_refused_instead_of_ending_by_sigill(
    monkeypatch: pytest.MonkeyPatch, flags: str, missing: str
) -> None:
    # What this machine has is what the tests above ran on.
    monkeypatch.setattr(kernels, "cpu_flags", lambda: frozenset(flags.split()))
    with pytest.raises(WorkflowError, match=f"this CPU has {missing}"):
        kernels.load.__wrapped__()


def test_the_library_holds_no_wider_instructions_than_a_cpu_is_asked_for() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the instructions are those of x86")
    code = subprocess.run(["objdump", "-d", str(library_path())], capture_output=True, text=True, check=True).stdout
    assert "ymm" in code
    assert "zmm" not in code


def test_the_learning_rate_rises_over_the_warm_up_to_its_value_times_its_factor() -> None:
    config = TrainConfig(optimizer="sgd", learning_rate=0.5, learning_rate_factor=0.25, warmup_steps=4)
    rates = [float(effective_rate(config, tf.constant(float(step)))) for step in (1, 2, 3, 4, 5, 100)]
    assert rates == [0.03125, 0.0625, 0.09375, 0.125, 0.125, 0.125]
    assert describe_rate(config) == "learning rate 0.5 x 0.25 = 0.125, warm-up over 4 steps"


def test_a_saved_model_needs_no_compiled_operation() -> None:
    model = make_model(TrainConfig(embedding_size=4, deep_layers=(3,)), 2, 0.3)
    scorer = Scorer(model, np.zeros((7, 5), np.float32), model.initial_dense(), 2)
    names = {operation.type for operation in scorer.score.get_concrete_function().graph.get_operations()}
    assert "MatMul" in names
    assert not [name for name in names if name.startswith("Ctrflow")]


DIGEST = """
import hashlib, sys
import numpy as np, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from components.train.program.kernels import embedding_terms, group_by_id, sum_rows
draw = np.random.default_rng(5)
ids = draw.zipf(1.3, (700, 39)).clip(max=9000).astype(np.int32)
values, table = draw.random(ids.shape).astype(np.float32), draw.random((9001, 33)).astype(np.float32)
cells = group_by_id(tf.constant(ids))
rows = tf.gather(table, cells.ids_U)
with tf.GradientTape() as tape:
    tape.watch(rows)
    terms, scaled = embedding_terms(rows, cells, values)
    value = tf.reduce_sum(terms) + tf.reduce_sum(scaled * scaled)
sums = sum_rows(tf.constant(draw.random((ids.size, 33)), tf.float32), cells)
digest = hashlib.sha256()
for tensor in (terms, scaled, tape.gradient(value, rows), sums):
    digest.update(tensor.numpy().tobytes())
print(digest.hexdigest())
"""


def test_results_are_the_same_bits_whatever_the_number_of_threads() -> None:
    found = {
        subprocess.run([sys.executable, "-c", DIGEST, threads], check=True, capture_output=True, text=True).stdout
        for threads in ("1", "2", "5")
    }
    assert len(found) == 1


@pytest.mark.parametrize("wrong", [-1, 3])
def test_an_id_outside_the_table_is_an_error_not_a_crash(wrong: int) -> None:
    table = tf.Variable(tf.zeros((3, 2)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"id {wrong} is outside 0\.\.2"):
        gather_rows(table, tf.constant([0, wrong]), 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"id {wrong} is outside 0\.\.2"):
        apply_to_rows(TrainConfig(optimizer="sgd"), table, tf.constant([wrong]), tf.ones((1, 2)), tf.constant(1.0))


def test_a_missing_library_names_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernels, "library_path", lambda: tmp_path / "kernels-0.so")
    with pytest.raises(WorkflowError, match=r"kernels-0\.so: missing.* run python images/training/build_kernels\.py"):
        kernels.load.__wrapped__()
