"""The measurements of one running target. Each takes a second or so, since all targets are visited in turn."""

import json
import statistics
from collections import defaultdict
from contextlib import suppress
from typing import Any

from benchmarks.load.flood import Flood, open_sessions
from benchmarks.load.http_session import HttpSession, clock
from benchmarks.load.message import NoAnswer, echo, sleep
from benchmarks.load.resources import processor_seconds, resident_mib
from benchmarks.overhead.target import Running

BATCH_SECONDS = 0.6
LISTS, CALLS, WARM_UPS = 40, 300, 1
IN_FLIGHT, SESSIONS = 16, 200
LEFT_SECONDS, LEFT_SESSIONS, LEFT_WARM_UPS = 2.0, 1000, 50


class Record:
    """What was measured of one target: latencies, of which the percentiles count, and figures, of which the median."""

    def __init__(self) -> None:
        """Nothing measured yet."""
        self._latencies: dict[str, list[float]] = defaultdict(list)
        self._figures: dict[str, list[float]] = defaultdict(list)

    def latency(self, name: str, seconds: list[float]) -> None:
        """Add latencies in seconds."""
        self._latencies[name] += seconds

    def figure(self, name: str, value: float) -> None:
        """Add a figure."""
        self._figures[name].append(value)

    def summary(self) -> dict[str, float]:
        """NAME_p50 and NAME_p99 of all latencies, and the median of each figure."""
        found = {name: statistics.median(values) for name, values in self._figures.items()}
        for name, values in self._latencies.items():
            ascending = sorted(values)
            found[f"{name}_p50"] = statistics.median(ascending)
            found[f"{name}_p99"] = ascending[min(len(ascending) - 1, int(0.99 * len(ascending)))]
        return found


def one_at_a_time(running: Running, record: Record, name: str, method: str, params: Any, most: int) -> None:
    """Requests one after the other: their latency, and the proxy's processor time for each."""
    for _ in range(WARM_UPS):
        running.session.ask(method, params)
    latencies: list[float] = []
    before, end = processor_seconds(running.pid), clock() + BATCH_SECONDS
    while not latencies or (len(latencies) < most and clock() < end):
        latencies.append(running.session.ask(method, params)[0])
    record.latency(name, latencies)
    if running.target.command:
        record.figure(f"{name}_processor", (processor_seconds(running.pid) - before) / len(latencies))


def in_flight(running: Running, record: Record) -> None:
    """Calls a second with several under way in one session, and the seconds of slow calls that should overlap."""
    rate = 1 / max(1e-5, running.session.ask("tools/call", echo("ok"))[0])
    total = int(max(2 * IN_FLIGHT, min(4000, rate * BATCH_SECONDS)))
    seconds, latencies = _flood(running, echo("ok"), total, IN_FLIGHT)
    record.figure("rate_16", len(latencies) / seconds)
    record.figure("slow_calls", _flood(running, sleep(20), 64, 32)[0])


def _flood(running: Running, params: Any, total: int, width: int) -> tuple[float, list[float]]:
    session = running.session
    if not isinstance(session, HttpSession):
        return session.flood(params, total, width)
    while len(running.beside) < width:
        running.beside.append(session.beside(len(running.beside) + 1))
    flood = Flood(
        running.beside[:width], total, BATCH_SECONDS * 4, lambda _: params, lambda _, answer: bool(answer.text())
    )
    flood.run()
    if flood.wrong:
        raise NoAnswer(f"{flood.wrong} of {total} calls failed")
    return flood.seconds, flood.latencies


def upstream_requests(running: Running, record: Record) -> None:
    """How many requests the upstream gets for one list and one call."""

    def seen() -> dict[str, int]:
        found: dict[str, int] = json.loads(running.session.ask("tools/call", echo("#stats"))[1].text())
        return found

    before = seen()
    running.session.ask("tools/list", {})
    running.session.ask("tools/call", echo("ok"))
    after = seen()
    record.figure("upstream_requests", sum(after.values()) - sum(before.values()) - 1)


def many_sessions(running: Running, record: Record) -> None:
    """Calls a second over many sessions, each with one call under way and a text of its own."""
    assert isinstance(running.session, HttpSession)
    sessions = open_sessions(running.session.port, SESSIONS, 10)
    try:
        names = {session: f"nonce-{number}" for number, session in enumerate(sessions)}
        flood = Flood(
            sessions,
            5 * len(sessions),
            BATCH_SECONDS * 4,
            lambda session: echo(names[session]),
            lambda session, answer: answer.text() == names[session],
        ).run()
        record.figure("sessions_opened", len(sessions))
        record.figure("sessions_rate", len(flood.latencies) / flood.seconds)
        record.figure("sessions_wrong", flood.wrong)
        record.latency("sessions", flood.latencies)
        if running.target.command:
            record.figure("sessions_mib", resident_mib(running.pid))
    finally:
        for session in sessions:
            with suppress(NoAnswer, OSError):
                session.delete()
            session.close()


def left_behind(running: Running, record: Record, *, politely: bool) -> None:
    """KiB that a session leaves which was used once, and closed or just abandoned."""
    assert isinstance(running.session, HttpSession)
    for count, name in ((LEFT_WARM_UPS, ""), (LEFT_SESSIONS, "closed_kib" if politely else "abandoned_kib")):
        before, end, opened = resident_mib(running.pid), clock() + LEFT_SECONDS, 0
        while opened < count and clock() < end:
            for session in open_sessions(running.session.port, 1):
                session.ask("tools/call", echo("ok"))
                if politely:
                    session.delete()
                session.close()
            opened += 1
        if name:
            record.figure(name, 1024 * (resident_mib(running.pid) - before) / opened)
