"""What a dataset is said to hold: figures worked out by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.manifest import ColumnStatistics, HeldOut, Source, manifest_digest
from components.records import Batch, Schema
from components.summaries import SplitSummary, first_rows, rejected_rows, row_text, summarize, summary_text

SCHEMA = Schema(field_size=3, feature_size=4000, id_base=1)


@pytest.fixture
def made(tmp_path: Path, dataset_of: Callable[..., Any], rows_of: Callable[..., Batch]) -> Any:
    """24 and 12 rows to train, 3 to validate, every second a click."""
    parts = [rows_of(count, SCHEMA, seed) for seed, count in enumerate((24, 12, 3))]
    return dataset_of(tmp_path / "set", "blocks", parts[:2], parts[2:], SCHEMA)


def block_bytes(rows: int) -> int:
    """16 of framing, 16 of header, and four for a label, an id and a value."""
    return 16 + 16 + 4 * rows * (1 + 3 + 3)


def test_figures_of_splits_and_sources(made: Any) -> None:
    summary = summarize(made)
    assert (summary.rows, summary.click_rate, summary.encoding) == (39, 19 / 39, "blocks")
    assert summary.digest == manifest_digest(made)
    assert summary.rejected == {"label": 2}
    smallest, largest = block_bytes(12), block_bytes(24)
    assert summary.splits == {
        "train": SplitSummary(
            rows=36,
            clicks=18,
            click_rate=0.5,
            shards=2,
            bytes=smallest + largest,
            smallest_shard=smallest,
            largest_shard=largest,
        ),
        "validation": SplitSummary(
            rows=3,
            clicks=1,
            click_rate=1 / 3,
            shards=1,
            bytes=block_bytes(3),
            smallest_shard=block_bytes(3),
            largest_shard=block_bytes(3),
        ),
    }


def test_a_person_reads_it_in_one_look(made: Any) -> None:
    lines = summary_text("set", summarize(made)).splitlines()
    assert lines[0] == "set: 39 rows of 3 fields, 48.72% clicks, 4,000 ids in the table"
    assert lines[1].startswith("encoding blocks; ids of the sources start at 1; digest ")
    assert lines[2] == "validation: the rows, each drawn by itself"
    assert [line.split() for line in lines[4:7]] == [
        ["split", "rows", "clicks", "click", "rate", "shards", "MB", "smallest", "shard", "largest"],
        ["train", "36", "18", "50.00%", "2", "0.0", "0.0", "MB", "0.0", "MB"],
        ["validation", "3", "1", "33.33%", "1", "0.0", "0.0", "MB", "0.0", "MB"],
    ]
    assert len({len(line) for line in lines[4:7]}) == 1
    assert [line.split() for line in lines[8:10]] == [
        ["source", "rows", "rejected", "MB", "sha256"],
        ["day1.tsv", "30", "2", "1.0", "2222222222222222"],
    ]
    assert lines[10:] == ["", "rejected: 2 label", "", "warning: the smallest id is 1", "", "written by ctrflow 0.1.0"]


@pytest.mark.parametrize(
    ("held_out", "said"),
    [
        (HeldOut(by="row", fraction=0.1), "validation: 10% of the rows, each drawn by itself"),
        (HeldOut(by="hash", fraction=0.125, column="User"), "validation: all rows of 12.5% of the texts in column User"),
        (HeldOut(by="time", column="at", boundary="2026-12-03"), "validation: the rows from 2026-12-03 on, by column at"),
    ],
)
def test_how_rows_were_divided(made: Any, held_out: HeldOut, said: str) -> None:
    assert summary_text("set", summarize(replace(made, held_out=held_out))).splitlines()[2] == said


def test_rows_left_out_are_counted_in_all_and_by_source(made: Any) -> None:
    sources = (replace(made.sources[0], left_out=1200), replace(made.sources[0], path="day2.tsv", left_out=34))
    lines = summary_text("set", summarize(replace(made, negative_sampling_rate=0.1, sources=sources))).splitlines()
    assert lines[3].startswith("0.1 of the negative training rows were kept, 1,234 left out; ")
    assert [line.split()[:4] for line in lines[9:12]] == [
        ["source", "rows", "left", "out"],
        ["day1.tsv", "30", "1,200", "2"],
        ["day2.tsv", "30", "34", "2"],
    ]


def test_columns_of_a_table_have_a_line_each(made: Any) -> None:
    columns = (
        ColumnStatistics(name="price", missing=3),
        ColumnStatistics(name="user", missing=0, unseen=1234, distinct=5678),
        ColumnStatistics(name="ad", missing=1, distinct=9, collision_rate=0.02),
    )
    lines = summary_text("set", summarize(replace(made, statistics=replace(made.statistics, columns=columns)))).splitlines()
    assert [line.split() for line in lines[12:15]] == [
        ["price", "3"],
        ["user", "0", "1,234", "5,678"],
        ["ad", "1", "9", "2.00%"],
    ]


def test_rejects_add_up_over_sources_the_most_frequent_first() -> None:
    def source(**rejected: int) -> Source:
        return Source(path="x", bytes=1, sha256="", rows=1, rejected=rejected)

    assert list(rejected_rows([source(label=1, width=2), source(), source(width=3)]).items()) == [("width", 5), ("label", 1)]


def test_the_first_rows_are_those_of_the_first_shards(tmp_path: Path, made: Any, rows_of: Callable[..., Batch]) -> None:
    expected = rows_of(24, SCHEMA, 0)
    rows = first_rows(tmp_path / "set", made, 30)
    assert len(rows) == 30
    assert [row.ids for row in rows[:24]] == expected.ids.tolist()
    label, *pairs = row_text(rows[1]).split()
    assert label == "1"
    assert [int(pair.split(":")[0]) for pair in pairs] == expected.ids[1].tolist()
    assert [float(pair.split(":")[1]) for pair in pairs] == pytest.approx(expected.values[1].tolist(), rel=1e-5)
