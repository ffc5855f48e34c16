"""The day of a run, in the place of {date}."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from components.errors import InvalidConfig
from components.run_dates import check_run_date, dated

NEW_YEAR = datetime(2027, 1, 1, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "run_date", "expected"),
    [
        ("s3://logs/{date}/*.tsv", "", "s3://logs/2027-01-01/*.tsv"),
        ("s3://logs/{date-1}/*.tsv", "", "s3://logs/2026-12-31/*.tsv"),
        ("logs/{date-1:%Y/%m/%d}/{date:%Y}", "", "logs/2026/12/31/2027"),
        ("logs/{date}", "2024-02-29", "logs/2024-02-29"),
        ("logs/{date-366}", "2024-12-31", "logs/2023-12-31"),
        ("logs/{day}/{date+1}/{}", "", "logs/{day}/{date+1}/{}"),
    ],
)
def test_dates_take_their_places(given: str, run_date: str, expected: str) -> None:
    assert dated([given, "fixed"], run_date, 1, NEW_YEAR) == [expected, "fixed"]


def test_today_is_that_of_utc_wherever_the_clock_is_read() -> None:
    assert dated(["{date}"], "", 1, NEW_YEAR.astimezone(timezone(timedelta(hours=-8)))) == ["2027-01-01"]


def test_a_window_ends_with_the_day_of_the_run() -> None:
    found = dated(["logs/{date-1}.tsv", "fixed", "{date:%Y}"], "2027-01-02", 3)
    assert found == ["logs/2026-12-30.tsv", "logs/2026-12-31.tsv", "logs/2027-01-01.tsv", "fixed", "2026", "2027"]


@pytest.mark.parametrize(
    ("days", "inputs", "message"),
    [(0, ["{date}"], "days 0: 1 to 366"), (367, ["{date}"], "days 367"), (2, ["logs/*"], r"days 2: no \{date\} in the inputs")],
)
def test_a_window_that_makes_no_sense_is_refused(days: int, inputs: list[str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        dated(inputs, "", days)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "2026-02-29", "20261201", "2026-W01-1", "2026-1-1"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="YYYY-MM-DD"):
        check_run_date(text)
