"""The preprocess step of the pipeline with a champion: by its transform, or the same rows by it beside the dataset."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from kfp import dsl

from components.champion import Champion, champion_model, write_champion
from components.errors import InvalidConfig
from components.manifest import read_manifest, read_split
from components.preprocess.component import preprocess as component
from components.preprocess.config import PreprocessConfig
from components.preprocess.step import preprocess
from components.preprocess.transform_file import read_transform
from components.transforms import TRANSFORM, encoding_of

COLUMNS = "label=click; categorical=country"
DAY_1 = "click,country\n" + "1,de\n0,fr\n" * 30
DAY_2 = "click,country\n" + "1,us\n0,de\n" * 30
SETTINGS = {"format": "csv", "columns": COLUMNS, "fitting": {"categories": "vocabulary", "min_count": 1}}
CARD = {
    "format_version": 1,
    "strategy": "single",
    "rank": 0,
    "world_size": 1,
    "step": 10,
    "examples": 1000,
    "field_size": 1,
    "id_base": 0,
    "data_digest": "d" * 64,
    "config": {},
    "parameter_checksum": "c" * 64,
    "ranks_agreed": True,
    "metrics": {"final_loss": 0.5},
}


class Place:
    """Two days of logs, a store, and the step of the pipeline."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, root / "models"
        self.dataset, self.champion_dataset = root / "out" / "dataset", root / "out" / "champion_dataset"
        for number, text in enumerate((DAY_1, DAY_2), 1):
            (root / f"day{number}.csv").write_text(text)

    def run(self, inputs: str, **settings: object) -> None:
        """The step, whose outputs are new as those of every run."""
        shutil.rmtree(self.root / "out", ignore_errors=True)
        kinds = {"dataset": dsl.Dataset, "champion_dataset": dsl.Dataset, "metrics": dsl.Metrics, "report": dsl.HTML}
        component.python_func(
            inputs=json.dumps([str(self.root / inputs)]),
            settings=json.dumps({**SETTINGS, **settings}),
            store=str(self.store),
            name="deepfm",
            data_limits="{}",
            run_date="",
            days=1,
            **{name: kind(name=name, uri=str(self.root / "out" / name)) for name, kind in kinds.items()},
        )

    def put_in_force(self) -> None:
        """A champion that was trained on the dataset that is there."""
        transform, weights = (self.dataset / TRANSFORM).read_bytes(), b"the weights of a champion"
        files = {"weights.npz": weights, TRANSFORM: transform}
        listed = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
        size = read_manifest(self.dataset).schema.feature_size
        card = json.dumps({**CARD, "feature_size": size, "files": listed})
        champion = Champion(
            name="deepfm",
            version=1,
            model_digest=hashlib.sha256(card.encode()).hexdigest(),
            data_digest="",
            auc=0.7,
            log_loss=0.6,
            promoted_at="2026-01-01T00:00:00+00:00",
            run_id="",
        )
        model = champion_model(self.store, champion)
        model.mkdir(parents=True)
        for name, data in {**files, "model.json": card.encode()}.items():
            (model / name).write_bytes(data)
        write_champion(self.store, champion)

    def why_empty(self) -> str:
        return (self.champion_dataset / "why-empty.txt").read_text()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_a_champion_its_transform_is_fitted(place: Place) -> None:
    place.run("day1.csv", transform="champion", grow_to=100)
    assert b"de" in read_transform(place.dataset / TRANSFORM).categories[0].known
    assert place.why_empty() == "no champion, or none that has a transform\n"


def test_the_champions_transform_grows_and_needs_no_other_dataset(place: Place) -> None:
    place.run("day1.csv")
    place.put_in_force()
    before = read_transform(place.dataset / TRANSFORM).categories[0].known
    place.run("day2.csv", transform="champion", grow_to=100)
    after = read_transform(place.dataset / TRANSFORM).categories[0].known
    # Missing 0, rare 1, de and fr 2 and 3.
    assert after == {**before, b"us": 4}
    assert place.why_empty().startswith("the champion's transform is that of the dataset, or an older version of it")


def test_where_ids_mean_something_else_the_same_rows_are_there_by_the_champions_transform(place: Place) -> None:
    place.run("day1.csv")
    place.put_in_force()
    champion = encoding_of(place.dataset)
    place.run("day2.csv")
    assert encoding_of(place.dataset) != champion == encoding_of(place.champion_dataset)
    ours, theirs = (read_manifest(folder) for folder in (place.dataset, place.champion_dataset))
    assert [shard.examples for shard in ours.validation.shards] == [shard.examples for shard in theirs.validation.shards]
    labels = [
        np.concatenate([batch.labels for batch in read_split(folder, manifest, "validation")])
        for folder, manifest in ((place.dataset, ours), (place.champion_dataset, theirs))
    ]
    np.testing.assert_array_equal(*labels)


def test_a_champion_of_other_columns_gets_no_rows(place: Place) -> None:
    place.run("day1.csv")
    place.put_in_force()
    (place.root / "wide.csv").write_text("click,country,device\n" + "1,us,tv\n0,de,tv\n" * 30)
    place.run("wide.csv", columns=f"{COLUMNS},device")
    assert place.why_empty() == "the champion's transform is of other columns\n"


def test_the_step_alone_knows_no_store(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(DAY_1)
    with pytest.raises(InvalidConfig, match="transform champion: a run of the pipeline knows the store"):
        preprocess(
            PreprocessConfig(format="csv", columns=COLUMNS, transform="champion"),
            [str(tmp_path / "day.csv")],
            tmp_path / "out",
            tmp_path / "r",
        )
