"""Tables and charts as one self-contained HTML page: inline SVG and CSS, no script, nothing fetched.

    page = Page("evaluate", "AUC 0.7713 on 20,000 rows")
    page.table(["metric", "value"], [["AUC", "0.7713"]])
    page.lines("ROC", "false positive rate", "true positive rate", {"model": roc}, diagonal=True)
    write_report(Path("report.html"), page)

All texts are escaped here; callers pass plain ones.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from components.errors import InvalidConfig
from components.storage import write_text_atomic

# A line of more points than a screen has columns is only bytes.
MAX_POINTS = 1000
# Told apart on light and dark ground and by colour-blind readers. Source: Okabe and Ito 2008, without black and yellow.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --ground: #ffffff; --line: #d5dae1; --warn: #fff4d6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e8ef; --soft: #9aa6b5; --ground: #14181f; --line: #343c48; --warn: #46380f; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 960px; margin: 2rem auto;
  padding: 0 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
.summary { font-size: 1.1rem; color: var(--soft); margin-top: 0; }
.warning { background: var(--warn); padding: .5rem .75rem; border-left: 4px solid #e69f00; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .75rem 0; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; }
figcaption { font-weight: 600; }
svg { width: 100%; max-width: 760px; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); }
svg .grid { stroke: var(--line); }
a { color: inherit; }
svg .diagonal { stroke: var(--soft); stroke-dasharray: 4 4; }
"""


@dataclass(frozen=True)
class Link:
    """A cell that leads to another page; `to` is relative to this one."""

    text: str
    to: str

    def html(self) -> str:
        return f'<a href="{escape(self.to)}">{escape(self.text)}</a>'


class Page:
    """A page that grows downwards. `summary` is the one sentence a reader in a hurry needs.

    `refresh_s` has a browser read the page again so often, for one that is still growing; 0: never.
    """

    def __init__(self, title: str, summary: str, *, refresh_s: int = 0) -> None:
        self._title, self._refresh_s = title, refresh_s
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="summary">{escape(summary)}</p>']

    def section(self, heading: str) -> None:
        self._parts.append(f"<h2>{escape(heading)}</h2>")

    def paragraph(self, text: str) -> None:
        self._parts.append(f"<p>{escape(text)}</p>")

    def warning(self, text: str) -> None:
        self._parts.append(f'<p class="warning" role="note"><strong>Warning:</strong> {escape(text)}</p>')

    def links(self, links: Sequence[Link]) -> None:
        """One line of links."""
        self._parts.append("<p>" + " · ".join(link.html() for link in links) + "</p>")

    def figure(self, title: str, svg: str) -> None:
        """A drawing of another module, which has escaped its texts."""
        self._parts.append(_figure(title, svg))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str | Link]]) -> None:
        """Cells are texts or links; a column whose every cell starts with a digit, or is empty or a dash, is set to the right.

        Raises:
            InvalidConfig: a row of another length than the headers.
        """
        for row in rows:
            if len(row) != len(headers):
                raise InvalidConfig(f"report table {list(headers)}: row {list(row)} has {len(row)} cells, not {len(headers)}")
        numeric = [bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(headers))]

        def line(cells: Sequence[str | Link], tag: str) -> str:
            marks = (' class="number"' if right else "" for right in numeric)
            texts = (cell.html() if isinstance(cell, Link) else escape(cell) for cell in cells)
            return "<tr>" + "".join(f"<{tag}{mark}>{text}</{tag}>" for mark, text in zip(marks, texts, strict=True)) + "</tr>"

        body = "\n".join(line(row, "td") for row in rows)
        self._parts.append(
            f'<div class="wide"><table>\n<thead>{line(headers, "th")}</thead>\n<tbody>\n{body}\n</tbody></table></div>'
        )

    def bars(self, title: str, unit: str, bars: Sequence[tuple[str, float]]) -> None:
        """Horizontal bars from zero. A value that is not finite gets its label and the word `none`, but no bar."""
        self._parts.append(_figure(title, _bars(title, unit, bars)))

    def lines(
        self,
        title: str,
        x_label: str,
        y_label: str,
        series: Mapping[str, Sequence[tuple[float, float]]],
        diagonal: bool = False,
        loose: Collection[str] = (),
    ) -> None:
        """One line a series of (x, y) points, in their order. `diagonal` adds the dashed line y = x.

        Points that are not finite are left out, and long series thinned to MAX_POINTS.

        Args:
            loose: series whose points no line connects.
        """
        self._parts.append(_figure(title, _lines(title, x_label, y_label, series, diagonal, loose)))

    def ladder(self, title: str, rungs: Sequence[tuple[str, bool, str]]) -> None:
        """Rungs from the ground up, each a name, whether it was passed, and what was decided there."""
        self._parts.append(_figure(title, _ladder(title, rungs)))

    def html(self) -> str:
        """The whole document."""
        body = "\n".join(self._parts)
        refresh = f'<meta http-equiv="refresh" content="{self._refresh_s}">\n' if self._refresh_s else ""
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"{refresh}<title>{escape(self._title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
        )


def write_report(path: Path, page: Page) -> None:
    """Write the page atomically."""
    write_text_atomic(path, page.html())


def _is_number(cell: str | Link) -> bool:
    return isinstance(cell, str) and (cell.lstrip("+-−~ ")[:1].isdigit() or cell in ("", "-", "–", "—"))


def _figure(title: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>\n{svg}</figure>"


def _number(value: float) -> str:
    """Short and exact enough for a label: 1,234,567 or 0.0123."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _bars(title: str, unit: str, bars: Sequence[tuple[str, float]]) -> str:
    if not bars:
        return "<p>nothing measured</p>"
    left, right, step, width = 250, 160, 26, 760
    finite = [value for _, value in bars if math.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    scale = (width - left - right) / ((high - low) or 1.0)
    zero, parts = left - low * scale, []
    for row, (label, value) in enumerate(bars):
        y = row * step
        shown = label if len(label) <= 38 else label[:37] + "…"
        parts.append(f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{escape(shown)}<title>{escape(label)}</title></text>')
        text, end = "none", zero
        if math.isfinite(value):
            start, end = sorted((zero, zero + value * scale))
            text = f"{_number(value)} {unit}".strip()
            parts.append(
                f'<rect x="{start:.1f}" y="{y + 3}" width="{end - start:.1f}" height="{step - 8}" rx="2" fill="{COLOURS[0]}"/>'
            )
        parts.append(f'<text x="{end + 6:.1f}" y="{y + 16}">{escape(text)}</text>')
    height = len(bars) * step + 4
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">\n' + "\n".join(parts) + "\n</svg>"


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round values inside [low, high]."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Smallest and largest value, drawn apart when they are one: a scale needs a width."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = abs(low) * 0.1 or 1.0
        return low - margin, high + margin
    return low, high


def _thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most MAX_POINTS finite points, evenly chosen, first and last kept."""
    kept = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len(kept) <= MAX_POINTS:
        return kept
    return [kept[round(index * (len(kept) - 1) / (MAX_POINTS - 1))] for index in range(MAX_POINTS)]


def _ladder(title: str, rungs: Sequence[tuple[str, bool, str]]) -> str:
    """Two rails and a rung each; what was passed is drawn whole, what was not is dashed."""
    if not rungs:
        return "<p>no rung</p>"
    width, step, left, right = 760, 34, 10, 170
    height = len(rungs) * step + 12
    rails = (f'<line x1="{x}" y1="4" x2="{x}" y2="{height - 4}" stroke="{COLOURS[0]}" stroke-width="4"/>' for x in (left, right))
    parts = list(rails)
    for number, (name, passed, decision) in enumerate(rungs):
        y = height - 8 - number * step - step / 2
        style = f'stroke="{COLOURS[2]}"' if passed else f'stroke="{COLOURS[1]}" stroke-dasharray="5 5"'
        shown = decision if len(decision) <= 92 else decision[:91] + "…"
        word = "passed" if passed else "not passed"
        parts.append(f'<line x1="{left}" y1="{y + 8}" x2="{right}" y2="{y + 8}" {style} stroke-width="4"/>')
        parts.append(f'<text x="{(left + right) / 2}" y="{y}" text-anchor="middle">{escape(name)}<title>{word}</title></text>')
        parts.append(f'<text x="{right + 14}" y="{y + 4}">{escape(shown)}<title>{escape(decision)}</title></text>')
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">\n' + "\n".join(parts) + "\n</svg>"


def _lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    diagonal: bool,
    loose: Collection[str] = (),
) -> str:
    drawn = {name: _thin(points) for name, points in series.items()}
    every = [point for points in drawn.values() for point in points]
    if not every:
        return "<p>nothing measured</p>"
    width, height, left, right, top, bottom = 760, 380, 70, 20, 12, 48
    (x_low, x_high), (y_low, y_high) = _span([x for x, _ in every]), _span([y for _, y in every])

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + (x - x_low) / (x_high - x_low) * (width - left - right),
            height - bottom - (y - y_low) / (y_high - y_low) * (height - top - bottom),
        )

    parts = []
    for tick in _ticks(x_low, x_high):
        x, _ = at(tick, y_low)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{height - bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - bottom + 16}" text-anchor="middle">{_number(tick)}</text>')
    for tick in _ticks(y_low, y_high):
        _, y = at(x_low, tick)
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{width - right}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    from_, to = max(x_low, y_low), min(x_high, y_high)
    if diagonal and from_ < to:
        (x1, y1), (x2, y2) = at(from_, from_), at(to, to)
        parts.append(f'<line class="diagonal" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
    legend = []
    for number, (name, points) in enumerate(drawn.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [at(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        if placed and name not in loose:
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(placed) <= 25 or name in loose:
            parts.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed)
        legend.append(f'<span style="color:{colour}">■</span> {escape(name)}')
    middle = (top + height - bottom) / 2
    parts.append(f'<text x="{(left + width - right) / 2}" y="{height - 8}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>')
    svg = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">\n' + "\n".join(parts) + "\n</svg>"
    return svg + f"\n<div>{'&ensp;'.join(legend)}</div>"
