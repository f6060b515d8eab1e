"""Requests that wait for an answer, and how long they may."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
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


class PendingRequests(Deadlines):
    """Finds a waiting request by the key of its id, as the server knows it, or by its reply; ends each one once."""

    def __init__(
        self, name: str, timeout_seconds: UpstreamTimeouts, on_expiry: Callable[[bytes, UpstreamRequest], None]
    ) -> None:
        """`on_expiry` gets the key of a request that timed out, before it fails."""
        super().__init__(name, timeout_seconds)
        self._on_expiry = on_expiry

    def __contains__(self, key: bytes) -> bool:
        return key in self._waiting

    def __iter__(self) -> Iterator[RequestDeadline]:
        return iter(self._waiting.values())

    @property
    def keys(self) -> list[bytes]:
        """The keys of all requests that wait."""
        return [waiting.key for waiting in self]

    @property
    def only(self) -> RequestDeadline | None:
        """The one request that waits, None when there are none or several."""
        return next(iter(self)) if len(self) == 1 else None

    def sent(self, key: bytes, reply: UpstreamRequest) -> None:
        """A request was sent."""
        self.add(reply, self._expired, key)

    def get(self, key: bytes) -> RequestDeadline | None:
        """The request with this key, which goes on waiting."""
        return self._waiting.get(key)

    def pop(self, key: bytes) -> RequestDeadline | None:
        """The request with this key, which waits no longer."""
        return self._waiting.pop(key, None)

    def take_answered(self, answer: Message) -> RequestDeadline | None:
        """The request that an answer is for, which waits no longer.

        An error without an id is for the only request. Results without one, and unknown methods, are for none: some
        servers answer notifications like that.
        """
        raw = answer.id or b"null"
        waiting = self._waiting.pop(jsonrpc.id_key(raw), None)
        if waiting is None and self._waiting:
            if raw != b"null":
                key = jsonrpc.find_id(self.keys, raw)
            else:
                is_for_request = jsonrpc.error_code(answer) not in (None, jsonrpc.METHOD_NOT_FOUND)
                key = self.only.key if is_for_request and self.only is not None else None
            waiting = self.pop(key) if key is not None else None
        return waiting

    def with_progress_token(self, token: bytes) -> RequestDeadline | None:
        """The request that named this progress token."""
        asked = {
            progress_token(each.reply.message): each for each in self if b'"progressToken"' in each.reply.message.line
        }
        by_key = {jsonrpc.id_key(raw): each for raw, each in asked.items() if raw}
        key = jsonrpc.find_id(by_key, token) if token else None
        return by_key[key] if key is not None else None

    def withdraw(self, reply: UpstreamRequest) -> bytes | None:
        """Forget a request that was given up; the key that it had, None when it waits no longer."""
        for waiting in self:
            if waiting.reply is reply:
                self.remove(waiting)
                return waiting.key
        return None

    def fail(self, key: bytes, kind: ErrorKind, words: str) -> bool:
        """End one request without an answer; False when it waits no longer."""
        waiting = self.pop(key)
        if waiting is not None:
            waiting.reply.failed(kind, f"upstream {self._name!r} {words}")
        return waiting is not None

    def fail_all(self, kind: ErrorKind, words: str) -> None:
        """End every request without an answer; those that are added meanwhile are not touched."""
        for waiting in list(self):
            self.fail(waiting.key, kind, words)

    def missed(self, words: str, key: bytes | None) -> None:
        """A response was lost: that to one request, or to an unknown one."""
        if key is None:
            self.fail_all(ErrorKind.PROTOCOL, words)
        else:
            self.fail(key, ErrorKind.PROTOCOL, words)

    def close(self) -> None:
        """End every request, and stop the timeouts."""
        self.fail_all(ErrorKind.UNKNOWN, "did not answer before the link to it was closed")
        super().close()

    def _expired(self, waiting: RequestDeadline) -> None:
        self._on_expiry(waiting.key, waiting.reply)


def progress_token(message: Message) -> bytes:
    """The raw progress token of a request, empty when it has none."""
    meta = jsonrpc.members(message.params).get("_meta")
    return bytes(jsonrpc.members(meta).get("progressToken", b"")) if meta else b""
