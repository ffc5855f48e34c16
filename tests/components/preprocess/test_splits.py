"""Splits by a column, and draws: expected values worked out by hand."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.keys import below, row_keys
from components.preprocess.splits import (
    SplitConfig,
    TimeRange,
    boundary_of,
    check_times,
    held_out_by_hash,
    held_out_by_time,
    kept,
    last_day,
    parsed_time,
    times_of,
    whole_range,
)

ROWS = np.arange(1, 100_001)


def test_rows_of_one_text_stand_on_one_side() -> None:
    users = [f"u{i % 1000}" for i in range(5000)] + [None, ""]
    held_out = held_out_by_hash(pa.array(users), 0.3, seed=1)
    by_user = held_out[:5000].reshape(5, 1000)
    assert (by_user == by_user[0]).all()
    assert 0.24 < held_out.mean() < 0.36
    assert held_out[-1] == held_out[-2]
    alone = held_out_by_hash(pa.array(["u17"]), 0.3, seed=1)
    assert alone[0] == held_out[17]
    assert (held_out_by_hash(pa.array(users), 0.3, seed=2) != held_out).any()
    assert held_out_by_hash(pa.array([], pa.string()), 0.3, seed=1).tolist() == []


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-02", datetime(1970, 1, 2, tzinfo=UTC)),
        ("2026-12-02", datetime(2026, 12, 2, tzinfo=UTC)),
        ("20261202", datetime(2026, 12, 2, tzinfo=UTC)),
        ("2026-12-02 10:30:05", datetime(2026, 12, 2, 10, 30, 5, tzinfo=UTC)),
        ("2026-12-02T10:30:05.75Z", datetime(2026, 12, 2, 10, 30, 5, tzinfo=UTC)),
        ("2026-12-02T01:30:00+02:00", datetime(2026, 12, 1, 23, 30, tzinfo=UTC)),
        ("2026-12-02 10:30:05.123456789", datetime(2026, 12, 2, 10, 30, 5, tzinfo=UTC)),
        ("1764671405", datetime(2025, 12, 2, 10, 30, 5, tzinfo=UTC)),
        ("1764671405.9", datetime(2025, 12, 2, 10, 30, 5, tzinfo=UTC)),
    ],
)
def test_times(text: str, moment: datetime) -> None:
    assert parsed_time(text) == int(moment.timestamp())


@pytest.mark.parametrize(
    "text", ["", "yesterday", "14102100", "2026-13-01", "2026-12-02T25:00", "1764671405000", "12", "1e9", "-1"]
)
def test_what_is_no_time(text: str) -> None:
    assert parsed_time(text) is None
    with pytest.raises(InvalidConfig, match=r"a time is ISO 8601 \(2026-12-02"):
        boundary_of(text)


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_none(text: str) -> None:
    assert isinstance(parsed_time(text), int | None)


def test_the_last_day_validates() -> None:
    texts = ["2026-12-01T23:59:59", "2026-12-02", "2026-11-30", "2026-12-02T08:00:00"]
    times = times_of(pa.array(texts))
    assert not times.wrong.any()
    boundary = last_day(int(times.seconds.max()))
    assert boundary == boundary_of("2026-12-02")
    assert held_out_by_time(times.seconds, boundary).tolist() == [False, True, False, True]
    check_times(TimeRange(int(times.seconds.min()), int(times.seconds.max())), boundary, "hour")


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [(["2026-12-02", None, "x"], [False, True, True]), (["x", "2026-12-02", "x"], [True, False, True]), ([None], [True]), ([], [])],
)
def test_rows_without_a_time_are_told(texts: list[str | None], wrong: list[bool]) -> None:
    assert times_of(pa.array(texts, pa.string())).wrong.tolist() == wrong


def test_the_range_of_parts_is_that_of_all_rows_in_any_order() -> None:
    parts = [None, TimeRange(5, 9), TimeRange(2, 3), None]
    assert whole_range(parts) == whole_range(parts[::-1]) == (2, 9)
    assert whole_range([None]) is None


@pytest.mark.parametrize(
    ("boundary", "side"),
    [("2026-12-02", "train"), ("2026-12-01", "train"), ("2026-12-04", "validate")],
)
def test_a_boundary_leaves_rows_on_both_sides(boundary: str, side: str) -> None:
    times = TimeRange(boundary_of("2026-12-02"), boundary_of("2026-12-03T10:00:00Z"))
    with pytest.raises(InvalidRecords) as caught:
        check_times(times, boundary_of(boundary), "hour")
    message = (
        f"column hour: times are from 2026-12-02 to 2026-12-03T10:00:00Z, so no row is left to {side} when those from {boundary}"
    )
    assert str(caught.value).startswith(message)


def test_every_positive_row_stays_and_a_share_of_the_others() -> None:
    labels = (ROWS % 10 == 0).astype(np.float32)
    keys = row_keys(3, 0, ROWS)
    stays = kept(labels, keys, 0.25)
    assert stays[labels > 0].all()
    assert stays[labels == 0].mean() == pytest.approx(0.25, abs=0.006)
    # The draw is another than the one that holds rows out.
    held_out = below(keys, 0.1)
    assert stays[(labels == 0) & held_out].mean() == pytest.approx(0.25, abs=0.02)
    assert kept(labels, keys, 1.0).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"by": "user"}, "split by 'user' is none of row, hash, time"),
        ({"column": "user"}, "split column 'user': say how it divides the rows, --split-by hash or time"),
        ({"boundary": "2026-12-02"}, "split boundary '2026-12-02': say how"),
        ({"by": "time"}, "split by time: say by which column"),
        ({"by": "hash", "column": "user", "boundary": "2026-12-02"}, "only times have one"),
        ({"by": "time", "column": "hour", "boundary": "tomorrow"}, "split boundary 'tomorrow': a time is ISO 8601"),
    ],
)
def test_settings_of_a_split_that_do_not_go_together_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        SplitConfig(**settings)
    assert said in str(caught.value)
