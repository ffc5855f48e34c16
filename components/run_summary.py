"""A run in one page of Markdown, which KFP shows: what every step found, in the words of its own report, and where that is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import quote

from components.errors import InvalidRecords
from components.storage import write_text_atomic

_SUMMARY = re.compile(r'<p class="summary">(.*?)</p>', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """A step's report: the file as this step sees it, and the URI under which it is kept."""

    step: str
    path: Path
    uri: str


def write_run_summary(out: Path, title: str, reports: Sequence[StepReport]) -> None:
    """One row a step, in the order of the reports.

    Raises:
        InvalidRecords: a report has no summary.
    """
    rows = [f"| {each.step} | {in_cell(summary_of(each.path))} | {link_to(each.uri)} |" for each in reports]
    write_text_atomic(out, "\n".join([f"# {title}", "", "| step | what it found | report |", "|---|---|---|", *rows, ""]))


def summary_of(report: Path) -> str:
    """The sentence at the top of a report that components.reports has written."""
    found = _SUMMARY.search(report.read_text(encoding="utf-8"))
    if not found:
        raise InvalidRecords(f"{report}: no summary in it, so no report of a step; run the step that wrote it again")
    return " ".join(unescape(found[1]).split())


def in_cell(text: str) -> str:
    """Text that stands in a table of Markdown as it is."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def link_to(uri: str) -> str:
    """A link that a browser can follow: of S3 to the console of AWS; of others, the URI itself."""
    bucket, slash, key = uri.removeprefix("s3://").partition("/")
    if not uri.startswith("s3://") or not slash:
        return f"`{uri}`"
    return f"[report](https://console.aws.amazon.com/s3/object/{quote(bucket)}?prefix={quote(key)})"
