"""The calls of a modern client while Redis is available, and while it is not."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.stores.valkey import ValkeyServer

from benchmarks.many_processes.processes import riglms
from benchmarks.many_processes.session import Ports, Session, Tally

_SECONDS = 3.0
_WARM_UP = 200


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


async def _call(session: Session) -> None:
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        await session.call(len(session.tally.seconds))


def calls_meanwhile(what: str, session: Session, step: Callable[[], None]) -> Away:
    """Call for a while after `step` was done."""
    step()
    session.tally = Tally()
    asyncio.run(_call(session))
    took = sorted(seconds * 1000 for seconds in session.tally.seconds)
    return Away(
        what=what,
        calls=len(took),
        failed=len(session.tally.wrong) + session.tally.cut,
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
            session = Session("away", "modern", Ports(actors.ports), 0)
            asyncio.run(_warm_up(session))
            yield calls_meanwhile(name, session, lambda: None)
            if name == "shared":
                yield from _troubles(session, actors.state)


async def _warm_up(session: Session) -> None:
    await session.open()
    for number in range(_WARM_UP):
        await session.call(number)


def _troubles(session: Session, state: ValkeyServer) -> Iterator[Away]:
    yield calls_meanwhile("frozen (SIGSTOP)", session, state.freeze)
    yield calls_meanwhile("thawed", session, state.thaw)
    yield calls_meanwhile("killed", session, state.kill)
    yield calls_meanwhile("started again, empty", session, state.start)
    yield calls_meanwhile("out of memory", session, lambda: _limit(state, "1"))
    yield calls_meanwhile("with memory again", session, lambda: _limit(state, "0"))


def _limit(state: ValkeyServer, size: str) -> None:
    state.ask("CONFIG", "SET", "maxmemory", size)
