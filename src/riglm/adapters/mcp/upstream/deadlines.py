"""Requests that wait for an answer, and how long they may."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from riglm.domain.invocation import ErrorKind
from riglm.ports.upstream import UpstreamRequest

_SWEEP_SECONDS: Final = 0.25
_FOREVER: Final = float("inf")
_PROBE_SECONDS: Final = 5.0


class PausableClock:
    """Seconds that pass, but not while riglm holds a server back: the server is not to blame for those."""

    def __init__(self) -> None:
        """A clock that runs."""
        self._stopped: float | None = None
        self._lost = 0.0

    def __call__(self) -> float:
        """The time now, in seconds from some beginning."""
        return (time.monotonic() if self._stopped is None else self._stopped) - self._lost

    def hold(self, *, on: bool) -> None:
        """Pause, or resume."""
        now = time.monotonic()
        if on and self._stopped is None:
            self._stopped = now
        elif not on and self._stopped is not None:
            self._lost += now - self._stopped
            self._stopped = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTimeouts:
    """Seconds to wait for an upstream; `call` restarts with each progress notification."""

    clock: Callable[[], float] = time.monotonic

    connect: float = 10.0
    initialize: float = 30.0
    list: float = 30.0
    call: float = 900.0
    call_max: float = 14_400.0
    shutdown: float = 2.0

    def of(self, method: str | None) -> tuple[float, float]:
        """The time without a sign of life and the time in all for a request."""
        match method:
            case "initialize":
                return self.initialize, self.initialize
            case "server/discover":
                seconds = min(self.initialize, _PROBE_SECONDS)
                return seconds, seconds
            case "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list":
                return self.list, self.list
            case "subscriptions/listen":
                return _FOREVER, _FOREVER
            case _:
                return self.call, self.call_max


@dataclass(slots=True, eq=False)
class RequestDeadline:
    """One request that waits for its answer, since `last` without a sign of life."""

    reply: UpstreamRequest
    timeout_seconds: float
    most: float
    clock: Callable[[], float]
    on_expiry: Callable[["RequestDeadline"], None]
    key: bytes
    """The id that the server knows it by, where that is its owner's to know."""
    last: float
    until: float
    has_progressed: bool = False

    def progressed(self) -> None:
        """The upstream gave a sign of life for this request."""
        self.has_progressed = True
        self.last = self.clock()


class Deadlines:
    """Ends requests that waited too long; looks a few times a second, and only while something waits."""

    def __init__(self, name: str, timeout_seconds: UpstreamTimeouts) -> None:
        """Deadlines for requests to the upstream called `name`, over any number of links."""
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._waiting: dict[bytes | int, RequestDeadline] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, reply: UpstreamRequest, on_expiry: Callable[[RequestDeadline], None], key: bytes = b""
    ) -> RequestDeadline:
        """Start the timeout of a request; `on_expiry` is called before it fails, to notify the upstream too.

        `key` is the id that the server knows it by, where that is its owner's to know; no other request has it.
        """
        timeout_seconds, most = self._timeout_seconds.of(reply.message.method)
        clock = self._timeout_seconds.clock
        now = clock()
        waiting = RequestDeadline(reply, timeout_seconds, most, clock, on_expiry, key, now, now + most)
        self._waiting[key or id(waiting)] = waiting
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)
        return waiting

    def remove(self, waiting: RequestDeadline) -> None:
        """The request is answered or given up."""
        self._waiting.pop(waiting.key or id(waiting), None)

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _sweep(self) -> None:
        now = self._timeout_seconds.clock()
        late = [one for one in self._waiting.values() if now > one.until or now - one.last > one.timeout_seconds]
        loop = asyncio.get_running_loop()
        for waiting in late:  # each separately: a client that raises must not delay the others
            loop.call_soon(self._expire, waiting, now - waiting.last > waiting.timeout_seconds)
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep) if self._waiting else None

    def _expire(self, waiting: RequestDeadline, was_quiet: bool) -> None:
        if self._waiting.get(waiting.key or id(waiting)) is not waiting:
            return  # it was answered in the last moment
        self.remove(waiting)
        waiting.on_expiry(waiting)
        seconds = waiting.timeout_seconds if was_quiet else waiting.most
        words = f"did not answer {waiting.reply.message.method} within {seconds:g} s"
        if was_quiet and waiting.has_progressed:
            words += " of its last message"
        waiting.reply.failed(ErrorKind.TIMEOUT, f"upstream {self._name!r} {words}")
