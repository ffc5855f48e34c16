"""AWS's public price list: USD an hour of SageMaker training, by instance type. Anybody may read it, without credentials.

One CSV file a region: five lines about the file, a line of column names, then a line a price beside what is priced; so it is read
line by line and never held. Only columns that the files of all services have are needed.
Source: AWS Billing User Guide, "Reading the service price list file for an AWS service".
"""

import csv
import http.client
import io
import itertools
import logging
import math
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from components.errors import InvalidConfig, InvalidRecords
from components.instances import Instance

log = logging.getLogger(__name__)

PRICE_LIST = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonSageMaker/current/{region}/index.csv"
OFFER = "AmazonSageMaker"
NEEDED = ("TermType", "StartingRange", "EndingRange", "Unit", "PricePerUnit", "Currency", "Location Type", "usageType")
# Regions shorten their names in front of the colon: USE1-Train:ml.m5.large, EU-Train:..., APN1-Train:...
TRAINING = re.compile(r"(?:[A-Z]+\d*-)?Train:(ml\.[a-z0-9-]+\.[a-z0-9-]+)")
SILENCE_S = 30.0
SAY_EVERY_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Prices:
    """USD an hour by instance type, as published. Types that the list has two prices of are in `ambiguous` instead."""

    published: str
    usd_per_hour: dict[str, float]
    ambiguous: tuple[str, ...]


def download_prices(region: str, url: str = PRICE_LIST) -> Prices:
    """The prices of a region, read as they arrive.

    Args:
        url: of the file, with {region} in it; file:///... is one that was fetched in another way.
    Raises:
        InvalidConfig: it cannot be reached, or the answer broke off.
        InvalidRecords: what came is not a price list of SageMaker, or has no price of training.
    """
    address = url.replace("{region}", region)
    log.info("reading %s", address)
    try:
        with urllib.request.urlopen(address, timeout=SILENCE_S) as response:
            counted = io.BufferedReader(_Counted(response, response.headers.get("Content-Length")))
            return read_prices(io.TextIOWrapper(counted, encoding="utf-8", newline=""), address)
    except urllib.error.HTTPError as error:
        what = f"is there no price list for region {region}?" if error.code in (403, 404) else "try again later"
        raise InvalidConfig(f"{address}: HTTP status {error.code}; {what} Nothing was changed") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InvalidConfig(
            f"{address}: cannot be read ({reason}); nothing was changed; try again where it can be reached"
        ) from error


def read_prices(lines: Iterable[str], place: str) -> Prices:
    """The prices of training on demand in the lines of a price list.

    Args:
        place: what messages call it.
    Raises:
        InvalidRecords: it is not such a list, or has none of these prices.
    """
    reader = csv.reader(lines)
    try:
        about = dict(row[:2] for row in itertools.islice(reader, 5) if len(row) > 1)
        header = next(reader, [])
        lacking = [column for column in NEEDED if column not in header]
        if about.get("OfferCode") != OFFER or "Publication Date" not in about or lacking:
            what = f"no column {', '.join(lacking)} in line 6" if lacking else f"its first lines name no {OFFER}, or no date"
            raise InvalidRecords(f"{place}: is not the price list of {OFFER}: {what}; nothing was changed")
        found: dict[str, set[float]] = {}
        for cells in reader:
            row = dict(zip(header, cells, strict=False))
            if (name := _trained_on(row)) is not None:
                found.setdefault(name, set()).add(_usd(row["PricePerUnit"], f"{place}, line {reader.line_num}"))
    except csv.Error as error:
        raise InvalidRecords(f"{place}, line {reader.line_num}: not CSV ({error}); nothing was changed") from error
    # What the free tier gives costs nothing, and has lines of its own.
    paid = {name: prices - {0.0} for name, prices in found.items() if prices - {0.0}}
    if not paid:
        raise InvalidRecords(f"{place}: has no price of training on demand; nothing was changed")
    return Prices(
        published=about["Publication Date"][:10],
        usd_per_hour={name: min(prices) for name, prices in paid.items() if len(prices) == 1},
        ambiguous=tuple(sorted(name for name, prices in paid.items() if len(prices) > 1)),
    )


def refreshed(instances: Sequence[Instance], prices: Prices, region: str) -> tuple[Instance, ...]:
    """The types that the list has a price of, with that price, its day and its source."""
    return tuple(
        replace(instance, usd_per_hour=usd, source=f"price list of AWS, {region}", date=prices.published)
        for instance in instances
        if (usd := prices.usd_per_hour.get(instance.name)) is not None
    )


def _trained_on(row: Mapping[str, str]) -> str | None:
    """The instance type whose hour of training a line prices, from the first hour to the last, in the region itself."""
    fits = row.get("TermType") == "OnDemand" and row.get("Unit") == "Hrs" and row.get("Currency") == "USD"
    fits = fits and row.get("StartingRange") == "0" and row.get("EndingRange") == "Inf" and row.get("Location Type") == "AWS Region"
    usage = TRAINING.fullmatch(row.get("usageType", "")) if fits else None
    return usage and usage[1]


def _usd(cell: str, place: str) -> float:
    try:
        usd = float(cell)
    except ValueError:
        usd = math.nan
    if not 0 <= usd < 1e6:
        raise InvalidRecords(f"{place}: PricePerUnit {cell!r} is no price; nothing was changed")
    return usd


class _Counted(io.RawIOBase):
    """A response that says how far reading is, and does not take an early end for the end."""

    def __init__(self, response: IO[bytes], length: str | None) -> None:
        self._response, self._length = response, int(length) if length else None
        self._count, self._said = 0, time.monotonic()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._response.read(len(buffer))
        if not data and self._length is not None and self._count < self._length:
            raise OSError(f"it broke off after {self._count:,} of {self._length:,} bytes")
        buffer[: len(data)] = data
        self._count += len(data)
        if time.monotonic() - self._said >= SAY_EVERY_S:
            self._said = time.monotonic()
            log.info("%.1f MB read%s", self._count / 1e6, f" of {self._length / 1e6:.1f}" if self._length else "")
        return len(data)
