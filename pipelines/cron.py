"""When a schedule fires: cron expressions as Kubeflow Pipelines takes them, six fields with the seconds first, in UTC.

KFP reads them by github.com/robfig/cron. What only other readers of cron know (L, W, #, weekday 7) is refused, so that a schedule
means the same on a cluster and on this machine.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from cronsim import CronSim, CronSimError

from components.errors import InvalidConfig

_NAMES = "SUN|MON|TUE|WED|THU|FRI|SAT|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_FIELD = re.compile(rf"(?:[0-9*?/,-]|{_NAMES})+", re.IGNORECASE)
_WEEKDAY_7 = re.compile(r"(?<![0-9/])7")
SEVERAL = 3


@dataclass(frozen=True, kw_only=True)
class Cron:
    """`fields` are the six that KFP takes, `words` what they mean."""

    fields: str
    words: str

    def times(self, after: datetime) -> Iterator[datetime]:
        """When it fires, in UTC, from after that moment on."""
        yield from CronSim(_plain(self.fields), after.astimezone(UTC))

    def next_times(self, after: datetime, count: int = SEVERAL) -> list[str]:
        """The next times it fires, as ISO 8601 in UTC."""
        return [time.isoformat() for time in islice(self.times(after), count)]

    def sentence(self, after: datetime) -> str:
        """What was understood, for people."""
        return f"{self.fields} means: {self.words}, in UTC; next {', '.join(self.next_times(after))}"


def parse_cron(text: str) -> Cron:
    """The schedule of an expression of five fields, which fires at second 0, or six.

    Raises:
        InvalidConfig: of another number of fields, a field is wrong, or that time never comes.
    """
    fields = text.split()
    if len(fields) == 5:
        fields = ["0", *fields]
    example = "0 0 3 * * * is every day at 03:00 UTC"
    if len(fields) != 6:
        raise InvalidConfig(f"cron {text!r}: six fields are expected (second minute hour day month weekday), or five; {example}")
    if odd := [field for field in fields if not _FIELD.fullmatch(field)]:
        raise InvalidConfig(f"cron {text!r}: {odd[0]!r} is nothing that Kubeflow Pipelines knows; {example}")
    if _WEEKDAY_7.search(fields[5]):
        raise InvalidConfig(f"cron {text!r}: weekdays are 0 to 6; Sunday is 0")
    whole = " ".join(fields)
    try:
        clock = CronSim(_plain(whole), datetime(2000, 1, 1, tzinfo=UTC))
        next(clock)
    except (CronSimError, StopIteration) as error:
        raise InvalidConfig(f"cron {text!r}: {str(error) or 'that time never comes'}; {example}") from error
    return Cron(fields=whole, words=clock.explain())


def _plain(fields: str) -> str:
    """? is another way to write *."""
    return fields.upper().replace("?", "*")
