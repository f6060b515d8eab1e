"""Many HTTP connections at once, each with one request under way."""

import selectors
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from benchmarks.load.http_session import HttpSession
from benchmarks.load.message import Answer, NoAnswer, request

_LAST_ANSWERS_SECONDS = 60.0
clock = time.perf_counter

Ask = Callable[[HttpSession], object]
"""The params of a session's next call."""
Check = Callable[[HttpSession, Answer], bool]
"""Whether an answer is the right one for the session."""


class Flood:
    """Calls on all sessions until `total` are answered, or the seconds are over."""

    def __init__(self, sessions: Sequence[HttpSession], total: int, seconds: float, ask: Ask, check: Check) -> None:
        """Nothing is sent yet."""
        self.latencies: list[float] = []
        self.wrong = 0
        self.seconds = 0.0
        self._sessions = sessions[:total]
        self._left = total
        self._limit = seconds
        self._ask, self._check = ask, check

    def run(self) -> "Flood":
        """Send and receive; `latencies` in seconds, `wrong` answers and `seconds` in all are there afterwards.

        Raises:
            NoAnswer: some calls had no answer a minute after no more were sent.
        """
        start = clock()
        under_way = 0
        with selectors.DefaultSelector() as selector:
            for session in self._sessions:
                self._fire(session, selector)
                under_way += 1
            while under_way:
                ready = selector.select(1)
                if clock() - start > self._limit + _LAST_ANSWERS_SECONDS:
                    raise NoAnswer(f"{under_way} calls were not answered within {_LAST_ANSWERS_SECONDS:g} s")
                for key, _ in ready:
                    if self._took(key.data, key.fileobj, selector):
                        under_way -= 1
                        if self._left > 0 and clock() - start < self._limit:
                            self._fire(key.data, selector)
                            under_way += 1
        self.seconds = clock() - start
        return self

    def _fire(self, session: HttpSession, selector: selectors.BaseSelector) -> None:
        self._left -= 1
        session.last_id += 1
        before = session.socket
        session.send("POST", request("tools/call", self._ask(session), session.last_id))
        assert session.socket is not None
        if session.socket is not before and before is not None:
            _forget(before, selector)
        if session.socket not in selector.get_map():
            selector.register(session.socket, selectors.EVENT_READ, session)

    def _took(self, session: HttpSession, connection: Any, selector: selectors.BaseSelector) -> bool:
        """Read; whether the call is over, answered or lost."""
        try:
            session.read()
        except (NoAnswer, OSError):
            self.wrong += 1
            session.close()
        else:
            if not session.is_answered:
                return False
            self.latencies.append(clock() - session.sent_at)
            self.wrong += not self._is_right(session)
        if session.socket is None:
            _forget(connection, selector)
        return True

    def _is_right(self, session: HttpSession) -> bool:
        try:
            answer, _ = session.answer()
            return answer.id == session.last_id and self._check(session, answer)
        except NoAnswer:
            return False


def _forget(connection: Any, selector: selectors.BaseSelector) -> None:
    with suppress(KeyError, ValueError):
        selector.unregister(connection)


def open_sessions(port: int, count: int, seconds: float = 60) -> list[HttpSession]:
    """So many open sessions, or fewer if the time is over before.

    Raises:
        NoAnswer: one was refused.
    """
    sessions: list[HttpSession] = []
    start = clock()
    while len(sessions) < count and clock() - start < seconds:
        session = HttpSession(port)
        session.open()
        sessions.append(session)
    return sessions
