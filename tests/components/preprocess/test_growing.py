"""Vocabularies that grow: old ids stay, new tokens get new ids up to a limit, and older versions are known by what they encode."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from components.distributions import training_data
from components.drift import drift_of
from components.errors import InvalidConfig
from components.manifest import Manifest, read_manifest, read_split
from components.preprocess.config import PreprocessConfig
from components.preprocess.fitting import TransformConfig
from components.preprocess.step import preprocess
from components.preprocess.transform import Transform
from components.preprocess.transform_file import read_transform
from components.transforms import TRANSFORM, encoding_of, older_table, row_fields

COLUMNS = "label=click; categorical=country,device"
DAY_1 = "click,country,device\n" + "1,de,phone\n0,fr,phone\n" * 20
# To day 1, `us` (20 rows), `tv` (20), `it` (10) and `car` (2) are unseen.
DAY_2 = "click,country,device\n" + "1,us,phone\n0,de,tv\n" * 19 + "1,it,phone\n0,it,phone\n" * 5 + "1,us,car\n0,fr,tv\n"
DAY_3 = DAY_2 + "1,de,watch\n0,de,watch\n" * 9


def prepare(folder: Path, name: str, text: str, **settings: object) -> tuple[Path, Manifest]:
    """A dataset of a day whose rows all train but one."""
    (folder / f"{name}.csv").write_text(text)
    fitting = TransformConfig(categories="vocabulary", min_count=settings.pop("min_count", 1))  # type: ignore[arg-type]
    config = PreprocessConfig(format="csv", columns=COLUMNS, fitting=fitting, validation_fraction=1e-9, **settings)  # type: ignore[arg-type]
    out = folder / name
    return out, preprocess(config, [str(folder / f"{name}.csv")], out, folder / f"{name}.html")


@pytest.fixture
def day_1(tmp_path: Path) -> Path:
    return prepare(tmp_path, "day1", DAY_1)[0]


def train_ids(dataset: Path, manifest: Manifest) -> NDArray[np.int64]:
    return np.concatenate([batch.ids for batch in read_split(dataset, manifest, "train")])


def vocabularies(transform: Transform) -> list[dict[bytes, int]]:
    return [field.known for field in transform.categories]


def test_old_ids_stay_and_frequent_new_tokens_get_the_next_ones(tmp_path: Path, day_1: Path) -> None:
    before = read_transform(day_1 / TRANSFORM)
    # Missing 0 and 1; country: rare 2, de and fr 3 and 4; device: rare 5, phone 6.
    assert before.feature_size == 7
    out, manifest = prepare(tmp_path, "day2", DAY_2, transform=str(day_1 / TRANSFORM), grow_to=100, min_count=5)
    after = read_transform(out / TRANSFORM)
    for old, new in zip(vocabularies(before), vocabularies(after), strict=True):
        assert old.items() <= new.items()
    country, device = vocabularies(after)
    assert {token: country[token] for token in (b"us", b"it")} == {b"us": 7, b"it": 8}
    assert (device[b"tv"], b"car" in device) == (9, False)
    assert after.feature_size == manifest.schema.feature_size == 10
    assert row_fields(out, 2)[0].value(8) == "it"


def test_the_table_grows_up_to_its_limit_by_the_most_frequent_tokens_of_all_columns(tmp_path: Path, day_1: Path) -> None:
    out, manifest = prepare(tmp_path, "day2", DAY_2, transform=str(day_1 / TRANSFORM), grow_to=9)
    country, device = vocabularies(read_transform(out / TRANSFORM))
    assert (country[b"us"], device[b"tv"], b"it" in country, manifest.schema.feature_size) == (7, 8, False, 9)


def test_older_versions_have_the_rows_as_their_own_transform_gives_them(tmp_path: Path, day_1: Path) -> None:
    grown, _ = prepare(tmp_path, "day2", DAY_2, transform=str(day_1 / TRANSFORM), grow_to=9)
    again, manifest = prepare(tmp_path, "day3", DAY_3, transform=str(grown / TRANSFORM), grow_to=10)
    for older in (day_1, grown):
        own, own_manifest = prepare(tmp_path, f"by-{older.name}", DAY_3, transform=str(older / TRANSFORM))
        table = older_table(again, encoding_of(older))
        assert table is not None
        rows, expected = train_ids(again, manifest), train_ids(own, own_manifest)
        assert (rows != expected).any()
        np.testing.assert_array_equal(table.ids(rows), expected)
    assert older_table(day_1, encoding_of(again)) is None
    assert older_table(again, encoding_of(again)) is None


def test_drift_is_known_across_growth(tmp_path: Path, day_1: Path) -> None:
    grown, manifest = prepare(tmp_path, "day2", DAY_2, transform=str(day_1 / TRANSFORM), grow_to=9)
    plain, plain_manifest = prepare(tmp_path, "plain", DAY_2, transform=str(day_1 / TRANSFORM))
    trained_on = training_data(day_1, read_manifest(day_1))
    assert drift_of(grown, manifest, 1, trained_on) == drift_of(plain, plain_manifest, 1, trained_on)


def test_a_day_without_new_tokens_keeps_the_transform_to_the_byte(tmp_path: Path, day_1: Path) -> None:
    out, _ = prepare(tmp_path, "again", DAY_1, transform=str(day_1 / TRANSFORM), grow_to=100)
    assert (out / TRANSFORM).read_bytes() == (day_1 / TRANSFORM).read_bytes()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grow_to": 6}, r"grow_to 6: .* has 7 ids already"),
        ({"grow_to": 9, "transform": ""}, "say which transform grows"),
        ({"grow_to": -1}, "grow_to -1: must not be negative"),
    ],
)
def test_growth_that_makes_no_sense_is_refused(tmp_path: Path, day_1: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        prepare(tmp_path, "day2", DAY_2, **{"transform": str(day_1 / TRANSFORM), **settings})


def test_hashed_columns_have_nothing_to_grow(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(DAY_1)
    config = PreprocessConfig(format="csv", columns=COLUMNS)
    preprocess(config, [str(tmp_path / "day.csv")], tmp_path / "hashed", tmp_path / "report.html")
    with pytest.raises(InvalidConfig, match="no column of it has a vocabulary"):
        prepare(tmp_path, "day2", DAY_2, transform=str(tmp_path / "hashed" / TRANSFORM), grow_to=300_000)
