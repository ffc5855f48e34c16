"""Every strategy trains for real, and gives what `single` gives at the same global batch, seed and data."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

from components.manifest import manifest_digest, read_manifest
from components.train.program.config import TrainConfig
from components.train.program.input import Source
from components.train.program.model import make_model
from components.train.program.single import Single

GLOBAL_BATCH, STEPS = 64, 50
MODEL = {"embedding_size": 8, "deep_layers": "[16, 8]", "learning_rate": 0.01, "steps": STEPS, "seed": 5}
HOROVOD = {"strategy": "horovod", "batch_size": 32}
# At which each optimizer visibly learns within so few steps.
RATES = {"adam": 0.01, "adagrad": 0.1, "sgd": 1.0}


def learns(losses: list[float]) -> bool:
    """The last ten batches are better than the first ten."""
    return float(np.mean(losses[-10:])) < float(np.mean(losses[:10])) - 0.01


@pytest.mark.parametrize(
    ("optimizer", "hosts", "settings"),
    [
        ("adam", 1, {"strategy": "single", "batch_size": 64}),
        ("adam", 1, {**HOROVOD, "workers_per_host": 2, "embedding_placement": "replicated_sparse"}),
        ("adagrad", 2, {**HOROVOD, "embedding_placement": "replicated_sparse"}),
        ("adam", 1, {**HOROVOD, "workers_per_host": 2, "embedding_placement": "shared"}),
        ("adam", 1, {**HOROVOD, "workers_per_host": 2, "embedding_placement": "replicated_dense"}),
        ("sgd", 2, {**HOROVOD, "embedding_placement": "replicated_dense", "learning_rate_factor": 0.25}),
        ("adam", 1, {**HOROVOD, "workers_per_host": 2, "embedding_placement": "sharded"}),
        ("adagrad", 2, {**HOROVOD, "embedding_placement": "sharded"}),
        ("adam", 1, {"strategy": "parameter_server", "batch_size": 64}),
        ("sgd", 2, {"strategy": "parameter_server", "batch_size": 32, "ps_synchronous": True, "learning_rate_factor": 0.25}),
        ("adagrad", 1, {"strategy": "parameter_server", "batch_size": 64, "towers": 4}),
        ("adam", 1, {"strategy": "tower", "batch_size": 64}),
        ("adagrad", 1, {"strategy": "tower", "batch_size": 64, "towers": 4}),
        ("adam", 1, {"strategy": "mirrored", "batch_size": 64}),
        ("adagrad", 1, {"strategy": "mirrored", "batch_size": 64, "towers": 4, "cross_device": "hierarchical_copy"}),
        ("sgd", 1, {"strategy": "mirrored", "batch_size": 64, "cross_device": "hierarchical_copy"}),
    ],
    ids=[
        "single",
        "horovod-2-workers-replicated-sparse",
        "horovod-2-hosts-replicated-sparse",
        "horovod-2-workers-shared",
        "horovod-2-workers-replicated-dense",
        "horovod-2-hosts-replicated-dense",
        "horovod-2-workers-sharded",
        "horovod-2-hosts-sharded",
        "parameter-server-1-worker",
        "parameter-server-2-hosts-synchronous",
        "parameter-server-4-towers",
        "tower-2",
        "tower-4",
        "mirrored-2-reduction-to-one",
        "mirrored-4-hierarchical-copy",
        "mirrored-2-hierarchical-copy",
    ],
)
def test_losses_equal_those_of_one_process(
    run_job: Callable[..., Any],
    dataset: Path,
    alone: Callable[..., Any],
    optimizer: str,
    hosts: int,
    settings: dict[str, Any],
) -> None:
    learned = {**MODEL, "optimizer": optimizer, "learning_rate": RATES[optimizer]}
    expected = alone(**learned, batch_size=GLOBAL_BATCH).losses
    factor = settings.get("learning_rate_factor", 1)
    job = run_job(dataset, hosts, **{**learned, **settings, "learning_rate": RATES[optimizer] / factor})
    assert job.wait() == [0] * hosts, job.log()
    assert f"learning rate {RATES[optimizer] / factor:g} x {factor:g} = {RATES[optimizer]:g}, no warm-up" in job.log()
    assert len(job.losses()) == STEPS
    np.testing.assert_allclose(job.losses(), expected, rtol=1e-4)
    assert learns(expected)
    # Ranks end together: Horovod's thread in a rank whose peer is gone while rank 0 still writes the model says so.
    assert "uncaught exception" not in job.log(), job.log()


OWN_MODEL = """
import tensorflow as tf

def weights(field_size, embedding_size, random):
    return {"relation": 0.1 * random.standard_normal((field_size, field_size))}

def logits(weights, ids, values, embeddings):
    scaled = embeddings * values[:, :, tf.newaxis]
    return tf.reduce_sum(tf.matmul(scaled, scaled, transpose_b=True) * weights["relation"], axis=[1, 2])
"""


@pytest.mark.parametrize(
    ("learned", "placed"),
    [
        (
            {"model": "dcn_v2", "cross_rank": 4, "optimizer": "adagrad", "learning_rate": 0.1, "l2": 0.001},
            {"strategy": "horovod", "workers_per_host": 2, "batch_size": 32, "embedding_placement": "sharded"},
        ),
        (
            {"model": "wide_and_deep", "optimizer": "ftrl", "learning_rate": 0.3, "ftrl_l1": 0.0001, "ftrl_l2": 0.001, "l2": 0.001},
            {"strategy": "mirrored", "batch_size": 64},
        ),
        (
            {"model": "own", "own_model": "", "learning_rate": 0.05, "l2": 0.001},
            {"strategy": "tower", "batch_size": 64},
        ),
        # One worker has the whole batch, so even what is dropped and what is normalised by are the same.
        (
            {"dropout": 0.2, "batch_norm": True, "optimizer": "momentum", "learning_rate": 0.1},
            {"strategy": "parameter_server", "batch_size": 64},
        ),
    ],
    ids=["dcn-v2-on-horovod", "wide-and-deep-mirrored", "own-model-on-towers", "dropout-and-batch-norm-on-a-server"],
)
def test_every_model_learns_the_same_in_every_strategy(
    run_job: Callable[..., Any],
    dataset: Path,
    alone: Callable[..., Any],
    tmp_path: Path,
    learned: dict[str, Any],
    placed: dict[str, Any],
) -> None:
    if "own_model" in learned:
        path = tmp_path / "relation_model.py"
        path.write_text(OWN_MODEL)
        learned = {**learned, "own_model": path}
    job = run_job(dataset, 1, **{**MODEL, **learned, **placed})
    assert job.wait() == [0], job.log()
    expected = alone(**{**MODEL, **learned, "batch_size": GLOBAL_BATCH})
    np.testing.assert_allclose(job.losses(), expected.losses, rtol=1e-4)
    assert learns(expected.losses)
    # What is served gives the probabilities of the trained weights.
    ids, values = np.array([[0, 5, 9, 1, 1999]]), np.array([[1.0, 0.5, 0.25, 2.0, 1.0]], np.float32)
    served = tf.saved_model.load(str(job.bases[0] / "model/saved_model")).signatures["serving_default"]
    table, dense = expected.strategy.parameters()
    logits = expected.model.logits(dense, table[ids], ids, values)
    probability = served(ids=tf.constant(ids), values=tf.constant(values))["probability"]
    np.testing.assert_allclose(probability, tf.sigmoid(logits), rtol=1e-3)


def test_a_training_that_drops_units_goes_on_as_if_it_had_not_been_interrupted() -> None:
    config = TrainConfig(embedding_size=4, deep_layers=(8,), dropout=(0.5,), batch_norm=True, batch_size=16)
    draw = np.random.default_rng(1)
    rows = [
        (
            tf.constant((draw.random(16) < 0.4).astype(np.float32)),
            tf.constant(draw.integers(0, 50, (16, 3)).astype(np.int32)),
            tf.constant(draw.random((16, 3)).astype(np.float32)),
        )
        for _ in range(6)
    ]
    source = Source(files=(), examples=96, field_size=3, feature_size=50, click_rate=0.4, encoding="blocks")

    def fresh() -> Single:
        return Single(config, source, make_model(config, 3, 0.4))

    uninterrupted, first, second = fresh(), fresh(), fresh()
    expected = [uninterrupted.train(batch) for batch in rows]
    before = [first.train(batch) for batch in rows[:3]]
    assert second.resume((3, first.state())) == 3
    assert before + [second.train(batch) for batch in rows[3:]] == expected


def test_asynchronous_servers_give_every_worker_its_own_equal_share(run_job: Callable[..., Any], dataset: Path) -> None:
    job = run_job(dataset, 2, strategy="parameter_server", batch_size=32, **{**MODEL, "steps": 0, "epochs": 1})
    assert job.wait() == [0, 0], job.log()
    training = job.training()
    # 5900 rows in global batches of 64: 92 of them, 12 rows left out.
    assert [(rank["rank"], rank["steps"]) for rank in training["ranks"]] == [(0, 92), (1, 92)]
    assert (training["examples"], training["examples_left_out"]) == (5888, 12)
    # A row is a weight and 8 numbers, the dense part 1 + 40 x 16 + 16 + 16 x 8 + 8 + 8 + 1 = 802 weights, and Adam keeps two
    # moments of each.
    assert training["table_bytes_per_server"] == [1000 * 27 * 4] * 2
    assert training["dense_bytes_per_server"] == [401 * 3 * 4] * 2
    shares = [training[name] for name in ("input_wait_share", "compute_share", "communication_share")]
    assert all(share > 0 for share in shares)
    assert sum(shares) == pytest.approx(1.0)
    # Asking servers for rows is a part of it; so is sending gradients: an id and 9 numbers a distinct row, and all dense weights.
    assert 0 < training["parameter_server_share"] <= training["communication_share"]
    assert training["sent_bytes_per_step"] == pytest.approx(training["distinct_rows"] * 4 * 10 + 802 * 4)
    assert learns(job.losses())


@pytest.mark.parametrize(
    ("placement", "rows_per_rank"),
    # Of three ranks, the first two hold a row more of 2000.
    [
        ("replicated_sparse", [2000, 2000, 2000]),
        ("replicated_dense", [2000, 2000, 2000]),
        ("sharded", [667, 667, 666]),
        ("shared", [667, 667, 666]),
    ],
)
def test_three_ranks_hold_what_their_placement_says(
    run_job: Callable[..., Any], dataset: Path, alone: Callable[..., Any], placement: str, rows_per_rank: list[int]
) -> None:
    settings = {**MODEL, "strategy": "horovod", "workers_per_host": 3, "batch_size": 16, "embedding_placement": placement}
    job = run_job(dataset, 1, **settings)
    assert job.wait() == [0], job.log()
    # A row is a weight and 8 numbers, and as many again for each of Adam's two moments.
    assert job.training()["table_bytes_per_rank"] == [rows * 27 * 4 for rows in rows_per_rank]
    expected = alone(**MODEL, batch_size=48)
    np.testing.assert_allclose(job.losses(), expected.losses, rtol=1e-4)
    with np.load(job.bases[0] / "model/weights.npz") as found:
        np.testing.assert_allclose(found["table"], expected.weights()["table"], rtol=1e-3, atol=1e-5)


def test_the_placement_that_is_chosen_is_logged_with_its_numbers(run_job: Callable[..., Any], dataset: Path) -> None:
    job = run_job(dataset, 1, strategy="horovod", workers_per_host=2, batch_size=32, **{**MODEL, "steps": 5})
    assert job.wait() == [0], job.log()
    assert job.training()["embedding_placement"] == "shared"
    # 2000 rows of 27 numbers.
    assert "embedding placement shared: 2 ranks on one host share one table of 0.000216 GB" in job.log()


@pytest.mark.parametrize("placement", ["replicated_sparse", "shared"])
def test_the_model_is_rank_0s_and_scores_like_the_weights(run_job: Callable[..., Any], dataset: Path, placement: str) -> None:
    settings = {"strategy": "horovod", "workers_per_host": 2, "batch_size": 32, "embedding_placement": placement}
    job = run_job(dataset, 1, transform="what made these ids", **settings, **MODEL)
    assert job.wait() == [0], job.log()
    model = job.bases[0] / "model"
    card = json.loads((model / "model.json").read_text())
    assert (card["rank"], card["world_size"], card["step"], card["ranks_agreed"]) == (0, 2, STEPS, True)
    assert card["data_digest"] == manifest_digest(read_manifest(dataset))
    on_disk = {str(path.relative_to(model)) for path in model.rglob("*") if path.is_file()} - {"model.json"}
    assert set(card["files"]) == on_disk
    assert (model / "transform.json").read_text() == "what made these ids"
    for name, file in card["files"].items():
        assert file["sha256"] == hashlib.sha256((model / name).read_bytes()).hexdigest()

    ids, values = np.array([[0, 5, 9, 1, 1999]]), np.array([[1.0, 0.5, 0.25, 2.0, 1.0]], np.float32)
    served = tf.saved_model.load(str(model / "saved_model")).signatures["serving_default"]
    probability = served(ids=tf.constant(ids), values=tf.constant(values))["probability"].numpy()
    np.testing.assert_allclose(probability, deepfm_by_hand(np.load(model / "weights.npz"), ids, values), rtol=1e-5)


def deepfm_by_hand(weights: Any, ids: Any, values: Any) -> Any:
    """The paper's formula, pair by pair, in float64."""
    rows = weights["table"].astype(np.float64)[ids] * values[:, :, None]
    first, embeddings = rows[:, :, 0].sum(axis=1), rows[:, :, 1:]
    fields = ids.shape[1]
    second = sum((embeddings[:, i] * embeddings[:, j]).sum(axis=1) for i in range(fields) for j in range(i + 1, fields))
    hidden = embeddings.reshape(len(ids), -1)
    layers = [weights[f"dense_{index}"].astype(np.float64) for index in range(len(weights.files) - 1)]
    for kernel, bias in zip(layers[1:-2:2], layers[2:-2:2], strict=True):
        hidden = np.maximum(hidden @ kernel + bias, 0.0)
    logit = layers[0] + first + second + (hidden @ layers[-2] + layers[-1])[:, 0]
    return 1 / (1 + np.exp(-logit))


def test_a_probe_measures_its_parts_in_one_process_and_leaves_no_model(run_job: Callable[..., Any], dataset: Path) -> None:
    job = run_job(dataset, strategy="single", probe="all", batch_size=64, **{**MODEL, "steps": 100_000, "max_seconds": 1})
    assert job.wait() == [0], job.log()
    both = job.training()
    parts = {"both": both, **both["parts"]}
    assert list(parts) == ["both", "compute", "input"]
    for name, part in parts.items():
        assert part["probe"] == name
        assert part["stopped_early"]
        assert 0 < part["examples"] < 100_000 * 64
        assert 0.9 < part["train_s"] < 20
        assert part["rate_low"] < part["examples_per_s"] < part["rate_high"]
        assert part["block_steps"] * len(part["block_s"]) <= part["ranks"][0]["steps"] - part["warmup_steps"]
        assert 0 < part["machine"]["own_cpus"] <= psutil.cpu_count()
        assert part["machine"]["memory_used_bytes"] > part["rss_bytes"] > 50e6
    # 64 rows of 5 fields have at most 320 ids; one process sends nothing.
    assert 64 < both["distinct_rows"] <= 320
    assert both["sent_bytes_per_step"] == 0
    assert both["parts"]["input"]["final_loss"] is None
    assert both["parts"]["input"]["input_wait_share"] > 0.9 > both["parts"]["compute"]["input_wait_share"]
    assert not (job.bases[0] / "model/model.json").exists()


def test_a_probe_that_knows_its_rate_ends_before_its_time(run_job: Callable[..., Any], dataset: Path) -> None:
    settings = {"strategy": "horovod", "workers_per_host": 2, "batch_size": 32, "probe": "both", "probe_precision": 0.9}
    started = time.monotonic()
    job = run_job(dataset, **settings, **{**MODEL, "steps": 100_000, "max_seconds": 100})
    assert job.wait() == [0], job.log()
    assert time.monotonic() - started < 60
    training = job.training()
    assert [rank["rank"] for rank in training["ranks"]] == [0, 1]
    assert training["ranks"][0]["steps"] == training["ranks"][1]["steps"]
    assert training["rank_skew"] >= 0
    # Dense gradients and rows pass through the host's memory: fewer bytes than all weights and every cell's row would be.
    assert 0 < training["sent_bytes_per_step"] < 1e6
