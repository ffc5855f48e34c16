"""A plan survives its file unchanged, and a file that is not a plan is refused by name."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from components.errors import InvalidConfig
from components.plan import (
    STRATEGIES,
    CrossDevice,
    Device,
    ModelSettings,
    Plan,
    Ranked,
    Rung,
    Strategy,
    Threads,
    direct_plan,
    hyperparameters,
)
from components.plan_file import read_plan, write_plan
from components.traffic import Placement

RUNG = Rung(name="threads", decision="default threads", measured="100 examples/s", beat="90 with one thread", passed=True)

RANKED = Ranked(
    description="horovod with 2 hosts of ml.c7i.4xlarge",
    strategy="horovod",
    instance_type="ml.c7i.4xlarge",
    instance_count=2,
    workers_per_host=1,
    examples_per_s=100.0,
    low=50.0,
    high=200.0,
    epoch_s=400.0,
    epoch_usd=0.1,
    frontier=True,
    rests_on_a_guess=True,
    basis="16 vCPUs of a newer generation",
    refused="",
)


def test_a_plan_is_the_same_after_its_file(tmp_path: Path) -> None:
    plan = replace(
        direct_plan("horovod", ModelSettings(deep_layers=(16, 8)), threads=Threads(intra_op=1, kmp_affinity="disabled")),
        predicted_examples_per_s=100.0,
        alternatives=("ml.c6i.4xlarge", "ml.c5.4xlarge"),
        rungs=(RUNG,),
        ranking=(RANKED, replace(RANKED, epoch_usd=None)),
    )
    write_plan(tmp_path / "plan.json", plan)
    assert read_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("strategy", "tower_of_babel", "tower_of_babel"),
        ("stratgy", "single", "stratgy"),
        ("batch_size", "1024", "batch_size"),
        ("batch_size", True, "batch_size"),
        ("batch_size", 0, "batch_size"),
        ("learning_rate", -1.0, "learning_rate"),
        ("learning_rate", float("nan"), "learning_rate"),
        ("learning_rate_factor", 0.0, "learning_rate_factor"),
        ("deep_layers", [128, "64"], "deep_layers"),
        ("deep_layers", 128, "deep_layers"),
        ("input_mode", "Pipes", "input_mode"),
        ("instance_count", 2, "single"),
        ("alternatives", "ml.c6i.4xlarge", "alternatives"),
        ("alternatives", [4], "alternatives [4] must hold texts"),
        ("encoding", "csv", "choose one of nothing, blocks, examples, libsvm"),
        ("embedding_placement", "everywhere", "embedding_placement"),
        ("towers", 2, "single does not split its batch"),
        ("predicted_low", -1.0, "predicted_low"),
        ("epoch_usd", float("inf"), "epoch_usd"),
        ("ranking", {}, "ranking must be a list"),
        ("ranking", [{"strategy": "single"}], "instance_type"),
        ("rungs", [{"name": "threads"}], "measured"),
        ("format_version", 2, "format_version"),
    ],
)
def test_a_wrong_value_is_refused_with_file_and_name(tmp_path: Path, key: str, value: Any, named: str) -> None:
    path = tmp_path / "plan.json"
    write_plan(path, direct_plan("single", ModelSettings()))
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(InvalidConfig) as error:
        read_plan(path)
    assert str(path) in str(error.value)
    assert named in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match=r"plan\.json"):
        read_plan(path)


def test_a_missing_plan_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="ctrflow select"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("strategy", "hosts", "workers_per_host", "workers", "batch_of_a_worker"),
    [
        ("single", None, None, 1, 1024),
        ("tower", None, None, 1, 1024),
        ("mirrored", None, None, 1, 1024),
        ("horovod", None, None, 2, 512),
        ("horovod", None, 4, 4, 256),
        ("horovod", 2, None, 2, 512),
        ("horovod", 2, 2, 4, 256),
        # Asynchronous: every update is one worker's, so it keeps the size that the settings ask for.
        ("parameter_server", None, None, 2, 1024),
        ("parameter_server", 1, None, 1, 1024),
    ],
)
def test_workers_and_batches(
    strategy: Any, hosts: int | None, workers_per_host: int | None, workers: int, batch_of_a_worker: int
) -> None:
    plan = direct_plan(strategy, ModelSettings(batch_size=1024), hosts=hosts, workers_per_host=workers_per_host)
    assert (plan.workers, plan.batch_size) == (workers, batch_of_a_worker)
    assert plan.settings() == ModelSettings(batch_size=1024)


def test_a_batch_that_workers_cannot_share_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="1023"):
        direct_plan("horovod", ModelSettings(batch_size=1023))


@pytest.mark.parametrize(("strategy", "factor"), [("single", 1.0), ("tower", 1.0), ("horovod", 0.5), ("parameter_server", 0.5)])
def test_the_learning_rate_gets_the_factor_that_was_set_and_no_other(strategy: Any, factor: float) -> None:
    settings = ModelSettings(learning_rate=0.001)
    assert direct_plan(strategy, settings).learning_rate_factor == 1.0
    plan = direct_plan(strategy, replace(settings, learning_rate_factor=0.5))
    assert (plan.learning_rate, plan.learning_rate_factor) == (0.001, factor)
    texts = hyperparameters(plan)
    assert (float(texts["learning_rate"]), float(texts["learning_rate_factor"])) == (0.001, factor)


@pytest.mark.parametrize(
    ("strategy", "workers_per_host"),
    [("single", 2), ("parameter_server", 2)],
)
def test_impossible_counts_are_refused(strategy: Any, workers_per_host: int) -> None:
    with pytest.raises(InvalidConfig, match=strategy.split("_")[0]):
        Plan(strategy=strategy, workers_per_host=workers_per_host)


def test_hyperparameters_are_strings_that_mean_the_plan() -> None:
    plan = direct_plan("horovod", ModelSettings(learning_rate=5e-4, deep_layers=(128, 64)), threads=Threads(intra_op=1), steps=50)
    texts = hyperparameters(plan, probe="both", max_seconds=2.5)
    assert all(isinstance(text, str) for text in texts.values())
    assert (texts["strategy"], texts["batch_size"], texts["steps"], texts["workers_per_host"]) == ("horovod", "512", "50", "2")
    assert float(texts["learning_rate"]) == 5e-4
    assert json.loads(texts["deep_layers"]) == [128, 64]
    assert (texts["intra_op_threads"], texts["probe"], float(texts["max_seconds"])) == ("1", "both", 2.5)


def test_the_training_program_accepts_every_hyperparameter() -> None:
    from components.train.program.config import parse_hyperparameters

    settings = ModelSettings(
        learning_rate=0.1 + 0.2, learning_rate_factor=0.25, deep_layers=(7,), optimizer="sgd", seed=5, warmup_steps=3, epochs=2
    )
    plan = direct_plan("horovod", settings, threads=Threads(intra_op=2, inter_op=3, omp=4, kmp_affinity="disabled"), steps=9)
    config = parse_hyperparameters(hyperparameters(plan, probe="compute", max_seconds=1.5))
    assert config.learning_rate_factor == plan.learning_rate_factor == 0.25
    for name in ("strategy", "batch_size", "learning_rate", "deep_layers", "optimizer", "seed", "warmup_steps", "epochs", "steps"):
        assert getattr(config, name) == getattr(plan, name)
    assert (config.intra_op_threads, config.inter_op_threads, config.omp_threads, config.kmp_affinity) == (2, 3, 4, "disabled")
    assert (config.probe, config.max_seconds) == ("compute", 1.5)


def test_a_batch_that_towers_cannot_share_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="1023: must be a multiple of the 2 towers"):
        direct_plan("tower", ModelSettings(batch_size=1023))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_training_program_knows_every_strategy(strategy: Strategy) -> None:
    from components.train.program.config import parse_hyperparameters

    config = parse_hyperparameters(hyperparameters(direct_plan(strategy, ModelSettings())))
    assert (config.strategy, config.tower_count) == (strategy, 2 if strategy in ("tower", "mirrored") else 1)


def test_choices_are_those_of_the_training_program() -> None:
    from components.train.program import config

    theirs = (config.StrategyName, config.PlacementName, config.DeviceName, config.CrossDeviceName)
    for ours, theirs_one in zip((Strategy, Placement, Device, CrossDevice), theirs, strict=True):
        assert set(get_args(ours)) == set(get_args(theirs_one))
