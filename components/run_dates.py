"""The day that a run is about. A schedule is made once and runs for years, so every run resolves "today" itself, when it begins.

s3://logs/{date}/*.tsv               the day of the run
s3://logs/{date-1:%Y/%m/%d}/*.tsv    the day before, written otherwise
"""

import re
from datetime import UTC, date, datetime, timedelta

from components.errors import InvalidConfig

_DATE = re.compile(r"\{date(?:-(?P<days>\d{1,4}))?(?::(?P<format>[^{}]+))?\}")


def check_run_date(text: str) -> None:
    """Refuse a date that is none.

    Raises:
        InvalidConfig: neither empty, which means today, nor YYYY-MM-DD.
    """
    _day(text, date.min)


def dated(inputs: list[str], run_date: str, now: datetime | None = None) -> list[str]:
    """Inputs with the run's date in the place of {date}, which is today in UTC unless `run_date` says otherwise.

    Raises:
        InvalidConfig: `run_date` is no date.
    """
    day = _day(run_date, (now or datetime.now(UTC)).astimezone(UTC).date())

    def text(found: re.Match[str]) -> str:
        return (day - timedelta(days=int(found["days"] or 0))).strftime(found["format"] or "%Y-%m-%d")

    return [_DATE.sub(text, one) for one in inputs]


def _day(text: str, today: date) -> date:
    if not text:
        return today
    try:
        if len(text) == len("YYYY-MM-DD"):  # strptime takes 2026-1-1 too
            return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        pass
    raise InvalidConfig(f"run_date {text!r}: YYYY-MM-DD is expected, or nothing for today in UTC")
