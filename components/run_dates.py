"""The day that a run is about. A schedule is made once and runs for years, so every run resolves "today" itself, when it begins.

s3://logs/{date}/*.tsv               the day of the run
s3://logs/{date-1:%Y/%m/%d}/*.tsv    the day before, written otherwise

A window of N days is N inputs, the same one for each of the days that end with it.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from components.errors import InvalidConfig

MOST_DAYS = 366
_DATE = re.compile(r"\{date(?:-(?P<days>\d{1,4}))?(?::(?P<format>[^{}]+))?\}")


def check_run_date(text: str) -> None:
    """Refuse a date that is none.

    Raises:
        InvalidConfig: neither empty, which means today, nor YYYY-MM-DD.
    """
    _day(text, date.min)


def check_window(days: int, inputs: Sequence[str]) -> None:
    """Refuse a window that is none.

    Raises:
        InvalidConfig: no day, too many, or several with no {date} to put them in.
    """
    if not 1 <= days <= MOST_DAYS:
        raise InvalidConfig(f"days {days}: 1 to {MOST_DAYS} are expected")
    if days > 1 and not any(map(_DATE.search, inputs)):
        raise InvalidConfig(f"days {days}: no {{date}} in the inputs to put them in; such as logs/{{date}}/*.tsv")


def dated(inputs: Sequence[str], run_date: str, days: int, now: datetime | None = None) -> list[str]:
    """Inputs with the run's date in the place of {date}, which is today in UTC unless `run_date` says otherwise.

    Args:
        days: of the window that ends with that day; an input with {date} stands once for each, the oldest first.
    Raises:
        InvalidConfig: `run_date` is no date, or as check_window.
    """
    check_window(days, inputs)
    last = _day(run_date, (now or datetime.now(UTC)).astimezone(UTC).date())

    def on(day: date, one: str) -> str:
        return _DATE.sub(lambda found: (day - timedelta(days=int(found["days"] or 0))).strftime(found["format"] or "%Y-%m-%d"), one)

    window = [last - timedelta(days=back) for back in range(days - 1, -1, -1)]
    # Written by month or year, several days are one input; which days an input without a date is of, nobody knows.
    return list(dict.fromkeys(on(day, one) for one in inputs for day in window))


def _day(text: str, today: date) -> date:
    if not text:
        return today
    try:
        if len(text) == len("YYYY-MM-DD"):  # strptime takes 2026-1-1 too
            return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        pass
    raise InvalidConfig(f"run_date {text!r}: YYYY-MM-DD is expected, or nothing for today in UTC")
