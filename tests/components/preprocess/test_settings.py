"""The settings as the text that a pipeline hands on: the same settings come out, and nothing of the user's machine is needed."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.errors import InvalidConfig
from components.preprocess.columns import read_columns
from components.preprocess.config import PreprocessConfig
from components.preprocess.fitting import TransformConfig
from components.preprocess.settings import read_settings, settings_text


@pytest.mark.parametrize(
    "settings",
    [
        {"format": "criteo"},
        {"format": "libsvm", "feature_size": 2**31 - 1, "seed": 2**32 - 1, "on_bad_row": "skip", "max_bad_rows": 3},
        {"format": "libffm", "field_base": 1, "values_per_field": 2, "validation_fraction": 0.25, "encoding": "examples"},
    ],
)
def test_settings_come_out_as_they_went_in(settings: dict[str, Any]) -> None:
    config = PreprocessConfig(**settings)
    assert read_settings(settings_text(config)) == config


def test_columns_are_read_at_once_and_the_file_is_not_needed_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"label": "été", "numeric": ['it\'s; "odd"'], "multi_valued": [{"name": "t", "separator": "|", "values": 2}]}
    (tmp_path / "columns.json").write_text(json.dumps(document))
    declared = read_columns(str(tmp_path / "columns.json"))
    fitting = TransformConfig(categories="vocabulary", numbers="bucket", buckets=7)
    config = PreprocessConfig(
        format="csv", columns=str(tmp_path / "columns.json"), separator="\t", names=("a", "b"), transform="t.json", fitting=fitting
    )
    monkeypatch.chdir(tmp_path)
    text = settings_text(config)
    (tmp_path / "columns.json").unlink()
    found = read_settings(text)
    assert read_columns(found.columns) == declared
    assert (found.separator, found.names, found.fitting) == ("\t", ("a", "b"), fitting)
    # A transform may be as large as a vocabulary: its path travels, whole.
    assert found.transform == str(tmp_path / "t.json")


def test_columns_that_cannot_be_read_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no such file"):
        settings_text(PreprocessConfig(format="csv", columns=str(tmp_path / "none.json")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("criteo", "preprocessing 'criteo': not JSON"),
        ("{}", "preprocessing: no format"),
        ('{"format": "criteo", "colums": ""}', "preprocessing: 'colums' is unknown; did you mean columns?"),
        ('{"format": "criteo", "shards": 2.5}', "preprocessing: shards 2.5 is not int"),
        ('{"format": "crite"}', "preprocessing: format 'crite' is not one of criteo, libsvm, "),
        ('{"format": "criteo", "workers": 0}', "workers 0: at least 1 is needed"),
        ('{"format": "csv", "columns": "label=y; numeric=a", "fitting": {"bucket": 3}}', "fitting: 'bucket' is unknown"),
    ],
)
def test_other_texts_are_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_settings(text)
    assert reason in str(caught.value)
