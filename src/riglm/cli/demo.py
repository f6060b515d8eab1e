"""`riglm demo`: a scripted agent works through sessions behind riglm, and each shows what its tool list did."""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, BinaryIO, Final
from uuid import UUID

import typer
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.reports import Series, chart, lines
from riglm.application.reports.figures import read_figures
from riglm.cli.output import JsonOption, create_console, print_json, progress, write_file
from riglm.demo.agent import (
    PACKAGES,
    ROOT,
    Agent,
    SessionLog,
    WorkSession,
    bundled_servers,
    install,
    npm_servers,
    plan_sessions,
)
from riglm.domain.errors import RiglmError, UnusableInputError, shortage_in
from riglm.domain.schemas.section import PriceSettings
from riglm.domain.session_cost import Cost

_INSTALL_SECONDS: Final = 20.0
_GRACE_SECONDS: Final = 60.0  # Node servers on a busy machine take their time
_STORING_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_STORE: Final = "riglm.db"
_LAST: Final = 5
"""The final numbers are those of the last sessions, up to this number."""

_BLOCK: Final = 4
"""Sessions of one point of the learning curve: one of each kind of work."""

_BAR_COLUMNS: Final = 16
_PICTURE_COLUMNS: Final = 80

Servers = Mapping[str, Mapping[str, Any]]


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
        **cost.rounded_prices(),
    }


def demo(
    bundled: Annotated[
        bool, typer.Option("--bundled", help="Use only the bundled servers, even if npx is installed.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="F", help="Write the result as a page, too, with a chart.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="F", help="Write what is printed as a picture, too.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show in a minute what riglm learns and saves.

    A scripted agent works through 24 sessions of four kinds of work. Each session starts a new riglm process with real
    MCP servers. The store is temporary, and nothing is left behind.
    """
    for option, file in ("--html", html), ("--svg", svg):
        if file is not None and (file.is_dir() or not os.access(file.absolute().parent, os.W_OK)):
            raise UnusableInputError(
                f"{option} {file}: no file can be written there — fix: name a file that you may write"
            )
    console = create_console(quiet=as_json)
    with _temporary_directory() as directory:
        servers, root = _create_servers(directory, bundled)
        sessions = _run_sessions(directory, servers, root, console)
    if as_json:
        result = {"servers": list(servers), "sessions": [each.to_fields() for each in sessions]}
        print_json(result | {"all": summarize(sessions), f"last_{_LAST}": summarize(sessions[-_LAST:])})
    else:
        _print_result(console, sessions)
    if html is not None:
        write_file("--html", html, _create_page(sessions))
        console.print(f"\nas a page: {html}")
    if svg is not None:
        write_file("--svg", svg, _create_picture(servers, sessions))
        console.print(f"\nas a picture: {svg}")


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    """A directory that is deleted after success, failure, Ctrl-C, SIGTERM and SIGHUP."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with tempfile.TemporaryDirectory(prefix="riglm-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _create_servers(directory: Path, bundled: bool) -> tuple[Servers, str]:
    """Return the servers, and the directory of the files in the arguments of calls."""
    if not bundled:
        with progress("installing reference servers from npm", len(PACKAGES)):
            programs = install(directory / "npm", _INSTALL_SECONDS)
        if programs is not None:
            return npm_servers(programs, directory), f"{directory}{ROOT}"
    return bundled_servers(), ROOT


def _run_sessions(directory: Path, servers: Servers, root: str, console: Console) -> list[DemoSession]:
    """Run the sessions one after the other, and print each."""
    configuration = directory / "riglm.yaml"
    settings = {
        "mcpServers": servers,
        "storage": {"path": str(directory / _STORE)},
        "embedder": {"provider": "static"},  # a model that loads while sessions run would make runs differ
        "predictor": {"options": {"without": ["moment"]}},  # so would a part of the day that begins meanwhile
        "sessions": {"environment_keys": []},
        "timeouts": {"grace": _GRACE_SECONDS},
    }
    configuration.write_text(json.dumps(settings), "utf-8")  # JSON is YAML
    planned = plan_sessions(root)
    shown = console if console.is_terminal and not console.quiet else None
    sessions: list[DemoSession] = []
    seen: set[UUID] = set()
    with (directory / "riglm.log").open("wb") as log, progress("sessions", len(planned), shown) as advance:
        _print_heading(console, servers)
        for work in planned:
            sessions.append(_run_session(directory, configuration, work, log, seen))
            _print_session(console, len(sessions), sessions[-1])
            advance(1)
    return sessions


def _run_session(
    directory: Path, configuration: Path, work: WorkSession, log: BinaryIO, seen: set[UUID]
) -> DemoSession:
    # Variables of the user must not change what the demo shows, nor send its traces to the user's collector.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RIGLM_", "OTEL_"))}
    environment["RIGLM_DATA_DIR"] = str(directory)
    command = [sys.executable, "-m", "riglm", "run", "--config", str(configuration)]
    try:
        with Agent(command, directory, environment, log) as agent:
            did = agent.work(work)
            return _read_figures(f"sqlite:///{directory / _STORE}", work, did, seen)
    except (RiglmError, OSError) as error:
        if words := shortage_in(error):
            raise RiglmError(words) from error
        last = "\n".join((directory / "riglm.log").read_text("utf-8", "replace").splitlines()[-10:])
        raise RiglmError(
            f"the demo failed in a session of {work.title}: {error}; end of riglm's log:\n{last}"
        ) from error


def _read_figures(url: str, work: WorkSession, did: SessionLog, seen: set[UUID]) -> DemoSession:
    """Wait until the session is stored, and return its figures as reports have them; `seen` are earlier sessions."""
    deadline = time.monotonic() + _STORING_SECONDS
    with SqlAnalytics(url) as store:
        while True:
            record = read_figures(store, PriceSettings().prices(), limit=1)
            if len(record.uses) == len(work.steps) and record.sessions[0].id not in seen:
                break
            if time.monotonic() > deadline:
                raise RiglmError(f"riglm did not store the {len(work.steps)} calls within {_STORING_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)
    seen.add(record.sessions[0].id)
    judged = record.judged
    return DemoSession(
        work=work.title,
        did=did,
        calls=len(work.steps),
        shown=record.lists[0].shown,
        available=record.lists[0].available,
        judged=len(judged),
        hits=sum(use.is_hit for use in judged),
        cost=record.costs[0].cost,
    )


def _print_heading(console: Console, servers: Iterable[str]) -> None:
    console.print(f"An agent works through sessions with the servers {', '.join(servers)}.")
    console.print("Each session starts a new riglm process: what it knows comes from the store.")
    console.print("Costs are those of model requests, in tokens of uncached input, with riglm,")
    console.print("without a proxy, and with a host's tool search.\n")
    console.print(f"{'':33}{'cost':^24}{'relative to':^16}", style="dim")
    heads = f"{'#':>2} {'work':14}{'tools':9}{'hits':>7}{'riglm':>8}{'no proxy':>9}{'search':>7}"
    console.print(f"{heads}{'no proxy':>9}{'search':>7}", style="dim")


def _print_session(console: Console, number: int, session: DemoSession) -> None:
    """Print one session as a line, and below it the searches for tools that were hidden."""
    cost, listed = session.cost, f"{session.shown} of {session.available}"
    hits = f"{session.hits}/{session.judged}" if session.judged else "all"
    costs = f"{cost.riglm:>8,.0f}{cost.no_proxy:>9,.0f}{cost.host_search:>7,.0f}"
    prices = f"{cost.price or 0:>9.2f}{cost.price_of_search or 0:>7.2f}"
    console.print(f"{number:>2} {session.work:14}{listed:9}{hits:>7}{costs}{prices}")
    for tool, query in session.did.found:
        console.print(f"   search {query!r}: {tool}", style="dim")


def _print_result(console: Console, sessions: Sequence[DemoSession]) -> None:
    """Print the learning curve, what the last sessions show, and how to go on."""
    table = Table(
        title="Learning curve", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    for head in ("sessions", "tools listed, %", "", "calls in the list, %", "", "price, % of no proxy", ""):
        table.add_column(head, justify="left" if head else "right")
    for place, *values in _learning_curve(sessions):
        cells = ((ProgressBar(100, value, width=_BAR_COLUMNS), f"{value:.0f}") for value in values)
        table.add_row(place, *(cell for pair in cells for cell in pair))
    console.print("", table, "")
    console.print(_format_result(sessions), style="bold")
    console.print(_format_example(sessions))
    console.print("The store of the demo is deleted; nothing of yours was changed. To go on:\n")
    console.print("  riglm init      put riglm in front of the servers of your clients")
    console.print("  riglm report    after some days: the same numbers for your work")


def _format_result(sessions: Sequence[DemoSession]) -> str:
    """Return what the last sessions show, in one sentence."""
    its = summarize(sessions[-_LAST:])
    return (
        f"In the last {its['sessions']} sessions riglm listed {its['tools_listed']:.0f} of "
        f"{its['tools_available']:.0f} tools ({its['fewer_tools']:.0f} % fewer), {its['calls_listed']:.0f} % of the "
        f"calls were of tools in the list, and the model requests cost {its['price']:.2f} of what they cost without a "
        f"proxy and {its['price_of_search']:.2f} of what they cost with a host's tool search."
    )


def _format_example(sessions: Sequence[DemoSession]) -> str:
    """Return what became of the first tool that was found by searches in several sessions and then listed, if any."""
    for tool in dict.fromkeys(tool for each in sessions for tool, _ in each.did.found):
        found = [place for place, each in enumerate(sessions) if tool in dict(each.did.found)]
        if len(found) > 1 and any(tool in each.did.listed for each in sessions[found[-1] :]):
            return f"{tool} was searched for in {len(found)} sessions, then listed."
    return ""


def _learning_curve(sessions: Sequence[DemoSession]) -> list[tuple[str, float, float, float]]:
    """Return the points of the learning curve: sessions, tools listed, hits and price in percent."""
    points = []
    for first in range(0, len(sessions), _BLOCK):
        its = summarize(sessions[first : first + _BLOCK])
        place = f"{first + 1} to {first + its['sessions']}"
        points.append((place, round(100 - its["fewer_tools"]), round(its["calls_listed"]), round(100 * its["price"])))
    return points


def _create_page(sessions: Sequence[DemoSession]) -> str:
    """Return a page with the learning curve, and what the last sessions show."""
    places, tools, hits, prices = zip(*_learning_curve(sessions), strict=True)
    series = [
        Series("calls in the list", hits),
        Series("tools listed", tools),
        Series("price relative to no proxy", prices),
    ]
    title = "What riglm learned in the sessions of the demo, %"
    style = "body{font:15px system-ui;max-width:60rem;margin:2rem auto}"
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>riglm demo</title><style>{style}</style>\n'
        f"<h1>riglm demo</h1>\n<p>{escape(_format_result(sessions))}</p>\n{chart(title, places, series, lines)}"
        "</html>\n"
    )


def _create_picture(servers: Iterable[str], sessions: Sequence[DemoSession]) -> str:
    """Return what the demo prints as a picture of a terminal, which scrolls to its end once."""
    console = Console(
        width=_PICTURE_COLUMNS, record=True, file=StringIO(), color_system="truecolor", markup=False, highlight=False
    )
    _print_heading(console, servers)
    for number, session in enumerate(sessions, start=1):
        _print_session(console, number, session)
    _print_result(console, sessions)
    form = Path(__file__).with_suffix(".svg").read_text("utf-8")
    return console.export_svg(code_format=form, unique_id="demo")
