"""A training that starts warm begins with the champion's weights, in every strategy, and with nothing else of it."""

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.errors import WorkflowError
from components.records import Schema
from components.train.program import checkpoint
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.division import Division, Share
from components.train.program.embedding import initial_table
from components.train.program.input import Source
from components.train.program.model import make_model
from components.train.program.resumption import GLOBAL_BATCH, resume
from components.train.program.single import Single
from components.train.program.warm_start import WarmStart, start_warm

FIELDS, OLD_ROWS, ROWS = 5, 1500, 2000
SETTINGS: dict[str, Any] = {"embedding_size": 8, "deep_layers": (16,), "learning_rate": 0.01, "seed": 5}


def write_champion(folder: Path, rows: int = OLD_ROWS, **settings: Any) -> dict[str, Any]:
    """A model folder as far as a warm start reads it; its weights by name."""
    config = TrainConfig(**{**SETTINGS, "batch_norm": True, **settings})
    model, draw = make_model(config, FIELDS, 0.3), np.random.default_rng(8)
    arrays = {f"dense_{index}": value + 0.1 for index, value in enumerate(model.initial_dense())}
    arrays["table"] = 0.1 * draw.standard_normal((rows, model.row_width)).astype(np.float32)
    folder.mkdir(parents=True)
    np.savez(folder / "weights.npz", **arrays)
    digest = hashlib.sha256((folder / "weights.npz").read_bytes()).hexdigest()
    card = {
        "config": asdict(config),
        "field_size": FIELDS,
        "feature_size": rows,
        "id_base": 0,
        "parameter_checksum": "c0ffee",
        "files": {"weights.npz": {"sha256": digest}},
    }
    (folder / "model.json").write_text(json.dumps(card))
    return arrays


def single(config: TrainConfig, source: Source) -> Single:
    return Single(config, source, make_model(config, source.field_size, source.click_rate))


@pytest.mark.parametrize(
    ("hosts", "settings"),
    [
        (1, {"strategy": "horovod", "workers_per_host": 2, "batch_size": 32, "embedding_placement": "sharded"}),
        (2, {"strategy": "parameter_server", "batch_size": 32, "ps_synchronous": True}),
    ],
    ids=["horovod-sharded", "parameter-servers"],
)
def test_a_grown_table_keeps_the_champions_rows_and_begins_the_new_ones_afresh(
    run_job: Callable[..., Any],
    dataset: Path,
    alone: Callable[..., Any],
    tmp_path: Path,
    hosts: int,
    settings: dict[str, Any],
) -> None:
    weights = write_champion(tmp_path / "champion", batch_norm=False)
    learned = {**SETTINGS, "deep_layers": "[16]", "steps": 10}
    job = run_job(dataset, hosts, champion=tmp_path / "champion", warm_start=True, **learned, **settings)
    assert job.wait() == [0] * hosts, job.log()

    def write_over(fresh: Single) -> None:
        """The same by hand, in a single process."""
        fresh.table[:OLD_ROWS, :9].assign(weights["table"])
        for index, variable in enumerate(fresh.dense):
            variable.assign(weights[f"dense_{index}"])

    np.testing.assert_allclose(job.losses(), alone(write_over, **learned, batch_size=64).losses, rtol=1e-4)
    assert job.training()["warm_start"] == {"rows_kept": 1500, "rows_new": 500, "champion_checksum": "c0ffee"}
    assert "warm start from champion c0ffee: 1500 rows kept, 500 new" in job.log()


SCHEMA = Schema(field_size=FIELDS, feature_size=ROWS)


@pytest.mark.parametrize("optimizer", ["adam", "ftrl", "momentum"])
def test_slots_and_step_begin_anew(tmp_path: Path, optimizer: Any) -> None:
    weights = write_champion(tmp_path / "champion")
    config = TrainConfig(**SETTINGS, batch_norm=True, optimizer=optimizer)
    source = Source(files=(), examples=64, field_size=FIELDS, feature_size=ROWS, click_rate=0.3, encoding="blocks")
    fresh = single(config, source).state()
    model = make_model(config, FIELDS, 0.3)
    state, warm = start_warm(tmp_path / "champion", config, SCHEMA, model, {name: v.shape for name, v in fresh.items()})
    assert warm == WarmStart(rows_kept=1500, rows_new=500, champion_checksum="c0ffee")
    assert state.keys() == fresh.keys()
    for name, value in state.items():
        expected = weights.get(name, fresh[name])
        if name == "table":
            expected = initial_table(config, model.row_width, 0, ROWS)
            expected[:OLD_ROWS, : model.row_width] = weights["table"]
        np.testing.assert_array_equal(value, expected, err_msg=name)


def test_the_bias_begins_at_the_odds_that_this_training_sees(tmp_path: Path) -> None:
    """Of 1 click in 101 rows, the champion saw 1 in 11, with a tenth of the other 100; this training sees 1 in 51, with half."""
    weights = write_champion(tmp_path / "champion", batch_norm=False)
    weights["dense_0"][:] = np.log(1 / 10)
    np.savez(tmp_path / "champion/weights.npz", **weights)
    card = json.loads((tmp_path / "champion/model.json").read_text())
    digest = hashlib.sha256((tmp_path / "champion/weights.npz").read_bytes()).hexdigest()
    card |= {"files": {"weights.npz": {"sha256": digest}}, "negative_sampling_rate": 0.1}
    (tmp_path / "champion/model.json").write_text(json.dumps(card))
    config = TrainConfig(**SETTINGS)
    source = Source(files=(), examples=64, field_size=FIELDS, feature_size=ROWS, click_rate=1 / 51, encoding="blocks")
    shapes = {name: value.shape for name, value in single(config, source).state().items()}
    state, _ = start_warm(tmp_path / "champion", config, SCHEMA, make_model(config, FIELDS, 1 / 51), shapes, negative_rate=0.5)
    assert state["dense_0"] == pytest.approx(np.log(1 / 50), abs=1e-6)
    np.testing.assert_array_equal(state["dense_1"], weights["dense_1"])


def test_a_checkpoint_comes_before_the_champion(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_champion(tmp_path / "input/data/champion")
    config = TrainConfig(**SETTINGS, batch_norm=True, batch_size=64, warm_start=True)
    source = Source(files=(), examples=640, field_size=FIELDS, feature_size=ROWS, click_rate=0.3, encoding="blocks")
    container = Container(base=tmp_path, hosts=("algo-1",), current_host="algo-1", network_interface="lo")
    share = Share(place="here", shards=(0,), rows=640, readers=1, index=0)
    division = Division(
        rank=0, size=1, batch_size=64, steps=10, steps_per_epoch=10, used=640, left_out=0, repeated=0, shares=(share,)
    )
    interrupted, model = single(config, source), make_model(config, FIELDS, 0.3)
    interrupted.dense[0].assign([7.0])
    checkpoint.write(container.checkpoints, 4, {**interrupted.state(), GLOBAL_BATCH: np.array(64)}, 1)
    resumed = single(config, source)
    with caplog.at_level(logging.INFO):
        assert resume(container, config, SCHEMA, model, resumed, division) == (4, None)
    assert resumed.dense[0].numpy().tolist() == [7.0]
    assert "which comes before the champion" in caplog.text


@pytest.mark.parametrize(
    ("champion", "ours", "reason"),
    [
        ({"rows": 2001}, {}, "table (2001, 9) in the champion, (2000, 9) in this model; a vocabulary may grow, not shrink"),
        ({"embedding_size": 4}, {}, "embedding_size 4 in the champion, 8 in this training"),
        ({"deep_layers": (16, 8)}, {}, "deep_layers [16, 8] in the champion, [16] in this training"),
        ({"model": "wide_and_deep"}, {}, "model wide_and_deep in the champion, deepfm in this training"),
        ({}, {"batch_norm": False}, "9 dense weights in the champion, 5 in this model"),
        (
            {"model": "dcn_v2", "cross_rank": 2},
            {"model": "dcn_v2", "cross_rank": 3},
            "cross_0_down (40, 2) in the champion, (40, 3) in this model",
        ),
    ],
    ids=["shrunken", "embedding-size", "layers", "model", "batch-norm", "rank"],
)
def test_a_champion_that_does_not_fit_is_refused_naming_what_differs_and_both(
    tmp_path: Path, champion: dict[str, Any], ours: dict[str, Any], reason: str
) -> None:
    write_champion(tmp_path / "champion", **champion)
    config = TrainConfig(**{**SETTINGS, "batch_norm": True, **ours})
    with pytest.raises(WorkflowError) as caught:
        start_warm(tmp_path / "champion", config, SCHEMA, make_model(config, FIELDS, 0.3), {})
    assert reason in str(caught.value)


def test_a_damaged_or_missing_champion_is_refused_by_file(tmp_path: Path) -> None:
    config = TrainConfig(**SETTINGS)
    model = make_model(config, FIELDS, 0.3)
    with pytest.raises(WorkflowError, match=r"model\.json: missing; warm_start needs a channel champion"):
        start_warm(tmp_path / "champion", config, SCHEMA, model, {})
    write_champion(tmp_path / "champion")
    with (tmp_path / "champion/weights.npz").open("ab") as file:
        file.write(b"more")
    with pytest.raises(WorkflowError, match=r"weights\.npz: damaged"):
        start_warm(tmp_path / "champion", config, SCHEMA, model, {})
