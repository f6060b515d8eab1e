"""What sessions leave in a riglm that goes on: memory, processes, files."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.load.flood import open_sessions
from benchmarks.load.message import NoAnswer, echo
from benchmarks.load.resources import open_files, resident_mib
from benchmarks.overhead.target import start_upstream, upstream_command
from benchmarks.sessions.finding import Finding
from benchmarks.subject import Served

_HANDFUL = 5
"""Sessions before the memory is looked at first: a user who looks at a riglm that just started sees the same."""

_CLOSED_LIMIT_KIB = 4.0
_ABANDONED_LIMIT_MIB = 20.0
_SETTLE_SECONDS = 3.0
_REAPER_SECONDS = 45.0  # to close them all, and for idle connections to the upstream to be dropped


def closed(riglm: tuple[str, ...], count: int, directory: Path) -> Iterator[Finding]:
    """Sessions that are opened, list the tools, call one and are closed, in turn; the upstream is reached over HTTP.

    Raises:
        NoAnswer: a session was refused.
        StartFailed: riglm or the upstream did not start.
    """
    server, port = start_upstream(10, directory)
    served = Served(riglm, ["--url", f"http://127.0.0.1:{port}/mcp"], directory / "closed")
    try:
        _use(served, _HANDFUL, politely=True)
        memory, files = resident_mib(served.process.pid), open_files(served.process.pid)
        _use(served, count, politely=True)
        time.sleep(_SETTLE_SECONDS)
        left = 1024 * (resident_mib(served.process.pid) - memory) / count
        yield Finding(f"{count:,} closed sessions: left by each", left, "KiB", _CLOSED_LIMIT_KIB)
        more = open_files(served.process.pid) - files
        yield Finding(f"{count:,} closed sessions: files left open", more, limit=0)
    finally:
        served.process.stop()
        server.stop()


def abandoned(riglm: tuple[str, ...], count: int, idle_seconds: int, directory: Path) -> Iterator[Finding]:
    """Sessions that are opened, list the tools, call one and are never heard of again, until the timeout closed them.

    Raises:
        NoAnswer: a session was refused.
        StartFailed: riglm or the upstream did not start.
    """
    server, port = start_upstream(10, directory)
    idle = {"RIGLM_DOWNSTREAM__SESSION_IDLE": str(idle_seconds)}
    served = Served(riglm, ["--url", f"http://127.0.0.1:{port}/mcp"], directory / "abandoned", **idle)
    try:
        _use(served, _HANDFUL, politely=True)
        memory, files = resident_mib(served.process.pid), open_files(served.process.pid)
        _use(served, count, politely=False)
        most = resident_mib(served.process.pid) - memory
        yield Finding(f"{count:,} abandoned sessions: memory while open, more", most, "MiB")
        time.sleep(idle_seconds + _REAPER_SECONDS)
        left = resident_mib(served.process.pid) - memory
        yield Finding(
            f"{count:,} abandoned sessions: memory after the timeout, more", left, "MiB", _ABANDONED_LIMIT_MIB
        )
        more = open_files(served.process.pid) - files
        yield Finding(f"{count:,} abandoned sessions: files left open", more, limit=0)
    finally:
        served.process.stop()
        server.stop()


def processes(riglm: tuple[str, ...], count: int, directory: Path) -> Iterator[Finding]:
    """Sessions that each have a process of their own behind them, opened together and closed.

    Raises:
        NoAnswer: a session was refused.
        StartFailed: riglm did not start.
    """
    served = Served(riglm, ["--", *upstream_command("stdio", 10)], directory / "processes")
    where = f"{count} sessions on stdio upstreams"
    try:
        for _ in range(2):
            _together(served, count)  # opens what then stays open: the database, the guardian of the processes
        before, files = _children(served), open_files(served.process.pid)
        yield Finding(f"{where}: processes while open", _together(served, count))
        yield Finding(f"{where}: processes left", _children(served) - before, limit=0)
        yield Finding(f"{where}: files left open", open_files(served.process.pid) - files, limit=0)
    finally:
        served.process.stop()


def _together(served: Served, count: int) -> int:
    sessions = open_sessions(served.port, count)
    most = _children(served)
    for session in sessions:
        session.delete()
        session.close()
    time.sleep(_SETTLE_SECONDS)
    return most


def _use(served: Served, count: int, *, politely: bool) -> None:
    for _ in range(count):
        (session,) = open_sessions(served.port, 1)
        session.ask("tools/list", {})
        session.ask("tools/call", echo("ok"))[1].text()
        if politely:
            with suppress(NoAnswer):
                session.delete()
        session.close()


def _children(served: Served) -> int:
    return len(psutil.Process(served.process.pid).children(recursive=True))
