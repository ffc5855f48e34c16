"""Cron expressions as Kubeflow Pipelines reads them: expected times from a calendar."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from components.errors import InvalidConfig
from pipelines.cron import parse_cron

# A Wednesday.
NOW = datetime(2026, 12, 2, 16, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("0 0 3 * * *", "0 0 3 * * *", ["2026-12-03T03:00:00", "2026-12-04T03:00:00", "2026-12-05T03:00:00"]),
        ("0 3 * * *", "0 0 3 * * *", ["2026-12-03T03:00:00", "2026-12-04T03:00:00", "2026-12-05T03:00:00"]),
        ("30 15 3 ? * MON-FRI", "30 15 3 ? * MON-FRI", ["2026-12-03T03:15:30", "2026-12-04T03:15:30", "2026-12-07T03:15:30"]),
        ("0 0 9 ? * 2-6", "0 0 9 ? * 2-6", ["2026-12-03T09:00:00", "2026-12-04T09:00:00", "2026-12-05T09:00:00"]),
        ("0 0 0 * * sun", "0 0 0 * * sun", ["2026-12-06T00:00:00", "2026-12-13T00:00:00", "2026-12-20T00:00:00"]),
        ("*/20 30 16 2 12 *", "*/20 30 16 2 12 *", ["2026-12-02T16:30:20", "2026-12-02T16:30:40", "2027-12-02T16:30:00"]),
        ("0 0 3 29 2 *", "0 0 3 29 2 *", ["2028-02-29T03:00:00", "2032-02-29T03:00:00", "2036-02-29T03:00:00"]),
        ("0 0 0 13 * FRI", "0 0 0 13 * FRI", ["2026-12-04T00:00:00", "2026-12-11T00:00:00", "2026-12-13T00:00:00"]),
        ("0 10/25 4 1,15 jan *", "0 10/25 4 1,15 jan *", ["2027-01-01T04:10:00", "2027-01-01T04:35:00", "2027-01-15T04:10:00"]),
    ],
)
def test_it_fires_at_these_times(text: str, fields: str, expected: list[str]) -> None:
    cron = parse_cron(text)
    assert cron.fields == fields
    assert cron.next_times(NOW) == [f"{each}+00:00" for each in expected]
    # Wherever the clock is read.
    assert cron.next_times(NOW.astimezone(timezone(timedelta(hours=9)))) == cron.next_times(NOW)


def test_it_says_what_it_understood() -> None:
    assert parse_cron("0 3 * * MON").sentence(NOW) == (
        "0 0 3 * * MON means: At 03:00 on Monday, in UTC; "
        "next 2026-12-07T03:00:00+00:00, 2026-12-14T03:00:00+00:00, 2026-12-21T03:00:00+00:00"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "six fields are expected"),
        ("@daily", "six fields are expected"),
        ("0 0 3 * * * 2026", "six fields are expected"),
        ("0 0 25 * * *", "Bad hour"),
        ("0 60 3 * *", "Bad"),
        ("0 0 3 30 2 *", "Bad day-of-month"),
        ("0 0 3 * * 7", "Sunday is 0"),
        ("0 0 3 L * *", "'L' is nothing that Kubeflow Pipelines knows"),
        ("0 0 3 * * 5#2", "'5#2' is nothing that Kubeflow Pipelines knows"),
        ("0 0 3 * * MUN", "'MUN' is nothing that Kubeflow Pipelines knows"),
        ("0 0 3 * * JAN", "Bad day-of-week"),
        ("0 0 3 */0 * *", "Bad day-of-month"),
    ],
)
def test_what_is_wrong_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse_cron(text)
    assert says in str(raised.value)
    assert str(raised.value).startswith(f"cron {text!r}: ")
