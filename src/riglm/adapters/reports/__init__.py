"""The report as a page, and charts as SVG for the documentation and the demo.

The page is self-contained: everything it needs is inside, and it sends no request to another host.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

_PARTS: Final = ("page.html", "style.css", "draw.js")
_END: Final = re.compile("</(script)", re.IGNORECASE)


def page(report: Mapping[str, Any], charts: str, licences: Sequence[str]) -> str:
    """The page for a report; `charts` is the source of ECharts, `licences` are the texts that go with it."""
    html, style, draw = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in _PARTS)
    parts = {
        "STYLE": style,
        "CHARTS": _END.sub(r"<\\/\1", charts),  # no script may end the element around it, and no name in the report
        "LICENCES": escape("\n\n".join(licences)),
        "REPORT": json.dumps(report).replace("<", "\\u003c"),
        "DRAW": draw,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], html)


WIDTH: Final = 720


@dataclass(frozen=True)
class Series:
    """One colour of a chart: its name, and a value for each place on the horizontal axis."""

    name: str
    values: tuple[float, ...]


Drawing = Callable[[Sequence[Series], float], Iterator[str]]
LEFT, TOP, HEIGHT = 46, 76, 200
"""Where the area of a chart begins, and its height, in pixels."""


def chart(title: str, places: Sequence[str], series: Sequence[Series], draw: Drawing) -> str:
    """A chart with a vertical axis from 0, a legend where it needs one, and each value written at its mark."""
    greatest = max(value for each in series for value in each.values)
    step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if greatest / step <= 6)
    top = step * -(-greatest // step)
    parts = [f'<text class="title" x="16" y="26">{escape(title, quote=False)}</text>']
    for tick in range(round(top / step) + 1):
        y = TOP + HEIGHT * (1 - tick * step / top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 16}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="small" text-anchor="end" x="{LEFT - 6}" y="{y + 4:.1f}">{tick * step:g}</text>')
    for index, each in enumerate(series if len(series) > 1 else ()):
        left = LEFT + index * 190
        parts.append(f'<rect class="c{index}" x="{left}" y="40" width="12" height="12" rx="2"/>')
        parts.append(f'<text class="small" x="{left + 18}" y="51">{escape(each.name, quote=False)}</text>')
    parts += draw(series, top)
    for index, place in enumerate(places):
        x = middle(index, len(places))
        parts.append(
            f'<text text-anchor="middle" x="{x:.1f}" y="{TOP + HEIGHT + 22}">{escape(place, quote=False)}</text>'
        )
    return picture(TOP + HEIGHT + 38, parts, title)


def middle(index: int, count: int) -> float:
    """Return the horizontal position of one of `count` places."""
    return LEFT + (WIDTH - 16 - LEFT) * (index + 0.5) / count


def lines(series: Sequence[Series], top: float) -> Iterator[str]:
    """A line for each series, its values written above the first one and below the others."""
    for at, each in enumerate(series):
        marks = [
            (middle(index, len(each.values)), TOP + HEIGHT * (1 - value / top))
            for index, value in enumerate(each.values)
        ]
        for (x1, y1), (x2, y2) in pairwise(marks):
            yield f'<path class="s{at}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'
        for (x, y), value in zip(marks, each.values, strict=True):
            yield f'<circle class="c{at}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
            place = f'x="{x:.1f}" y="{y - 10 if at == 0 else y + 20:.1f}"'
            yield f'<text class="small" text-anchor="middle" {place}>{value:g}</text>'


def picture(height: float, parts: Sequence[str], title: str) -> str:
    """The whole file: a card that can be read on light and dark pages."""
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">'
    definitions = f'<defs>{tip}<path d="M0 0L8 4L0 8z" fill="#78909c"/></marker></defs>'
    card = f'<rect class="card" width="{WIDTH}" height="{height:g}" rx="10"/>'
    style = Path(__file__).with_name("chart.css").read_text(encoding="utf-8")
    about = (f"<title>{escape(title, quote=False)}</title>", f"<style>\n{style}</style>")
    return "\n".join([head, *about, definitions, card, *parts, "</svg>"]) + "\n"
