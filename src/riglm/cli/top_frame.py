"""What `riglm top` draws."""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from riglm.cli.output import printable

_WIDE: Final = 110
"""From this number of columns on, tables are placed side by side."""

_NARROW: Final = 72
"""In less, a table keeps its first columns only."""

_MAX_COLUMNS: Final = 6
_MIN_COLUMNS: Final = 4

_MIN_ROWS: Final = 3
_AROUND: Final = 9
"""Lines of a frame that are no rows of the tables below: heading, numbers, titles."""

_NOTHING: Final = "–"  # noqa: RUF001  # a dash as long as a digit
_COLOURS: Final = {
    "ok": "green",
    "open": "green",
    "idle": "dim",
    "opening": "yellow",
    "degraded": "yellow",
    "broken": "bold red",
    "unavailable": "bold red",
}


def frame(
    seen: dict[str, Any], *, url: str, hours: int, width: int, height: int | None, trouble: str = ""
) -> RenderableType:
    """Return the view for a terminal of this size; with `height` None as long as it takes, `trouble` at the top."""
    wide = width >= _WIDE
    rows = _rows(seen, height, wide)
    columns = _MAX_COLUMNS if (width // 2 if wide else width) >= _NARROW else _MIN_COLUMNS
    servers, sessions, tools = _servers(seen), _sessions(seen, rows, columns), _tools(seen, rows, columns)
    parts: list[RenderableType] = [_heading(seen["health"], url, hours)]
    if trouble:
        parts.append(Text(printable(trouble), style="bold red"))
    parts += [_numbers(seen, width), Text()]
    parts += [_beside(sessions, tools), servers] if wide else [sessions, tools, servers]
    parts += _errors(seen)
    return Group(*parts)


def _rows(seen: dict[str, Any], height: int | None, wide: bool) -> int:
    """How many rows the tables of sessions and tools may have."""
    if height is None:
        return 10
    left = height - _AROUND - len(seen["health"]["upstreams"]) - 2
    return max(_MIN_ROWS, left if wide else left // 2 - 2)


def _heading(health: dict[str, Any], url: str, hours: int) -> Text:
    up = _age(health["started_at"])
    return Text.assemble(
        ("riglm ", "bold"),
        (printable(health["version"]), "dim"),
        "  ",
        _state(health["status"]),
        (f"  up {up}  last {hours} h  {printable(url)}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _numbers(seen: dict[str, Any], width: int) -> Table:
    summary = seen["summary"]
    lists, tokens, hits, records = (summary[name] for name in ("lists", "tokens", "hit_rate", "records"))
    price, would = summary["price"], "would be " if summary["price"]["mode"] == "shadow" else ""
    facts = [
        ("price", f"{would}{_ratio(price['of_no_proxy'])} of no proxy, {_ratio(price['of_host_search'])} of search"),
        ("sessions", f"{_whole(summary['sessions']['active'])} live of {_whole(summary['sessions']['total'])}"),
        ("calls", f"{_whole(summary['calls'])}, {_per_second(seen['series'])}/s"),
        ("failed", _whole(summary["failures"])),
        ("hit rate", f"{_share(hits['rate'])}, {_searches(summary['searches'])}"),
        ("list", f"{_mean(lists['mean_shown'])} of {_mean(lists['mean_available'])} tools"),
        ("tokens net", f"{would}{_whole(tokens['net'])} of {_whole(tokens['hidden'])} hidden"),
        ("tools", f"{_whole(summary['tools']['used'])} used of {_whole(summary['tools']['known'])}"),
        ("records", f"{_whole(records['stored'])} stored, {_waiting(records)}"),
        ("embedder", printable(str(seen["health"]["embedder"]["embeddings"]["status"]))),
    ]
    across = max(1, min(3, width // 38))
    grid = Table.grid(padding=(0, 1), expand=width < _WIDE)
    for _ in range(across):
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(no_wrap=True, min_width=20)
    for start in range(0, len(facts), across):
        grid.add_row(*(cell for fact in facts[start : start + across] for cell in fact))
    return grid


def _searches(count: int) -> str:
    return f"{_whole(count)} search{'' if count == 1 else 'es'}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _waiting(records: dict[str, Any]) -> str:
    said = f"{_whole(records['queued'] + records['spooled'])} waiting"
    return f"{said}, {_whole(records['dropped'])} dropped" if records["dropped"] else said


def _servers(seen: dict[str, Any]) -> Table:
    table = _table("Servers", ("server", "link", "since", ">tools"))
    for upstream in seen["health"]["upstreams"]:
        since, tools = _age(upstream["since"]), _whole(upstream["tools"])
        table.add_row(printable(upstream["name"]), _state(upstream["state"]), since, tools)
    store = seen["health"]["store"]
    table.add_row(Text(f"store: {printable(store['kind'])}", style="dim"), _state(store["state"]))
    return table


def _errors(seen: dict[str, Any]) -> list[Text]:
    """Why servers are not to be had, a line for each."""
    broken = [upstream for upstream in seen["health"]["upstreams"] if upstream["last_error"]]
    lines = (printable(f"{upstream['name']}: {upstream['last_error']}") for upstream in broken)
    return [Text(line, style="red", no_wrap=True, overflow="ellipsis") for line in lines]


def _sessions(seen: dict[str, Any], rows: int, columns: int) -> Table:
    table = _table("Live sessions", ("client", "began", ">calls", ">failed", ">lists", ">searches")[:columns])
    for session in seen["sessions"]["items"][:rows]:
        numbers = (session[name] for name in ("invocations", "failures", "lists", "searches"))
        client = printable(f"{session['client']['name']} {session['client']['version']}".strip() or "unnamed")
        table.add_row(*(client, _age(session["started_at"]), *map(_whole, numbers))[:columns])
    return _or_nothing(table, "no client is connected")


def _tools(seen: dict[str, Any], rows: int, columns: int) -> Table:
    table = _table("Tools used most", ("tool", ">calls", ">failed", ">median", "last used")[:columns])
    used = [tool for tool in seen["tools"]["items"] if tool["uses"]]
    for tool in used[:rows]:
        counts = map(_whole, (tool["invocations"], tool["failures"]))
        cells = (printable(tool["tool"]), *counts, _milliseconds(tool["median_ms"]), _age(tool["last_used"]))
        table.add_row(*cells[:columns])
    return _or_nothing(table, "no tool was called in this time")


def _table(title: str, heads: Sequence[str]) -> Table:
    """A table without lines; a head that begins with > is one of numbers. The first column gives way."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for index, head in enumerate(heads):
        table.add_column(
            head.lstrip(">"),
            justify="right" if head.startswith(">") else "left",
            header_style="dim",
            no_wrap=True,
            overflow="ellipsis",
            min_width=max(7, len(head)) if index else None,
        )
    return table


def _or_nothing(table: Table, words: str) -> Table:
    if not table.rows:
        table.add_row(Text(words, style="dim"))
    return table


def _beside(left: Table, right: Table) -> Table:
    grid = Table.grid(padding=(0, 3, 0, 0), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(left, right)
    return grid


def _state(word: str) -> Text:
    return Text(printable(word), style=_COLOURS.get(word, ""))


def _age(moment: str | None) -> str:
    if not moment:
        return _NOTHING
    seconds = max(0.0, time.time() - datetime.fromisoformat(moment).timestamp())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _or_dash(written: Callable[[float], str]) -> Callable[[float | None], str]:
    return lambda value: _NOTHING if value is None else written(value)


_whole = _or_dash(lambda value: f"{value:,.0f}")
_mean = _or_dash(lambda value: f"{value:,.1f}")
_milliseconds = _or_dash(lambda value: f"{value:,.0f} ms")
_share = _or_dash(lambda value: f"{value:.1%}")


def _per_second(series: dict[str, Any]) -> str:
    """Calls each second over the last minute."""
    buckets: Iterable[dict[str, Any]] = series["buckets"]
    calls, seconds = (sum(bucket[name] for bucket in buckets) for name in ("calls", "seconds"))
    return f"{calls / seconds:.1f}" if seconds else _NOTHING
