"""What a client notices when the shared state goes away, and what riglm costs while it is there."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.stores.valkey import ValkeyServer

from benchmarks.load.http_session import HttpSession
from benchmarks.load.message import NoAnswer
from benchmarks.many_processes.processes import riglms

_CALL = {"name": "nonce", "arguments": {"nonce": "n"}}
_SECONDS = 3.0


@dataclass(frozen=True)
class Away:
    """Calls of one client, one after the other; times in milliseconds.

    `first_ms` is the slowest of the calls, `second_ms` the one after that.
    """

    what: str
    calls: int
    failed: int
    p50_ms: float
    p99_ms: float
    first_ms: float
    second_ms: float


def calls_meanwhile(what: str, session: HttpSession, step: Callable[[], None]) -> Away:
    """Call for a while after `step` was done."""
    step()
    took, failed = [], 0
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            _, answer, _ = session.ask("tools/call", _CALL)
            failed += answer.content()["content"][0]["text"] != "n"
        except (NoAnswer, OSError, KeyError):
            failed += 1
        took.append((time.monotonic() - began) * 1000)
    took.sort()
    return Away(
        what=what,
        calls=len(took),
        failed=failed,
        p50_ms=statistics.median(took),
        p99_ms=took[len(took) * 99 // 100],
        first_ms=took[-1],
        second_ms=took[-2],
    )


def measure(directory: Path) -> Iterator[Away]:
    """Alone, with shared state, and with each trouble of it."""
    for name, extra in (("alone", {"RIGLM_STATE__KIND": "memory", "RIGLM_STATE__URL": ""}), ("shared", {})):
        place = directory / name
        place.mkdir()
        with riglms(1, "", place, {"RIGLM_FILTERING__ENABLED": "false", **extra}) as actors:
            session = HttpSession(actors.ports[0])
            session.open()
            for _ in range(200):
                session.ask("tools/call", _CALL)
            yield calls_meanwhile(name, session, lambda: None)
            if name == "shared":
                yield from _troubles(session, actors.state)


def _troubles(session: HttpSession, state: ValkeyServer) -> Iterator[Away]:
    yield calls_meanwhile("frozen (SIGSTOP)", session, state.freeze)
    yield calls_meanwhile("thawed", session, state.thaw)
    yield calls_meanwhile("killed", session, state.kill)
    yield calls_meanwhile("started again, empty", session, state.start)
    yield calls_meanwhile("out of memory", session, lambda: _limit(state, "1"))
    yield calls_meanwhile("with memory again", session, lambda: _limit(state, "0"))


def _limit(state: ValkeyServer, size: str) -> None:
    state.ask("CONFIG", "SET", "maxmemory", size)
