"""Every model equals its paper's formula, worked out by numpy in float64; its gradients equal plain TensorFlow's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from components.errors import InvalidConfig
from components.train.program.architecture import TrainingPass
from components.train.program.config import TrainConfig
from components.train.program.deep_layers import DeepLayers
from components.train.program.kernels import gather_rows, group_by_id
from components.train.program.model import Model, loss, make_model
from components.train.program.precision import FULL

Array = NDArray[Any]
FIELDS, SIZE, TABLE, ROWS = 4, 3, 30, 20

OWN = """
import tensorflow as tf

def weights(field_size, embedding_size, random):
    return {"relation": 0.3 * random.standard_normal((field_size, field_size)), "of_id": [0.01]}

def logits(weights, ids, values, embeddings):
    scaled = embeddings * values[:, :, tf.newaxis]
    products = tf.matmul(scaled, scaled, transpose_b=True)
    of_ids = tf.reduce_sum(tf.cast(ids, tf.float32), axis=1) * weights["of_id"]
    return tf.reduce_sum(products * weights["relation"], axis=[1, 2]) + of_ids
"""


@pytest.fixture
def own_model(tmp_path: Path) -> str:
    path = tmp_path / "relation_model.py"
    path.write_text(OWN)
    return str(path)


def model_of(**settings: Any) -> Model:
    return make_model(TrainConfig(**{"embedding_size": SIZE, "deep_layers": (6, 5), **settings}), FIELDS, 0.3)


def batch(seed: int = 3) -> tuple[Array, Array, Array]:
    """Labels, ids and values, a fifth of them 0."""
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((ROWS, FIELDS)).astype(np.float32)
    values[draw.random((ROWS, FIELDS)) < 0.2] = 0.0
    return (draw.random(ROWS) < 0.3).astype(np.float32), draw.integers(0, TABLE, (ROWS, FIELDS)).astype(np.int32), values


def random_weights(model: Model, seed: int = 4) -> tuple[Array, list[Array]]:
    """A table and dense weights of the model's shapes; moving variances above 0."""
    draw = np.random.default_rng(seed)
    dense = [draw.standard_normal(value.shape).astype(np.float32) * 0.4 for value in model.initial_dense()]
    dense = [np.abs(value) if name.endswith("variance") else value for name, value in zip(model.names, dense, strict=True)]
    return draw.standard_normal((TABLE, model.row_width)).astype(np.float32) * 0.4, dense


def named(model: Model, dense: list[Array]) -> dict[str, Array]:
    return {name: value.astype(np.float64) for name, value in zip(model.names, dense, strict=True)}


def deep_by_hand(weights: dict[str, Array], x: Array) -> Array:
    layers = sum(name.startswith("deep") and name.endswith("matrix") for name in weights) - 1
    for layer in range(layers):
        x = np.maximum(x @ weights[f"deep_{layer}_matrix"] + weights[f"deep_{layer}_bias"], 0.0)
        if f"deep_{layer}_scale" in weights:
            mean, variance = weights[f"deep_{layer}_moving_mean"], weights[f"deep_{layer}_moving_variance"]
            x = (x - mean) / np.sqrt(variance + 1e-3) * weights[f"deep_{layer}_scale"] + weights[f"deep_{layer}_shift"]
    return (x @ weights[f"deep_{layers}_matrix"] + weights[f"deep_{layers}_bias"])[:, 0]


def logits_by_hand(name: str, weights: dict[str, Array], rows: Array, ids: Array, values: Array) -> Array:
    """rows: float64 [B, F, E] of every cell."""
    scaled = rows * values[:, :, None]
    if name == "own":
        relation = sum(
            (scaled[:, i] * scaled[:, j]).sum(axis=1) * weights["relation"][i, j] for i in range(FIELDS) for j in range(FIELDS)
        )
        return weights["bias"] + relation + weights["of_id"] * ids.sum(axis=1)
    if name == "dcn_v2":
        x0 = scaled.reshape(len(ids), -1)
        x = x0
        for layer in range(2):
            if f"cross_{layer}_matrix" in weights:
                matrix = weights[f"cross_{layer}_matrix"]
            else:
                matrix = weights[f"cross_{layer}_down"] @ weights[f"cross_{layer}_up"]
            x = x0 * (x @ matrix + weights[f"cross_{layer}_bias"]) + x
        return weights["bias"] + (x @ weights["cross_logit"])[:, 0] + deep_by_hand(weights, x0)
    first, embeddings = scaled[:, :, 0].sum(axis=1), scaled[:, :, 1:]
    second = 0.0
    if name == "deepfm":
        second = sum((embeddings[:, i] * embeddings[:, j]).sum(axis=1) for i in range(FIELDS) for j in range(i + 1, FIELDS))
    return weights["bias"] + first + second + deep_by_hand(weights, embeddings.reshape(len(ids), -1))


MODELS = [
    {"model": "deepfm"},
    {"model": "deepfm", "batch_norm": True, "dropout": (0.5,)},
    {"model": "wide_and_deep"},
    {"model": "dcn_v2", "cross_rank": 2},
    {"model": "dcn_v2", "cross_rank": 0},
    {"model": "own"},
]
IDS = ["deepfm", "deepfm-batch-norm", "wide-and-deep", "dcn-v2-low-rank", "dcn-v2-whole", "own"]


@pytest.mark.parametrize("settings", MODELS, ids=IDS)
def test_a_served_model_is_the_formula(settings: dict[str, Any], own_model: str) -> None:
    model = model_of(**settings, own_model=own_model if settings["model"] == "own" else "")
    _, ids, values = batch()
    table, dense = random_weights(model)
    found = model.logits(dense, tf.gather(table, ids), tf.constant(ids, tf.int64), tf.constant(values))
    expected = logits_by_hand(settings["model"], named(model, dense), table.astype(np.float64)[ids], ids, values)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [each for each in MODELS if "dropout" not in each], ids=[i for i in IDS if "norm" not in i])
def test_gradients_of_distinct_rows_are_those_of_the_whole_table(settings: dict[str, Any], own_model: str) -> None:
    model = model_of(**settings, own_model=own_model if settings["model"] == "own" else "")
    labels, ids, values = batch()
    start, dense_start = random_weights(model)
    table, dense = tf.Variable(start), [tf.Variable(value) for value in dense_start]
    with tf.GradientTape() as tape:
        expected = loss(labels, model.logits(dense, tf.gather(table, ids), ids, tf.constant(values)))
    *expected_dense, expected_rows = tape.gradient(expected, [*dense, table])

    cells = group_by_id(tf.constant(ids))
    found, found_dense, found_rows = tf.function(model.loss_and_gradients)(
        dense, gather_rows(table, cells.ids_U, model.row_width), cells, tf.constant(labels), tf.constant(values), 0.0
    )
    close = {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for one, other in zip(found_dense, expected_dense, strict=True):
        np.testing.assert_allclose(one, other, **close)
    np.testing.assert_allclose(found_rows, tf.gather(tf.convert_to_tensor(expected_rows), cells.ids_U), **close)


def training_loss(model: Model, dense: list[Any], table: Any, step: float, part: int = 0) -> tuple[float, list[Any]]:
    labels, ids, values = batch()
    cells = group_by_id(tf.constant(ids))
    rows, dense = tf.gather(table, cells.ids_U), [tf.constant(each) for each in dense]
    value, gradients, _ = model.loss_and_gradients(dense, rows, cells, labels, tf.constant(values), tf.constant(step), part)
    return float(value), gradients


def test_batch_normalisation_uses_the_batch_in_training_and_its_gradient_moves_the_statistics_towards_it() -> None:
    model = model_of(batch_norm=True, deep_layers=(6,))
    table, dense = random_weights(model)
    value, gradients = training_loss(model, dense, table, 0.0)
    labels, ids, values = batch()
    weights, rows = named(model, dense), table.astype(np.float64)[ids]
    x = (rows * values[:, :, None])[:, :, 1:].reshape(ROWS, -1)
    hidden = np.maximum(x @ weights["deep_0_matrix"] + weights["deep_0_bias"], 0.0)
    of_batch = {"deep_0_moving_mean": hidden.mean(axis=0), "deep_0_moving_variance": hidden.var(axis=0)}
    logits = logits_by_hand("deepfm", weights | of_batch, rows, ids, values)
    np.testing.assert_allclose(value, np.mean(np.logaddexp(0.0, logits) - labels * logits), rtol=1e-5)
    for name, statistic in of_batch.items():
        index = model.names.index(name)
        assert model.kinds[index] == "moving"
        np.testing.assert_allclose(gradients[index], weights[name] - statistic, rtol=1e-4, atol=1e-5)


def test_dropout_depends_on_seed_step_and_part_alone() -> None:
    model = model_of(dropout=(0.5,))
    table, dense = random_weights(model)
    losses = {(step, part): training_loss(model, dense, table, step, part)[0] for step in (0.0, 1.0) for part in (0, 1)}
    assert len(set(losses.values())) == 4
    assert training_loss(model, dense, table, 1.0, 1)[0] == losses[1.0, 1]
    assert training_loss(model_of(dropout=(0.5,), seed=2), dense, table, 1.0, 1)[0] != losses[1.0, 1]


def test_what_dropout_keeps_it_scales_up() -> None:
    width = 1000
    layers = DeepLayers(TrainConfig(deep_layers=(width, width), dropout=(0.0, 0.75)), width, FULL)
    ones, no_bias = tf.eye(width), tf.zeros(width)
    weights = [ones, no_bias, ones, no_bias, tf.ones((width, 1)), tf.zeros(1)]
    inputs = tf.ones((1, width))
    seed = tf.constant([1, 1], tf.int64)
    kept = float(layers.logit(weights, inputs, TrainingPass(seed))[0])
    # Each of 1000 units counts 4 with probability 1/4: mean 1000, standard deviation 55.
    assert kept % 4 == 0
    assert 700 < kept < 1300
    assert kept != 1000
    assert float(layers.logit(weights, inputs, None)[0]) == width


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model": "deepfn"}, "model 'deepfn': choose one of deepfm, wide_and_deep, dcn_v2, own"),
        ({"model": "own"}, "own_model '': model own needs it"),
        ({"own_model": "package.module"}, "own_model 'package.module': model own needs it, and only model own"),
        ({"model": "wide_and_deep", "deep_layers": ()}, "deep_layers []: model wide_and_deep needs at least one"),
        ({"model": "own", "own_model": "no.such"}, "own_model no.such: no module no in the training container"),
        ({"model": "own", "own_model": "no.py"}, "own_model no.py: no such file in the training container"),
        ({"model": "own", "own_model": "json"}, "own_model json: it has no function weights and no function logits"),
        ({"dropout": (0.5, 0.5, 0.5)}, "dropout [0.5, 0.5, 0.5]: give one rate, or one for each of the 2 deep layers"),
        ({"dropout": (1.0,)}, "dropout [1.0]: every rate must be in 0..1, and not 1"),
        ({"l2": -0.1}, "l2 -0.1: must not be negative"),
        ({"momentum": 1.0}, "momentum 1.0: must be in 0..1, and not 1"),
        ({"optimizer": "adamw"}, "optimizer 'adamw': choose one of adam, adagrad, ftrl, momentum, sgd"),
        ({"cross_layers": 0}, "cross_layers 0: at least 1 is needed"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        model_of(**settings)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "logits", "reason"),
    [
        ("[1.0]", "tf.zeros(2)", "weights gives list, a dict of arrays is expected"),
        ("{'w': [float('nan')]}", "tf.zeros(2)", "weight w is not finite"),
        ("{}", "tf.zeros((2, 1))", "logits gives float32 [2, 1] for 2 rows, float32 [2] is expected"),
        ("{}", "tf.zeros(2, tf.float64)", "logits gives float64 [2] for 2 rows"),
        ("{}", "None", "logits gives NoneType for 2 rows"),
    ],
)
def test_an_own_model_that_does_not_fit_is_refused_before_training(tmp_path: Path, weights: str, logits: str, reason: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(
        f"import tensorflow as tf\ndef weights(f, d, random): return {weights}\n"
        f"def logits(weights, ids, values, embeddings): return {logits}\n"
    )
    with pytest.raises(InvalidConfig) as caught:
        model_of(model="own", own_model=str(path))
    assert str(caught.value) == f"own_model {path}: {reason}" or reason in str(caught.value)
