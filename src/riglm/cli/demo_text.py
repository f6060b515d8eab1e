"""The sessions of the demo in a terminal and as a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from riglm.adapters.reporting.chart import Series, chart, lines
from riglm.cli.report_text import draws_blocks, format_bar
from riglm.demo.agent import SessionLog
from riglm.domain.session_cost import Cost

_BLOCK: Final = 4
"""Sessions of one point of the learning curve: one of each kind of work."""

_BAR: Final = 6
_LONG_BAR: Final = 16


@dataclass(frozen=True, slots=True)
class DemoSession:
    """One session: what the agent did, and the figures of what riglm recorded of it.

    `shown` of `available` tools were in the first list. `hits` of `judged` calls were of tools in the list, or sent in
    an earlier result; a list that hides nothing is not judged.
    """

    work: str
    did: SessionLog
    calls: int
    shown: int
    available: int
    judged: int
    hits: int
    cost: Cost

    def to_fields(self) -> dict[str, Any]:
        """Return the session as JSON has it."""
        return {
            "work": self.work,
            "tools": list(self.did.listed),
            "found_by_search": [{"tool": tool, "query": query} for tool, query in self.did.found],
            **summarize([self]),
        }


def summarize(sessions: Sequence[DemoSession]) -> dict[str, Any]:
    """Return the figures of sessions; shares are in percent, costs in tokens of uncached input.

    `calls_listed` counts all calls, `hit_rate` only those made with a list that hid something.
    """
    cost = sum((each.cost for each in sessions), Cost())
    shown, available = sum(each.shown for each in sessions), sum(each.available for each in sessions)
    judged, hits = sum(each.judged for each in sessions), sum(each.hits for each in sessions)
    calls = sum(each.calls for each in sessions)
    return {
        "sessions": len(sessions),
        "tools_listed": round(shown / len(sessions), 1),
        "tools_available": round(available / len(sessions), 1),
        "fewer_tools": round(100 * (1 - shown / available), 1),
        "calls": calls,
        "calls_listed": round(100 * (hits + calls - judged) / calls, 1),
        "judged_calls": judged,
        "hit_rate": round(100 * hits / judged, 1) if judged else None,
        "cost": round(cost.riglm),
        "cost_without_proxy": round(cost.no_proxy),
        "cost_with_host_search": round(cost.host_search),
        "price": round(cost.riglm / cost.no_proxy, 3),
        "price_of_search": round(cost.riglm / cost.host_search, 3),
    }


def print_heading(console: Console, servers: Iterable[str]) -> None:
    """Print what the columns of the sessions are."""
    console.print(f"An agent works through sessions with the servers {', '.join(servers)}.")
    console.print("Each session starts a new riglm process: what it knows comes from the store.")
    console.print("Costs are those of model requests, in tokens of uncached input, with riglm,")
    console.print("without a proxy, and with a host's tool search.\n")
    console.print(f"{'':40}{'cost':^24}{'relative to':^16}", style="dim")
    heads = f"{'#':>2} {'work':14}{'tools listed':16}{'hits':>7}{'riglm':>8}{'no proxy':>9}{'search':>7}"
    console.print(f"{heads}{'no proxy':>9}{'search':>7}", style="dim")


def print_session(console: Console, number: int, session: DemoSession) -> None:
    """Print one session as a line, and below it the searches for tools that were hidden."""
    cost = session.cost
    text = Text(f"{number:>2} {session.work:14}")
    bar = format_bar(session.shown / session.available, _BAR, solid=draws_blocks(console))
    text.append(bar, "yellow").append(f" {f'{session.shown} of {session.available}':9}")
    hits = f"{session.hits}/{session.judged}" if session.judged else "all"
    text.append(f"{hits:>7}{cost.riglm:>8,.0f}{cost.no_proxy:>9,.0f}{cost.host_search:>7,.0f}")
    text.append(f"{cost.price or 0:>9.2f}{cost.price_of_search or 0:>7.2f}", "bold")
    console.print(text)
    for tool, query in session.did.found:
        console.print(f"   the search {query!r} found {tool}", style="dim", soft_wrap=True)


def print_result(console: Console, sessions: Sequence[DemoSession], last: int) -> None:
    """Print the learning curve, what the last sessions show, and how to go on."""
    solid = draws_blocks(console)
    console.print("\nLearning curve", style="bold")
    console.print(f"{'sessions':10}{'tools listed, %':23}{'calls in the list, %':23}price, % of no proxy", style="dim")
    for place, *values in _curve(sessions):
        bars = (f"{format_bar(value / 100, _LONG_BAR, solid=solid)} {value:>4.0f}" for value in values)
        console.print(f"{place:10}{'  '.join(bars)}")
    console.print()
    console.print(sentence(sessions, last), style="bold", soft_wrap=True)
    console.print(_example(sessions), soft_wrap=True)
    console.print("The store of the demo is deleted; nothing of yours was changed. To go on:\n")
    console.print("  riglm init      put riglm in front of the servers of your clients")
    console.print("  riglm report    after some days: the same numbers for your work")


def sentence(sessions: Sequence[DemoSession], last: int) -> str:
    """Return what the last sessions show, in one sentence."""
    its = summarize(sessions[-last:])
    return (
        f"In the last {its['sessions']} sessions riglm listed {its['tools_listed']:.0f} of "
        f"{its['tools_available']:.0f} tools ({its['fewer_tools']:.0f} % fewer), {its['calls_listed']:.0f} % of the "
        f"calls were of tools in the list, and the model requests cost {its['price']:.2f} of what they cost without a "
        f"proxy and {its['price_of_search']:.2f} of what they cost with a host's tool search."
    )


def _example(sessions: Sequence[DemoSession]) -> str:
    """Return what became of the first tool that was found by searches in several sessions and then listed, if any."""
    numbered = list(enumerate(sessions, start=1))
    for tool in dict.fromkeys(tool for each in sessions for tool, _ in each.did.found):
        found = [number for number, each in numbered if tool in dict(each.did.found)]
        listed = [number for number, each in numbered if number > found[0] and tool in each.did.listed]
        if len(found) > 1 and listed:
            return (
                f"{tool} was hidden and found in sessions {found[0]} and {found[1]}, and listed in session {listed[0]}."
            )
    return ""


def _curve(sessions: Sequence[DemoSession]) -> list[tuple[str, float, float, float]]:
    """Return the points of the learning curve: sessions, tools listed, hits and price in percent."""
    points = []
    for first in range(0, len(sessions), _BLOCK):
        its = summarize(sessions[first : first + _BLOCK])
        place = f"{first + 1} to {first + its['sessions']}"
        points.append((place, round(100 - its["fewer_tools"]), round(its["calls_listed"]), round(100 * its["price"])))
    return points


def page(sessions: Sequence[DemoSession], last: int) -> str:
    """Return a page with the learning curve, and what the last sessions show."""
    places, tools, hits, prices = zip(*_curve(sessions), strict=True)
    series = [
        Series("calls in the list", hits),
        Series("tools listed", tools),
        Series("price relative to no proxy", prices),
    ]
    title = "What riglm learned in the sessions of the demo, %"
    style = "body{font:15px system-ui;max-width:60rem;margin:2rem auto}"
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>riglm demo</title><style>{style}</style>\n'
        f"<h1>riglm demo</h1>\n<p>{escape(sentence(sessions, last))}</p>\n{chart(title, places, series, lines)}"
        "</html>\n"
    )
