"""Changed input under the name of a former dataset: noticed by digest, whatever names and dates say."""

import pytest

from components.manifest import Source
from components.preprocess.sources import source_changes


def sources(*files: tuple[str, str]) -> tuple[Source, ...]:
    return tuple(Source(path=path, bytes=10, sha256=digest, rows=3) for path, digest in files)


A, B, C = ("day1.tsv", "aa"), ("day2.tsv", "bb"), ("day3.tsv", "cc")
REPLACED = "the input differs from that of the dataset that this one replaces: "


@pytest.mark.parametrize(
    ("former", "found", "says"),
    [
        ([A, B], [A, B], ""),
        ([], [], ""),
        ([A, B], [("/elsewhere/day1.tsv", "aa"), ("/elsewhere/day2.tsv", "bb")], ""),
        ([A, A], [A, A], ""),
        ([A, B], [A, ("day2.tsv", "b0")], REPLACED + "1 changed (day2.tsv)"),
        ([A, B], [("day1.tsv", "bb"), ("day2.tsv", "aa")], REPLACED + "2 changed (day1.tsv, day2.tsv)"),
        ([A], [A, B], REPLACED + "1 new (day2.tsv)"),
        ([A, B], [B], REPLACED + "1 gone (day1.tsv)"),
        ([A, B], [("day1.tsv", "a0"), C], REPLACED + "1 changed (day1.tsv), 1 new (day3.tsv), 1 gone (day2.tsv)"),
        ([], [(f"{n}.tsv", str(n)) for n in range(5)], REPLACED + "5 new (0.tsv, 1.tsv, 2.tsv and 2 more)"),
        ([A, B], [B, A], "the files are those of the dataset that this one replaces, in another order: its splits differ"),
    ],
)
def test_what_differs_is_said_in_one_sentence(former: list[tuple[str, str]], found: list[tuple[str, str]], says: str) -> None:
    assert source_changes(sources(*former), sources(*found)) == says
