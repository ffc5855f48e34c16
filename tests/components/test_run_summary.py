"""The page that sums up a run."""

from pathlib import Path

import pytest

from components.errors import InvalidRecords
from components.reports import Page, write_report
from components.run_summary import StepReport, write_run_summary


def report(folder: Path, step: str, sentence: str, uri: str) -> StepReport:
    write_report(folder / step, Page(step, sentence))
    return StepReport(step=step, path=folder / step, uri=uri)


def test_every_step_has_a_row_with_its_own_sentence_and_a_link(tmp_path: Path) -> None:
    reports = [
        report(tmp_path, "preprocess", "1,000 rows & no_id | <none> unseen", "s3://bucket/kfp/a run/report"),
        report(tmp_path, "train", "loss 0.4", "/runs/r1/train/report"),
    ]
    write_run_summary(tmp_path / "summary", "ads, run r1", reports)
    assert (tmp_path / "summary").read_text().splitlines() == [
        "# ads, run r1",
        "",
        "| step | what it found | report |",
        "|---|---|---|",
        r"| preprocess | 1,000 rows & no\_id \| \<none\> unseen | "
        "[report](https://console.aws.amazon.com/s3/object/bucket?prefix=kfp/a%20run/report) |",
        "| train | loss 0.4 | `/runs/r1/train/report` |",
    ]


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("<p>by hand</p>")
    with pytest.raises(InvalidRecords, match="report: no summary in it"):
        write_run_summary(tmp_path / "summary", "t", [StepReport(step="train", path=tmp_path / "report", uri="")])
