"""`riglm demo`: a scripted agent works through sessions behind riglm, and each shows what its tool list did."""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from riglm.cli.output import JsonOption, print_json, progress, write_page
from riglm.domain.errors import RiglmError, UnusableInputError
from riglm.domain.shortage import shortage_in

if TYPE_CHECKING:
    from uuid import UUID

    from rich.console import Console

    from riglm.cli.demo_text import DemoSession
    from riglm.demo.agent import SessionLog, WorkSession

_INSTALL_SECONDS: Final = 20.0
_GRACE_SECONDS: Final = 60.0  # Node servers on a busy machine take their time
_STORING_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_STORE: Final = "riglm.db"
_WIDTH_OF_A_PIPE: Final = 100
_LAST: Final = 5
"""The final numbers are those of the last sessions, up to this number."""

Servers = Mapping[str, Mapping[str, Any]]


def demo(
    bundled: Annotated[
        bool, typer.Option("--bundled", help="Use only the bundled servers, even if npx is installed.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="F", help="Write the result as a page, too, with a chart.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show in a minute what riglm learns and saves.

    A scripted agent works through 24 sessions of four kinds of work. Each session starts a new riglm process with real
    MCP servers. The store is temporary, and nothing is left behind.
    """
    if html is not None and (html.is_dir() or not os.access(html.absolute().parent, os.W_OK)):
        raise UnusableInputError(f"--html {html}: no file can be written there — fix: name a file that you may write")
    from rich.console import Console

    console = Console(
        width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE,
        markup=False,
        emoji=False,
        highlight=False,
        quiet=as_json,
    )
    with _temporary_directory() as directory:
        servers, root = _servers(directory, bundled)
        sessions = _play(directory, servers, root, console)
    from riglm.cli.demo_text import page, print_result, summarize

    if as_json:
        result = {"servers": list(servers), "sessions": [each.to_fields() for each in sessions]}
        print_json(result | {"all": summarize(sessions), f"last_{_LAST}": summarize(sessions[-_LAST:])})
    else:
        print_result(console, sessions, _LAST)
    if html is not None:
        write_page(html, page(sessions, _LAST))
        console.print(f"\nas a page: {html}")


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


def _servers(directory: Path, bundled: bool) -> tuple[Servers, str]:
    """Return the servers, and the directory of the files in the arguments of calls."""
    from riglm.demo.agent import ROOT
    from riglm.demo.servers import PACKAGES, bundled_servers, install, npm_servers

    if not bundled:
        with progress("installing reference servers from npm", len(PACKAGES)):
            programs = install(directory / "npm", _INSTALL_SECONDS)
        if programs is not None:
            return npm_servers(programs, directory), f"{directory}{ROOT}"
    return bundled_servers(), ROOT


def _play(directory: Path, servers: Servers, root: str, console: "Console") -> "list[DemoSession]":
    """Run the sessions one after the other, and print each."""
    from riglm.cli.demo_text import print_heading, print_session
    from riglm.demo.agent import plan_sessions

    configuration = directory / "riglm.yaml"
    settings = {
        "mcpServers": servers,
        "storage": {"path": str(directory / _STORE)},
        "embedder": {"provider": "static"},  # a model that loads while sessions run would make runs differ
        "sessions": {"environment_keys": []},
        "timeouts": {"grace": _GRACE_SECONDS},
    }
    configuration.write_text(json.dumps(settings), "utf-8")  # JSON is YAML
    planned = plan_sessions(root)
    shown = console if console.is_terminal and not console.quiet else None
    sessions: list[DemoSession] = []
    seen: set[UUID] = set()
    with (directory / "riglm.log").open("wb") as log, progress("sessions", len(planned), shown) as advance:
        print_heading(console, servers)
        for work in planned:
            sessions.append(_session(directory, configuration, work, log, seen))
            print_session(console, len(sessions), sessions[-1])
            advance(1)
    return sessions


def _session(
    directory: Path, configuration: Path, work: "WorkSession", log: BinaryIO, seen: "set[UUID]"
) -> "DemoSession":
    from riglm.demo.agent import Agent

    # Variables of the user must not change what the demo shows, nor send its traces to the user's collector.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RIGLM_", "OTEL_"))}
    environment["RIGLM_DATA_DIR"] = str(directory)
    command = [sys.executable, "-m", "riglm", "run", "--config", str(configuration)]
    try:
        with Agent(command, directory, environment, log) as agent:
            did = agent.work(work)
            return _figures(f"sqlite:///{directory / _STORE}", work, did, seen)
    except (RiglmError, OSError) as error:
        if words := shortage_in(error):
            raise RiglmError(words) from error
        last = "\n".join((directory / "riglm.log").read_text("utf-8", "replace").splitlines()[-10:])
        raise RiglmError(
            f"the demo failed in a session of {work.title}: {error}; end of riglm's log:\n{last}"
        ) from error


def _figures(url: str, work: "WorkSession", did: "SessionLog", seen: "set[UUID]") -> "DemoSession":
    """Wait until the session is stored, and return its figures as reports have them; `seen` are earlier sessions."""
    from riglm.adapters.analytics.sql import SqlAnalytics
    from riglm.application.evaluation.record import read_figures
    from riglm.cli.demo_text import DemoSession
    from riglm.domain.schemas.section import PriceSettings

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
