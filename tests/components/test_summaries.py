"""What a dataset is said to hold: figures worked out by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.manifest import Source, manifest_digest
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
    assert [line.split() for line in lines[3:6]] == [
        ["split", "rows", "clicks", "click", "rate", "shards", "MB", "smallest", "shard", "largest"],
        ["train", "36", "18", "50.00%", "2", "0.0", "0.0", "MB", "0.0", "MB"],
        ["validation", "3", "1", "33.33%", "1", "0.0", "0.0", "MB", "0.0", "MB"],
    ]
    assert len({len(line) for line in lines[3:6]}) == 1
    assert [line.split() for line in lines[7:9]] == [
        ["source", "rows", "rejected", "MB", "sha256"],
        ["day1.tsv", "30", "2", "1.0", "2222222222222222"],
    ]
    assert lines[9:] == ["", "rejected: 2 label", "", "warning: the smallest id is 1", "", "written by ctrflow 0.1.0"]


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
