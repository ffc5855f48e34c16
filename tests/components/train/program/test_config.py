"""Hyperparameters, which SageMaker sends as strings: what they become, and what is refused by name."""

import json
from pathlib import Path

import pytest

from components.errors import InvalidConfig
from components.train.program.config import TrainConfig, parse_hyperparameters

CASE = Path(__file__).parents[5] / "shared" / "cases" / "23-hyperparameters-are-strings"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("batch_size", "1024", 1024),
        ("steps", "1e3", 1000),
        ("field_size", "39.0", 39),
        ("learning_rate", "5e-4", 0.0005),
        ("deep_layers", "[256, 128, 64]", (256, 128, 64)),
        ("deep_layers", "256,128,64", (256, 128, 64)),
        ("deep_layers", "[]", ()),
        ("ps_synchronous", "False", False),
        ("ps_synchronous", "false", False),
        ("ps_synchronous", "True", True),
        ("optimizer", "Adam", "adam"),
        ("optimizer", '"adagrad"', "adagrad"),
        ("seed", "0", 0),
    ],
)
def test_a_string_becomes_what_it_means(key: str, text: str, expected: object) -> None:
    assert getattr(parse_hyperparameters({key: text}), key) == expected


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"learning_rte": "5e-4"}, "hyperparameter learning_rte is unknown; did you mean learning_rate?"),
        ({"learning_rate": "0.1.2"}, "hyperparameter learning_rate '0.1.2': a finite number is expected"),
        ({"learning_rate": "nan"}, "hyperparameter learning_rate 'nan': a finite number is expected"),
        ({"learning_rate": ""}, "hyperparameter learning_rate '': a finite number is expected"),
        ({"batch_size": "0"}, "batch_size 0: at least 1 is needed"),
        ({"batch_size": "10.5"}, "hyperparameter batch_size '10.5': a whole number is expected"),
        ({"ps_synchronous": "maybe"}, "hyperparameter ps_synchronous 'maybe': true or false is expected"),
        ({f"key{number}": "1" for number in range(101)}, "101 hyperparameters: SageMaker takes at most 100"),
        ({"k" * 257: "1"}, f"hyperparameter {'k' * 40}...: a name of 257 characters, at most 256"),
        (
            {"kmp_affinity": "x" * 2501},
            "hyperparameter kmp_affinity: 2501 characters, at most 2500; put lists of files in a channel",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_hyperparameters(texts)
    assert reason in str(caught.value)


def test_the_longest_that_sagemaker_sends_is_read() -> None:
    assert parse_hyperparameters({"kmp_affinity": "x" * 2500}).kmp_affinity == "x" * 2500


@pytest.mark.skipif(not CASE.is_dir(), reason="../shared is not there")
def test_the_shared_hyperparameters() -> None:
    """Of their keys, those that this program has; the others are refused by name like any unknown one."""
    texts, expected = (json.loads((CASE / name).read_text()) for name in ("hyperparameters.json", "expected.json"))
    known = {key: text for key, text in texts.items() if key in TrainConfig.__dataclass_fields__ and text}
    assert {"batch_size", "learning_rate", "deep_layers", "feature_size", "field_size", "optimizer", "seed"} <= known.keys()
    config = parse_hyperparameters(known)
    for key in known:
        found, meant = getattr(config, key), expected[key]
        meant = 39 if key == "field_size" else meant.lower() if isinstance(meant, str) else meant
        assert (list(found) if isinstance(found, tuple) else found) == meant, key
    for key in texts.keys() - TrainConfig.__dataclass_fields__.keys():
        with pytest.raises(InvalidConfig, match=f"hyperparameter {key} is unknown"):
            parse_hyperparameters({key: texts[key]})


@pytest.mark.skipif(not CASE.is_dir(), reason="../shared is not there")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("typo.json", "learning_rte is unknown; did you mean learning_rate"),
        ("bad_number.json", "learning_rate '0.1.2'"),
        ("nan.json", "learning_rate 'nan'"),
        ("zero_batch.json", "batch_size 0"),
    ],
)
def test_the_shared_mistakes(name: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_hyperparameters(json.loads((CASE / name).read_text()))
    assert reason in str(caught.value)
