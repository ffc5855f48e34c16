"""Fitting and applying: expected ids and values worked out by hand, counts that merge in any order, files that notice damage."""

import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess import fitting
from components.preprocess.columns import Columns, MultiValued
from components.preprocess.criteo import CRITEO
from components.preprocess.fitting import Counting, Counts, Fitting, TransformConfig, nothing_counted
from components.preprocess.keys import row_keys
from components.preprocess.moments import exact_sum, quantile_edges
from components.preprocess.raw_rows import rows_from_cells
from components.preprocess.transform import Applied, Transform, apply
from components.preprocess.transform_file import encoding_digest, read_transform, transform_digest, write_transform
from components.records import Schema, check_batch
from components.transforms import encoding_of

COLUMNS = Columns(label="y", numeric=("n",), categorical=("c",), multi_valued=(MultiValued(name="t", values=3),))
Row = tuple[float, float | None, str | None, list[str] | None]
DAY_1: list[Row] = [
    (1.0, 1.0, "a", ["x", "y"]),
    (0.0, 2.0, "b", ["x"]),
    (0.0, 3.0, "a", None),
    (0.0, None, None, ["x", "z", "y"]),
    (1.0, 4.0, "c", ["z"]),
]
DAY_2: list[Row] = [(1.0, 2.5, "b", ["z", "new"]), (0.0, None, "new", None), (0.0, -7.0, None, ["x", "y", "x"])]


def batch(rows: list[Row], columns: Columns = COLUMNS) -> pa.RecordBatch:
    return rows_from_cells(list(zip(*rows, strict=True)) if rows else [()] * 4, columns)


def counted(fit: Fitting, rows: list[Row], first: int = 0) -> Counts:
    return fit.count(batch(rows, fit.columns), row_keys(1, 0, np.arange(first, first + len(rows))))


def fitted(rows: list[Row] = DAY_1, **settings: Any) -> Transform:
    fit = Fitting(columns=COLUMNS, config=TransformConfig(**settings))
    return fit.fit(fit.merge([counted(fit, rows)]))


def test_a_vocabulary_has_frequent_tokens_first_and_ties_by_token() -> None:
    transform = fitted(categories="vocabulary", min_count=2)
    c, t = transform.categories
    # Ids: n 0, missing 1; missing of c and t 2, 3; c: rare 4, a 5; t: rare 6, x (3 rows) 7, y and z (2 rows) 8, 9.
    assert (c.missing, c.rare, c.first, c.vocabulary, c.distinct) == (2, 4, 5, ("a",), 3)
    assert (t.missing, t.rare, t.first, t.vocabulary, t.distinct) == (3, 6, 7, ("x", "y", "z"), 3)
    assert (transform.feature_size, transform.field_size, transform.rows) == (10, 5, 5)
    found = apply(transform, batch(DAY_2))
    assert found.rows.ids.tolist() == [[0, 4, 9, 6, 3], [1, 4, 3, 3, 3], [0, 2, 7, 8, 7]]
    assert found.rows.labels.tolist() == [1, 0, 0]
    np.testing.assert_allclose(
        found.rows.values, [[math.log(3.5), 1, 1, 1, 0], [1, 1, 1, 0, 0], [-math.log(8), 1, 1, 1, 1]], rtol=1e-6
    )
    assert found.missing.tolist() == [1, 1, 1]
    assert found.unseen.tolist() == [0, 2, 1]


def test_a_vocabulary_may_be_cut() -> None:
    transform = fitted(categories="vocabulary", min_count=1, max_size=2)
    assert [field.vocabulary for field in transform.categories] == [("a", "b"), ("x", "y")]


def test_hashed_columns_share_their_ids_and_each_has_its_own_salt() -> None:
    transform = fitted(hash_size=100)
    c, t = transform.categories
    assert (c.missing, t.missing, c.first, t.first, transform.feature_size) == (2, 3, 4, 4, 104)
    found = apply(transform, batch(DAY_2))
    # 4 + XXH64 % 100 of b with seed 0, of z and new with seed 1, by the xxhash package of Python.
    assert found.rows.ids[0, 1:].tolist() == [59, 87, 6, 3]
    assert found.unseen.tolist() == [0, 0, 0]
    assert apply(transform, batch([(0.0, 0.0, "b", ["b"])])).rows.ids[0, 1:3].tolist() == [59, 20]


def test_ids_of_criteo_are_those_that_the_readme_documents() -> None:
    """The row followed through in components/preprocess/README.md; XXH64 of the tokens by the xxhash package of Python."""
    fit = Fitting(columns=CRITEO)
    assert not fit.counts_rows
    cells: list[list[Any]] = [[1.0], [5.0], [None], [-2.0], [0.0], [1382.0], *[[None]] * 8]
    cells += [["68fd1e64"], ["80e26c9b"], *[[None]] * 24]
    transform = fit.fit(nothing_counted(CRITEO))
    found = apply(transform, rows_from_cells(cells, CRITEO)).rows
    assert transform.feature_size == 200_052
    assert found.ids[0, :5].tolist() == [0, 3, 4, 6, 8]
    np.testing.assert_allclose(found.values[0, :5], [1.7918, 1, -1.0986, 0, 7.2320], atol=5e-5)
    tokens = [0x5D3CCD85C9C22FE4, 0xD1540616D053418F]
    assert found.ids[0, 13:16].tolist() == [52 + tokens[0] % 200_000, 52 + tokens[1] % 200_000, 28] == [28568, 198147, 28]


@pytest.mark.parametrize(
    ("numbers", "values"),
    # n is 1, 2, 3, 4: mean 2.5, standard deviation sqrt(5/4).
    [
        ("standard", [0.0, 1.0, -9.5 / math.sqrt(1.25)]),
        ("min_max", [0.5, 1.0, -8 / 3]),
        ("log", [math.log(3.5), 1.0, -math.log(8)]),
    ],
)
def test_numbers_are_scaled_by_what_training_rows_hold(numbers: str, values: list[float]) -> None:
    found = apply(fitted(numbers=numbers), batch(DAY_2)).rows
    np.testing.assert_allclose(found.values[:, 0], values, rtol=1e-6)
    assert found.ids[:, 0].tolist() == [0, 1, 0]


def test_buckets_hold_as_many_training_rows_each() -> None:
    transform = fitted(numbers="bucket", buckets=2)
    assert transform.numbers[0].edges == (3.0,)
    assert (transform.numbers[0].first, transform.numbers[0].missing, transform.categories[0].missing) == (0, 2, 3)
    found = apply(transform, batch([*DAY_1, (0.0, 99.0, None, None)])).rows
    assert found.ids[:, 0].tolist() == [0, 0, 1, 2, 1, 1]
    assert found.values[:, 0].tolist() == [1] * 6


@pytest.mark.parametrize(
    ("numbers", "buckets", "edges"),
    [
        ([], 4, ()),
        ([math.nan], 4, ()),
        ([5.0, 5.0, 5.0], 4, ()),
        ([1.0, 2.0, 3.0, 4.0], 4, (2.0, 3.0, 4.0)),
        ([4.0, 3.0, math.nan, 2.0, 1.0], 2, (3.0,)),
        ([0.0] * 90 + [1.0] * 10, 4, ()),
        ([0.0] * 60 + [1.0] * 40, 4, (1.0,)),
    ],
)
def test_edges(numbers: list[float], buckets: int, edges: tuple[float, ...]) -> None:
    assert quantile_edges(np.array(numbers, np.float64), buckets) == edges


def test_edges_of_a_sample_are_those_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "SAMPLED_ROWS", 4000)
    columns = Columns(label="y", numeric=("n",))
    fit = Fitting(columns=columns, config=TransformConfig(numbers="bucket", buckets=4))
    numbers = np.random.default_rng(1).permutation(100_000).astype(np.float64)
    parts = [
        fit.count(rows_from_cells([np.zeros(len(part)), numbers[part]], columns), row_keys(5, 0, part))
        for part in np.array_split(np.arange(100_000), 7)
    ]
    assert len(fit.merge(parts).keys) == 4000
    np.testing.assert_allclose(fit.fit(fit.merge(parts)).numbers[0].edges, [25_000, 50_000, 75_000], atol=3000)


@given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32) | st.floats(-1e38, 1e38)))
def test_sums_are_exact(numbers: list[float]) -> None:
    assert Fraction(exact_sum(np.array(numbers, np.float64)), 1 << 1126) == sum(map(Fraction, numbers), Fraction(0))


@given(st.lists(st.floats(-1e38, 1e38), min_size=2))
def test_mean_and_deviation_are_those_of_the_statistics_module(numbers: list[float]) -> None:
    columns = Columns(label="y", numeric=("n",))
    fit = Fitting(columns=columns, config=TransformConfig(numbers="standard"))
    rows = rows_from_cells([[0.0] * len(numbers), numbers], columns)
    field = fit.fit(fit.count(rows, np.zeros(len(numbers), np.uint64))).numbers[0]
    assert field.shift == pytest.approx(statistics.fmean(numbers), rel=1e-12)
    deviation = statistics.pstdev(numbers)
    if deviation > 1e-6 * abs(field.shift) and deviation > 1e-150:
        assert field.scale == pytest.approx(deviation, rel=1e-3)
    assert field.scale > 0


ROW = st.tuples(
    st.sampled_from([0.0, 1.0]),
    st.none() | st.floats(-1e30, 1e30),
    st.none() | st.text(st.sampled_from("ab東"), min_size=1, max_size=2),
    st.none() | st.lists(st.text(st.sampled_from("xyz"), min_size=1, max_size=2), min_size=1, max_size=3),
)
CONFIG = st.builds(
    TransformConfig,
    categories=st.sampled_from(["hash", "vocabulary"]),
    hash_size=st.integers(1, 50),
    min_count=st.integers(1, 3),
    max_size=st.integers(0, 4),
    numbers=st.sampled_from(["log", "bucket", "standard", "min_max"]),
    buckets=st.integers(2, 6),
)


@pytest.fixture(scope="module", params=[10, None], ids=["sampled", "whole"])
def samples(request: pytest.FixtureRequest) -> Iterator[None]:
    """With a bound so low that ten rows reach it, and with the one that is set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "SAMPLED_ROWS", request.param or fitting.SAMPLED_ROWS)
        yield


@given(rows=st.lists(ROW, min_size=1, max_size=40), config=CONFIG, data=st.data())
def test_counts_merge_in_any_order_and_grouping(
    samples: None, rows: list[Row], config: TransformConfig, data: st.DataObject
) -> None:
    fit = Fitting(columns=COLUMNS, config=config)
    edges = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    bounds = list(zip([0, *edges], [*edges, len(rows)], strict=True))
    parts = data.draw(st.permutations([counted(fit, rows[start:end], start) for start, end in bounds]))
    whole = fit.fit(counted(fit, rows))
    middle, counting = len(parts) // 2, Counting(fitting=fit)
    for part in parts:
        counting.add(part)
    for merged in (fit.merge(parts), fit.merge([fit.merge(parts[:middle]), fit.merge(parts[middle:])]), counting.total()):
        assert merged is not None
        assert merged.rows == len(rows)
        assert transform_digest(fit.fit(merged)) == transform_digest(whole)


@given(rows=st.lists(ROW, min_size=1, max_size=20), later=st.lists(ROW, max_size=20), config=CONFIG)
def test_any_later_row_is_one_that_a_model_can_read(rows: list[Row], later: list[Row], config: TransformConfig) -> None:
    fit = Fitting(columns=COLUMNS, config=config)
    transform = fit.fit(counted(fit, rows))
    found: Applied = apply(transform, batch([*later, *rows]))
    check_batch(found.rows, Schema(field_size=transform.field_size, feature_size=transform.feature_size), "later")
    alone = [apply(transform, batch([row])).rows for row in [*later, *rows]]
    np.testing.assert_array_equal(found.rows.ids, np.concatenate([each.ids for each in alone]))
    np.testing.assert_array_equal(found.rows.values, np.concatenate([each.values for each in alone]))


def test_a_vocabulary_has_a_bound() -> None:
    fit = Fitting(columns=COLUMNS, config=TransformConfig(categories="vocabulary"), most_tokens=5)
    with pytest.raises(InvalidRecords, match=r"column 'c': more than 5 distinct tokens in all columns, 3 of them here; hash the"):
        fit.merge([counted(fit, DAY_1)])
    Fitting(columns=COLUMNS, config=TransformConfig(categories="vocabulary"), most_tokens=6).merge([counted(fit, DAY_1)])


@pytest.mark.parametrize("settings", [{"categories": "vocabulary"}, {"numbers": "standard"}, {"numbers": "bucket"}])
def test_no_rows_fit_nothing(settings: dict[str, Any]) -> None:
    fit = Fitting(columns=COLUMNS, config=TransformConfig(**settings))
    assert fit.counts_rows
    with pytest.raises(InvalidRecords, match="0 training rows"):
        fit.fit(fit.merge([]))
    assert Counting(fitting=fit).total() is None
    assert apply(fitted(), batch([])).rows.ids.shape == (0, 5)


def test_a_table_has_a_largest_size() -> None:
    with pytest.raises(InvalidRecords, match=r"feature_size 2147483651: at most 2147483647 ids"):
        fitted(hash_size=2**31 - 1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"categories": "one-hot"}, "categories 'one-hot' is none of hash, vocabulary"),
        ({"numbers": "sqrt"}, "numbers 'sqrt' is none of log, bucket, standard, min_max"),
        ({"hash_size": 0}, "hash_size 0: must be in 1.."),
        ({"min_count": 0}, "min_count 0"),
        ({"max_size": -1}, "max_size -1"),
        ({"buckets": 1}, "buckets 1: must be in 2.."),
    ],
)
def test_settings(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        TransformConfig(**settings)
    assert str(caught.value).startswith(reason)


def test_tokens_that_are_not_utf_8_are_kept_as_they_are(tmp_path: Path) -> None:
    columns = Columns(label="y", categorical=("c",))
    fit = Fitting(columns=columns, config=TransformConfig(categories="vocabulary", min_count=1))
    rows = pa.RecordBatch.from_arrays([pa.array([1.0, 0.0]), pa.array([b"\xff\xfe", b"ok"], pa.binary())], ["y", "c"])
    write_transform(tmp_path / "transform.json", fit.fit(fit.count(rows, np.zeros(2, np.uint64))))
    assert apply(read_transform(tmp_path / "transform.json"), rows).rows.ids.tolist() == [[3], [2]]


@pytest.mark.parametrize("numbers", ["bucket", "standard"])
@pytest.mark.parametrize("categories", ["hash", "vocabulary"])
def test_a_saved_transform_is_the_same(tmp_path: Path, numbers: str, categories: str) -> None:
    transform = fitted(numbers=numbers, categories=categories, min_count=1)
    path = tmp_path / "transform.json"
    write_transform(path, transform)
    assert read_transform(path) == transform
    assert json.loads(path.read_text())["sha256"] == transform_digest(transform)
    assert [entry.name for entry in tmp_path.iterdir()] == ["transform.json"]


def test_any_changed_byte_of_a_saved_transform_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "transform.json"
    write_transform(path, fitted(categories="vocabulary", min_count=1, numbers="bucket", buckets=3))
    content = path.read_bytes()
    for place in range(len(content) - 1):  # the last byte is a line feed
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(InvalidRecords) as caught:
            read_transform(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "other"}, "not a ctrflow transform"),
        ({"format_version": 1}, "format_version 2 is expected, not 1"),
        ({"transform": {}}, "damaged or edited (its sha256 differs)"),
        ({"sha256": None}, "damaged or edited"),
        ({"encodes": "0" * 64}, "encodes something else than it says"),
    ],
)
def test_other_documents_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = tmp_path / "transform.json"
    write_transform(path, fitted())
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidRecords) as caught:
        read_transform(path)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"numbers": "log"}, True),
        ({"numbers": "standard"}, False),
        ({"numbers": "log", "categories": "vocabulary", "min_count": 1}, False),
    ],
)
def test_two_days_are_encoded_alike_if_nothing_that_was_fitted_makes_an_id_or_value(settings: dict[str, Any], same: bool) -> None:
    one, other = fitted(DAY_1, **settings), fitted(DAY_2, **settings)
    assert transform_digest(one) != transform_digest(other)
    assert (encoding_digest(one) == encoding_digest(other)) is same


def test_the_label_and_what_is_ignored_encode_nothing_and_what_means_missing_does() -> None:
    one = fitted()
    renamed = replace(one, columns=replace(COLUMNS, label="click", ignored=("*",)))
    assert encoding_digest(renamed) == encoding_digest(one)
    assert encoding_digest(replace(one, columns=replace(COLUMNS, missing=("NA",)))) != encoding_digest(one)


def test_what_a_folder_encodes_can_be_read_without_its_tokens(tmp_path: Path) -> None:
    assert encoding_of(tmp_path) is None
    write_transform(tmp_path / "transform.json", fitted())
    assert encoding_of(tmp_path) == encoding_digest(fitted())
    (tmp_path / "transform.json").write_text("{}")
    with pytest.raises(InvalidRecords, match="does not say what it encodes"):
        encoding_of(tmp_path)


def test_no_file_is_no_transform(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecords, match="no such file; preprocess the training data"):
        read_transform(tmp_path / "transform.json")
