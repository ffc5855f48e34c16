"""Steps that wait for each other, drawn from left to right as inline SVG: what a run is, and how far it has come."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from components.errors import InvalidConfig
from components.reports import COLOURS

StepState = Literal["waiting", "running", "succeeded", "failed", "stopped", "interrupted", "not run"]
_COLOUR: Mapping[StepState, str] = {
    "running": COLOURS[0],
    "succeeded": COLOURS[2],
    "failed": COLOURS[1],
    "stopped": COLOURS[5],
    "interrupted": COLOURS[5],
}
WIDTH, GAP, BOX_HEIGHT, ROW = 760, 18, 78, 90


@dataclass(frozen=True, kw_only=True)
class Step:
    """A box: `detail` is a short text below the state, such as a time; `to` the page that the box leads to, if there is one."""

    name: str
    after: Collection[str]
    state: StepState
    detail: str = ""
    to: str = ""


def depths(after: Mapping[str, Collection[str]]) -> dict[str, int]:
    """How many steps lie before each on its longest way; names that are no step's are passed over.

    Raises:
        InvalidConfig: steps wait for each other in a circle.
    """
    known = {name: [other for other in before if other in after] for name, before in after.items()}
    found: dict[str, int] = {}
    while len(found) < len(known):
        ready = [name for name, before in known.items() if name not in found and all(other in found for other in before)]
        if not ready:
            raise InvalidConfig(f"steps {', '.join(sorted(known.keys() - found.keys()))}: each waits for another of them")
        found |= {name: max((found[other] + 1 for other in known[name]), default=0) for name in ready}
    return found


def needed_edges(after: Mapping[str, Collection[str]]) -> list[tuple[str, str]]:
    """Edges (from, to) without those that a longer way says already, sorted."""
    known = {name: {other for other in before if other in after} for name, before in after.items()}
    ahead: dict[str, set[str]] = {}
    for name in sorted(known, key=lambda each: depths(after)[each]):
        ahead[name] = set(known[name]).union(*(ahead[other] for other in known[name]))
    return sorted(
        (other, name)
        for name, before in known.items()
        for other in before
        if not any(other in ahead[between] for between in before - {other})
    )


def graph_svg(steps: Sequence[Step]) -> str:
    """Boxes by their depth, an arrow for each edge that is needed."""
    if not steps:
        return "<p>no step</p>"
    after = {step.name: step.after for step in steps}
    depth = depths(after)
    columns = max(depth.values()) + 1
    pitch = WIDTH / columns
    box = pitch - GAP
    rows = {column: [step for step in steps if depth[step.name] == column] for column in range(columns)}
    height = max(len(row) for row in rows.values()) * ROW
    place = {
        step.name: (column * pitch + GAP / 2, (height - len(row) * ROW) / 2 + number * ROW + (ROW - BOX_HEIGHT) / 2)
        for column, row in rows.items()
        for number, step in enumerate(row)
    }
    parts = [
        '<defs><marker id="head" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L6 3L0 6z" fill="#808a97"/></marker></defs>'
    ]
    for start, end in needed_edges(after):
        (x1, y1), (x2, y2) = place[start], place[end]
        x1, y1, y2 = x1 + box, y1 + BOX_HEIGHT / 2, y2 + BOX_HEIGHT / 2
        middle = (x1 + x2) / 2
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}" fill="none" '
            'stroke="#808a97" stroke-width="1.5" marker-end="url(#head)"/>'
        )
    parts.extend(_box(step, *place[step.name], box) for step in steps)
    label = escape("; ".join(f"{step.name}: {step.state} {step.detail}".rstrip() for step in steps))
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">\n' + "\n".join(parts) + "\n</svg>"


def _box(step: Step, x: float, y: float, width: float) -> str:
    colour = _COLOUR.get(step.state, "#808a97")
    dashes = "" if step.state in _COLOUR else ' stroke-dasharray="4 4"'
    # A name of two words has two lines, because boxes are narrow.
    head, _, tail = step.name.partition("-")
    lines = [f"{head}-", tail] if tail else [head]
    texts = [(text, "600", "inherit") for text in lines] + [(step.state, "400", colour)]
    texts += [(step.detail, "400", "inherit")] if step.detail else []
    top = y + (BOX_HEIGHT - 16 * len(texts)) / 2 + 12
    drawn = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BOX_HEIGHT}" rx="6" fill="{colour}" fill-opacity="0.08" '
        f'stroke="{colour}" stroke-width="2"{dashes}/>'
    ]
    for number, (text, weight, ink) in enumerate(texts):
        style = "" if ink == "inherit" else f' style="fill:{ink}"'
        drawn.append(
            f'<text x="{x + width / 2:.1f}" y="{top + 16 * number:.1f}" text-anchor="middle" font-weight="{weight}"{style}>'
            f"{escape(text)}</text>"
        )
    inside = f"<g>{''.join(drawn)}<title>{escape(step.name)}</title></g>"
    return f'<a href="{escape(step.to)}">{inside}</a>' if step.to else inside
