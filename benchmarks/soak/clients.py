"""Clients that call, list, search, set contexts and reconnect, and check every answer."""

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.load.http_session import HttpSession
from benchmarks.load.message import NoAnswer

SERVERS: Final = ("alpha", "beta")
"""The servers behind riglm; both list the same tools."""

_TASKS: Final = (
    "prepare the monthly report of orders",
    "find the branch of the last release",
    "clean up documents that nobody reads",
    "look up what a customer wrote yesterday",
)
TEXTS: Final = tuple(f"{task} {number}" for task in _TASKS for number in range(1000))
"""The contexts and search queries of all clients."""

_WEIGHTS: Final = {"call": 75, "list": 8, "search": 8, "context": 4, "reconnect": 5}


class Measured:
    """What all clients saw since the last `take`. Durations are in seconds."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        """Answers that belong to no request, or say other things than asked, since the start."""
        self._lock = threading.Lock()
        self._seconds: list[float] = []
        self._counts: Counter[str] = Counter()

    def note(self, kind: str, seconds: float | None) -> None:
        """Note the end of an operation; `seconds` is None if it failed."""
        with self._lock:
            self._counts[kind if seconds is not None else "failed"] += 1
            if seconds is not None and kind == "call":
                self._seconds.append(seconds)

    def take(self) -> tuple[list[float], Counter[str]]:
        """Return the sorted durations of calls and the number of operations by kind, and begin again."""
        with self._lock:
            seconds, counts = sorted(self._seconds), self._counts
            self._seconds, self._counts = [], Counter()
        return seconds, counts


class Client(threading.Thread):
    """One client with its own session, which does `rate` operations a second until `stopped` is set.

    It begins with a call and a search in each context of `texts`, which fills what riglm keeps up to a limit.
    """

    def __init__(
        self, port: int, number: int, rate: float, measured: Measured, stopped: threading.Event, texts: Sequence[str]
    ) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._port = port
        self._random = random.Random(number)
        self._pause = 1 / rate
        self._measured = measured
        self._stopped = stopped
        self._session: HttpSession | None = None
        self._number = number
        self._texts = texts
        self._count = 0

    def run(self) -> None:
        """Work until the end; a failure opens a new session."""
        for kind, text in itertools.chain(self._first(), self._mixed()):
            if self._stopped.wait(self._random.expovariate(1 / self._pause)):
                break
            try:
                self._measured.note(kind, self._do(kind, text))
            except (NoAnswer, OSError, KeyError):
                self._measured.note(kind, None)
                self._leave()
                self._stopped.wait(0.5)
        self._leave()

    def _first(self) -> Iterator[tuple[str, str]]:
        return ((kind, text) for text in self._texts for kind in ("context", "call", "search"))

    def _mixed(self) -> Iterator[tuple[str, str]]:
        while True:
            yield self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0], self._random.choice(TEXTS)

    def _do(self, kind: str, text: str) -> float:
        if kind == "reconnect" or self._session is None:
            began = time.perf_counter()
            self._leave()
            self._session = HttpSession(self._port)
            self._session.open()
            return time.perf_counter() - began
        if kind == "call":
            return self._call(self._session)
        if kind == "list":
            took, answer, _ = self._session.ask("tools/list", {})
            names = {tool["name"] for tool in answer.content()["tools"]}
            self._require(bool(names), f"an empty list: {sorted(names)[:3]}")
            return took
        name, key = ("search_available_tools", "query") if kind == "search" else ("set_context", "context")
        took, answer, _ = self._session.ask("tools/call", {"name": name, "arguments": {key: text}})
        answer.content()
        return took

    def _call(self, session: HttpSession) -> float:
        self._count += 1
        text = f"{self._number}-{self._count}"
        name = f"{self._random.choice(SERVERS)}__bench_echo"
        took, answer, _ = session.ask("tools/call", {"name": name, "arguments": {"text": text}})
        self._require(answer.id == session.last_id, f"the answer to {answer.id}, not to {session.last_id}")
        said = answer.text()
        self._require(said == text, f"{said[:80]!r} in place of {text!r}")
        return took

    def _require(self, is_right: bool, words: str) -> None:
        if not is_right:
            self._measured.wrong.append(words)

    def _leave(self) -> None:
        if self._session is not None:
            with contextlib.suppress(NoAnswer, OSError):
                self._session.delete()
            self._session.close()
            self._session = None
