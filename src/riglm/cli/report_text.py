"""The report in a terminal."""

import sys
from collections.abc import Sequence
from typing import Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from riglm.cli.output import print_table, printable
from riglm.domain.plurals import format_count

_WIDTH_OF_A_PIPE: Final = 100
_BAR: Final = 24
_MAX_DAYS: Final = 31
_MARKS: Final = {True: ("✓", "+", "green"), False: ("✗", "-", "red"), None: ("?", "?", "yellow")}
_RECORDED: Final = {
    "shadow": "What shadow mode recorded: estimates, of the lists that filtering would have shown",
    "enforce": "What was recorded of lists that were shown",
}


def print_report(found: dict[str, Any], most_tools: int) -> None:
    """Print the report, with at most `tools` tools of each kind."""
    console = Console(
        width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE, markup=False, emoji=False, highlight=False
    )
    console.print(_verdict(found, console))
    if found["bill"]["clients"] or found["verdict"]["code"] != "empty":
        _print_bill(found["bill"], console)
    if found["verdict"]["code"] == "empty":
        return
    for mode, title in _RECORDED.items():
        if found["record"][mode] is not None:
            console.print(_recorded(found["record"][mode], title, searched=mode == "enforce"))
    if found["days"]:
        console.print(_days(found["days"], found["replayed_with"], console))
    _print_strategies(found)
    _print_tools(found["tools"], most_tools)
    console.print(Text(found["explanation"], style="dim"))


def _verdict(found: dict[str, Any], console: Console) -> RenderableType:
    rules, verdict = found["rules"], found["verdict"]
    lines: list[RenderableType] = [Text(verdict["text"], style="bold")]
    lines.append(Text(f"{_sessions_and_calls(found, ', ')}, {found['failed_calls']:,} failed"))
    lines += [Text(line) for line in found["headline"]]
    reasons = Table.grid(padding=(0, 1, 0, 0))
    for reason in verdict["reasons"]:
        mark, plain, colour = _MARKS[reason["met"]]
        reasons.add_row(Text(f"  {mark if draws_blocks(console) else plain}", style=colour), printable(reason["text"]))
    if verdict["reasons"]:
        about = f"filtering.mode {rules['mode']}, strategy {rules['strategy']}, {rules['min_tools']} to "
        about += f"{rules['max_tools']} tools"
        about += "" if rules["coverage"] is None else f" for {rules['coverage']:.0%} of the calls"
        lines += [reasons, Text(printable(about), style="dim")]
    return Group(*lines, Text())


def _print_bill(bill: dict[str, Any], console: Console) -> None:
    """Print what sessions in transcripts were billed, and what the price model computes for as many requests."""
    sizes = ("prompt_tokens", "call_tokens", "output_tokens")
    columns = ("client", "sessions", "requests", "billed", "modeled", "by default", "prompt", "result", "output")
    rows = [
        (
            one["client"],
            one["sessions"],
            one["requests_per_session"],
            *(round(one[price]) for price in ("billed", "modeled", "modeled_by_default")),
            *(round(one["sizes"][size]) for size in sizes),
            f"{one['sizes']['cached_share']:.0%}",
        )
        for one in bill["clients"]
    ]
    if rows:
        title = "Your own bill next to the price model, in tokens of uncached input, and the sizes fitted to it"
        print_table(title, (*columns, "cached"), rows)
    console.print(Text(bill["text"] + "\n"))


def _recorded(its: dict[str, Any], title: str, *, searched: bool) -> RenderableType:
    low, high = its["hit_rate_interval"] or (None, None)
    cost = its["cost"]
    facts = [
        (
            "price, with every request counted",
            f"{_price(cost['price'])} of no proxy, {_price(cost['price_of_search'])} of the host's tool search "
            f"({format_count(cost['sessions'], 'session')})",
        ),
        ("sessions, lists", f"{its['sessions']:,}, {its['lists']:,} ({its['changes']:,} replaced a list)"),
        ("hit rate", f"{_share(its['hit_rate'])} of {its['calls']:,} ({_range(low, high)})"),
        ("the same for tools new to the session", f"{_share(its['new_hit_rate'])} of {its['new_calls']:,}"),
        ("tools in the list at a call", f"{_one(its['mean_list'])} of {_one(its['mean_available'])}"),
        ("missed", _missed(its, searched=searched)),
        (
            "tokens, each list sent once",
            f"{its['tokens_hidden']:,} hidden - {its['tokens_meta_tools']:,} meta-tools - {its['tokens_resent']:,} "
            f"re-sent = {its['tokens_net']:+,} net, {its['net_per_list']:+,.0f} a list",
        ),
        ("surfaces", ", ".join(f"{count:,} {name or 'none'}" for name, count in its["surfaces"].items())),
    ]
    table = _plain_table(title)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(name, printable(text))
    return Group(table, Text())


def _missed(its: dict[str, Any], *, searched: bool) -> str:
    """Return the calls whose tool was not in the list, and what that cost."""
    calls = format_count(its["missed"], "call")
    if not its["missed"]:
        return calls
    return f"{calls}, {its['found_by_search']:,} found by search" if searched else f"{calls}: one search more for each"


def _sessions_and_calls(counts: dict[str, Any], between: str) -> str:
    return f"{format_count(counts['sessions'], 'session')}{between}{format_count(counts['calls'], 'call')}"


def _days(days: Sequence[dict[str, Any]], strategy: str, console: Console) -> RenderableType:
    """The plot: each day's hit rate, list size and net tokens."""
    table = _plain_table(f"Day by day, replayed with {strategy}; tokens as recorded")
    heads = ("day", ">calls", "hit rate", ">%", "95 of 100", "tools in the list", ">", ">tokens net")
    for head in heads:
        table.add_column(
            head.lstrip(">"), justify="right" if head.startswith(">") else "left", header_style="dim", no_wrap=True
        )
    shown = days[-_MAX_DAYS:]
    longest = max((day["mean_list"] or 0 for day in shown), default=0) or 1
    solid = draws_blocks(console)
    for day in shown:
        low, high = day["hit_rate_interval"] or (None, None)
        recorded = day["recorded"]
        table.add_row(
            day["day"],
            f"{day['calls']:,}",
            Text(format_bar((day["hit_rate"] or 0) / 100, _BAR, solid=solid), style="cyan"),
            _one(day["hit_rate"]),
            Text(_range(low, high), style="dim"),
            Text(format_bar((day["mean_list"] or 0) / longest, _BAR // 2, solid=solid), style="yellow"),
            _one(day["mean_list"]),
            f"{recorded['tokens_net']:+,}" if recorded["lists"] else "-",
        )
    return Group(table, Text())


def _print_strategies(found: dict[str, Any]) -> None:
    columns = ("predictor", "price", "requests", "calls", "hit_rate", "range", "new_hit_rate", "range", "mean_list")
    rows = []
    for one in found["strategies"]:
        ranges = [_range(*(one[name] or (None, None))) for name in ("hit_rate_interval", "new_hit_rate_interval")]
        name = f"{one['predictor']} *" if one["predictor"] == found["rules"]["strategy"] else one["predictor"]
        price = "-" if one["price"] is None else f"{one['price']:.3f}"
        requests, hits, new_hits, size = (
            _or_dash(one[key]) for key in ("requests", "hit_rate", "new_hit_rate", "mean_list")
        )
        rows.append((name, price, requests, one["calls"], hits, ranges[0], new_hits, ranges[1], size))
    if rows:
        replayed = found["replayed"]
        of = _sessions_and_calls(replayed, " with ")
        of += f", the latest; {replayed['skipped']:,} before them were skipped" if replayed["skipped"] else ""
        title = f"Replayed by strategy (* configured): {of}"
        print_table(title, columns, rows)


def _print_tools(tools: dict[str, Any], most: int) -> None:
    missed, unused = tools["missed"], tools["never_used"]
    if missed and most:
        columns = ("tool", "server", "missed", "calls", "recorded: missed", "calls", "searched", "by name")
        keys = ("missed", "calls", "recorded_missed", "recorded_calls", "searched", "named")
        rows = [(row["tool"], row["server"], *(_or_dash(row[key]) for key in keys)) for row in missed[:most]]
        print_table("Missed tools: a search finds them, one call more", columns, rows)
        if len(missed) > most:
            typer.echo(f"and {len(missed) - most:,} more")
    if unused:
        names = ", ".join(map(printable, unused[:most]))
        more = f" and {len(unused) - most:,} more" if len(unused) > most else ""
        typer.echo(f"Never used, of the tools that were shown: {len(unused):,}: {names}{more}\n")


def _plain_table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))


def format_bar(share: float, length: int, *, solid: bool) -> str:
    """Return a bar of characters; `solid` draws it with blocks instead of ASCII."""
    full = round(max(0.0, min(1.0, share)) * length)
    return ("█" * full + "·" * (length - full)) if solid else ("#" * full + "." * (length - full))


def draws_blocks(console: Console) -> bool:
    """True if the terminal can show more than ASCII."""
    return console.encoding.lower().startswith("utf")


def _range(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.0f} to {high:.0f} %"


def _share(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.1f} %"


def _price(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _one(number: float | None) -> str:
    return "-" if number is None else f"{number:,.1f}"


def _or_dash(number: float | None) -> object:
    return "-" if number is None else number
