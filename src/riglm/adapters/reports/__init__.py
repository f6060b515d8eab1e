"""The report as a self-contained page: everything it needs is inside, and it sends no request to another host."""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

__all__ = ["page"]

_PARTS: Final = ("page.html", "style.css", "draw.js")
_END: Final = re.compile("</(script)", re.IGNORECASE)


def page(report: Mapping[str, Any], charts: str, licences: Sequence[str]) -> str:
    """The page for a report; `charts` is the source of ECharts, `licences` are the texts that go with it."""
    here = files(__package__)
    html, style, draw = (here.joinpath(name).read_text(encoding="utf-8") for name in _PARTS)
    parts = {
        "STYLE": style,
        "CHARTS": _code(charts),
        "LICENCES": escape("\n\n".join(licences)),
        "REPORT": _values(report),
        "DRAW": draw,
    }
    before, *rest = html.split("{{")
    filled = [before]
    for part in rest:
        name, _, after = part.partition("}}")
        filled += (parts[name], after)
    return "".join(filled)


def _code(text: str) -> str:
    """Return a script that does not end the element around it."""
    return _END.sub(r"<\\/\1", text)


def _values(report: Mapping[str, Any]) -> str:
    """Return the report as JSON in which no name can end the element around it."""
    return json.dumps(report).replace("<", "\\u003c")
