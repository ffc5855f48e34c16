"""Reports: self-contained pages, checked with the standard library's HTML and XML parsers."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from components.errors import InvalidConfig
from components.reports import Page, write_report

VOID = {"meta", "br", "link", "img"}


class Outline(HTMLParser):
    """Tags still open, attributes and texts seen."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def outline(page: Page) -> Outline:
    parser = Outline()
    parser.feed(page.html())
    parser.close()
    assert parser.open == []
    return parser


def full_page() -> Page:
    page = Page("Evaluation", "AUC 0.77")
    page.section("Metrics")
    page.paragraph("All rows.")
    page.warning("few rows")
    page.table(["metric", "value"], [["AUC", "0.77"], ["rows", "20,000"]])
    page.bars("Threads", "examples/s", [("1 thread", 1000.0), ("2 threads", 1900.0)])
    page.lines("ROC", "fpr", "tpr", {"model": [(0.0, 0.0), (0.2, 0.6), (1.0, 1.0)]}, diagonal=True)
    return page


def svg_of(page: Page) -> ElementTree.Element:
    (svg,) = re.findall(r"<svg.*?</svg>", page.html(), re.DOTALL)
    return ElementTree.fromstring(svg)


def test_a_page_is_well_formed_and_fetches_nothing() -> None:
    found = outline(full_page())
    assert found.tags.count("svg") == 2
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert not {"src", "href"} & {name for name, _ in found.attributes}
    assert {"Evaluation", "AUC 0.77", "Metrics", "All rows.", "20,000"} <= set(found.texts)


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "a & b", '"quoted"', "Größe"])
def test_texts_come_out_as_they_went_in(text: str) -> None:
    page = Page(text, text)
    page.section(text)
    page.paragraph(text)
    page.warning(text)
    page.table([text], [[text]])
    page.bars(text, text, [(text, 1.0)])
    page.lines(text, text, text, {text: [(0.0, 1.0), (1.0, 2.0)]})
    found = outline(page)
    assert "script" not in found.tags
    # title, heading, summary, section, paragraph, th, td, two captions, bar's label and tooltip, two axis labels
    assert found.texts.count(text) == 13


def test_bars_are_as_long_as_their_values() -> None:
    page = Page("t", "s")
    page.bars("Threads", "examples/s", [("one", 100.0), ("four", 400.0), ("nothing", 0.0)])
    widths = [float(bar.attrib["width"]) for bar in svg_of(page).iter("rect")]
    assert widths[1] == pytest.approx(4 * widths[0], abs=0.3)
    assert widths[2] == 0.0


def test_lines_go_through_their_points_upwards() -> None:
    page = Page("t", "s")
    page.lines("Loss", "step", "loss", {"train": [(0.0, 0.0), (50.0, 1.0), (100.0, 4.0)]})
    (line,) = svg_of(page).iter("polyline")
    (x0, y0), (x1, y1), (x2, y2) = (tuple(map(float, point.split(","))) for point in line.attrib["points"].split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y2 == pytest.approx(4 * (y0 - y1), abs=0.5)
    assert y2 < y1 < y0  # SVG counts downwards


@pytest.mark.parametrize(
    "points",
    [[], [(1.0, 1.0)], [(0.0, 5.0), (1.0, 5.0)], [(0.0, float("nan")), (1.0, float("inf"))], [(0.0, 1e-12), (1e9, 2e-12)]],
    ids=["none", "one", "constant", "not finite", "tiny"],
)
def test_odd_series_still_make_a_page(points: list[tuple[float, float]]) -> None:
    page = Page("t", "s")
    page.lines("Loss", "step", "loss", {"train": points}, diagonal=True)
    assert "nan" not in page.html()
    assert "inf" not in page.html()
    outline(page)


def test_loose_points_are_not_connected() -> None:
    page = Page("t", "s")
    page.lines("Cost", "s", "USD", {"frontier": [(1.0, 3.0), (2.0, 2.0)], "others": [(3.0, 4.0)] * 30}, loose=("others",))
    assert page.html().count("<polyline") == 1
    assert page.html().count("<circle") == 32


def test_a_ladder_stands_on_its_first_rung_and_says_what_was_passed() -> None:
    page = Page("t", "s")
    page.ladder("Ladder", [("input", True, "leave it <as> it is"), ("threads", False, "x" * 200)])
    heights = {name: float(y) for y, name in re.findall(r'y="([\d.]+)" text-anchor="middle">(\w+)<title>', page.html())}
    assert heights["input"] > heights["threads"]  # SVG counts downwards
    assert page.html().count("stroke-dasharray") == page.html().count("not passed") + 1  # one in the style sheet
    assert "leave it &lt;as&gt; it is" in page.html()
    assert "x" * 200 in page.html()
    outline(page)


def test_bars_without_a_finite_value_say_none() -> None:
    page = Page("t", "s")
    page.bars("Threads", "examples/s", [("failed", float("nan"))])
    page.bars("Empty", "s", [])
    assert "none" in outline(page).texts


def test_a_report_of_many_points_stays_under_one_megabyte(tmp_path: Path) -> None:
    page = Page("t", "s")
    for number in range(10):
        page.lines(f"Loss {number}", "step", "loss", {"train": [(x / 7, x % 13 / 3) for x in range(100_000)]})
    write_report(tmp_path / "report.html", page)
    assert (tmp_path / "report.html").stat().st_size < 1_000_000


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="1 cells, not 2"):
        Page("t", "s").table(["a", "b"], [["1"]])


def test_the_file_is_written_whole_and_alone(tmp_path: Path) -> None:
    write_report(tmp_path / "deep" / "report.html", full_page())
    assert (tmp_path / "deep" / "report.html").read_text(encoding="utf-8") == full_page().html()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.html"]
