"""Many sessions at once, all with equal ids, each asking for a text of its own: does anybody get another's answer?"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.load.flood import Flood, open_sessions
from benchmarks.load.http_session import HttpSession
from benchmarks.load.message import Answer, echo
from benchmarks.load.resources import resident_mib
from benchmarks.overhead.target import start_upstream, upstream_command
from benchmarks.process import Process
from benchmarks.sessions.finding import Finding
from benchmarks.subject import Served

_SECONDS = 120.0


def ask_nonces(riglm: tuple[str, ...], upstream: str, sessions: int, calls: int, directory: Path) -> Iterator[Finding]:
    """`calls` calls in each of so many concurrent sessions, with the upstream over `http` or on `stdio`.

    Raises:
        NoAnswer: a session was refused, or answers are missing.
        StartFailed: riglm or the upstream did not start.
    """
    server, behind = _upstream(upstream, directory)
    try:
        served = Served(riglm, behind, directory / upstream)
        try:
            yield from _asked(served, upstream, sessions, calls)
        finally:
            served.process.stop()
    finally:
        if server is not None:
            server.stop()


def _upstream(kind: str, directory: Path) -> tuple[Process | None, list[str]]:
    if kind == "stdio":
        return None, ["--", *upstream_command("stdio", 10)]
    server, port = start_upstream(10, directory)
    return server, ["--url", f"http://127.0.0.1:{port}/mcp"]


def _asked(served: Served, upstream: str, count: int, calls: int) -> Iterator[Finding]:
    sessions = open_sessions(served.port, count, _SECONDS)
    try:
        nonces = {session: f"nonce {number} of {served.port}" for number, session in enumerate(sessions)}
        for session in sessions:
            session.last_id = -1

        def is_own(session: HttpSession, answer: Answer) -> bool:
            return answer.text() == nonces[session]

        total = calls * len(sessions)
        flood = Flood(sessions, total, _SECONDS, lambda session: echo(nonces[session]), is_own).run()
    finally:
        for session in sessions:
            session.close()
    where = f"{count:,} sessions at once, upstream over {upstream}"
    yield Finding(f"{where}: sessions that did not open", count - len(sessions), limit=0)
    yield Finding(
        f"{where}: wrong or missing answers of {total:,}", total - len(flood.latencies) + flood.wrong, limit=0
    )
    yield Finding(f"{where}: calls/s", len(flood.latencies) / flood.seconds)
    yield Finding(f"{where}: slowest call", max(flood.latencies), "s")
    yield Finding(f"{where}: memory", resident_mib(served.process.pid), "MiB")
