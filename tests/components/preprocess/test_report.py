"""The page of a dataset: what a person must see in one look is on it, with figures worked out by hand."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from components.manifest import ColumnStatistics, HeldOut, Manifest, Source
from components.preprocess.report import dataset_report
from components.records import Batch, Schema


@pytest.fixture
def made(tmp_path: Path, dataset_of: Callable[..., Manifest], rows_of: Callable[..., Batch]) -> Manifest:
    """24 and 12 rows to train, 3 to validate, every second a click."""
    schema = Schema(field_size=3, feature_size=4000)
    parts = [rows_of(count, schema, seed) for seed, count in enumerate((24, 12, 3))]
    return dataset_of(tmp_path / "set", "blocks", parts[:2], parts[2:], schema)


def words(manifest: Manifest) -> str:
    """The texts of the page, tags replaced by single spaces."""
    page = dataset_report(manifest).html()
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_rows_click_rates_and_shards_of_each_split(made: Manifest) -> None:
    page = words(made)
    assert "39 rows of 3 fields, 48.72% clicks, 4,000 ids in the table, encoding blocks; 2 rows rejected." in page
    assert "train 36 18 50.00% 2 0.0 0.0 0.0 validation 3 1 33.33% 1 0.0 0.0 0.0" in page
    assert "Warning: the smallest id is 1" in page


def test_rejected_rows_by_reason_and_by_source(made: Manifest) -> None:
    def source(path: str, rows: int, **rejected: int) -> Source:
        return Source(path=path, bytes=2_000_000, sha256="ab" * 32, rows=rows, rejected=rejected)

    page = words(replace(made, sources=(source("a.tsv", 900, label=7, width=60), source("b.tsv", 30, label=3))))
    assert "70 of 1,000 rows of the sources were skipped" in page
    assert re.search(r"width width 60 rows label label 10 rows", page)
    assert "a.tsv 900 67 2.0 abababababababab b.tsv 30 3 2.0" in page
    assert "Rejected rows" not in words(replace(made, sources=(source("a.tsv", 900),)))


def test_the_split_the_sampling_and_the_columns_of_a_table(made: Manifest) -> None:
    columns = (ColumnStatistics(name="price", missing=3), ColumnStatistics(name="ad", missing=1, distinct=9, collision_rate=0.02))
    page = words(
        replace(
            made,
            held_out=HeldOut(by="hash", fraction=0.1, column="User"),
            negative_sampling_rate=0.1,
            sources=(replace(made.sources[0], left_out=1200),),
            statistics=replace(made.statistics, columns=columns),
        )
    )
    assert "validation: all rows of 10% of the texts in column User." in page
    assert "0.1 of the negative training rows were kept, 1,200 left out; " in page
    assert "2 of 1,232 rows of the sources were skipped" in page
    assert "price 3 ad 1 9 2.00%" in page
    assert "day1.tsv 30 1,200 2 1.0" in page
    assert "Columns column" not in words(made)


def fields_of(page: str) -> list[Any]:
    return re.findall(r"field (\d+) field \1 ([\d,]+) ids", page)


def test_cardinalities_of_fields(made: Manifest) -> None:
    few = replace(made, statistics=replace(made.statistics, distinct_ids_by_field=(1, 40, 1_234_567)))
    assert fields_of(words(few)) == [("0", "1"), ("1", "40"), ("2", "1,234,567")]
    assert "1 fields have one id in every row (0): only their value tells rows apart." in words(few)
    many = replace(made, statistics=replace(made.statistics, distinct_ids_by_field=tuple(range(2, 502))))
    page = words(many)
    assert "Distinct ids by field, the 60 fields of 500 that have the most" in page
    assert fields_of(page) == [(str(field), str(field + 2)) for field in range(499, 439, -1)]
    assert "one id in every row" not in page
