"""Requests that wait for a response, and the timeouts that end them."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import UpstreamRequest

_SWEEP_SECONDS: Final = 0.25
_FOREVER: Final = float("inf")
_PROBE_SECONDS: Final = 5.0
_MAX_GIVEN_UP: Final = 100
"""Number of requests that were given up last, whose late responses are recognized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTimeouts:
    """Seconds to wait for an upstream; `call` restarts with each progress notification."""

    connect: float = 10.0
    initialize: float = 30.0
    list: float = 30.0
    call: float = 900.0
    call_max: float = 14_400.0
    shutdown: float = 2.0

    def for_method(self, method: str | None) -> tuple[float, float]:
        """Return the time without a sign of life and the time in all for a request."""
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


class PendingRequest:
    """One request that waits for its response."""

    __slots__ = ("key", "last", "reply", "started")

    def __init__(self, reply: UpstreamRequest, key: bytes = b"") -> None:
        """`key` is the id that the server knows it by, if links find it by that."""
        self.reply = reply
        self.key = key
        self.started = self.last = time.monotonic()

    def relate(self, message: Message) -> None:
        """Pass on a message of the server that belongs to this request; it restarts the timeout."""
        self.last = time.monotonic()
        self.reply.related(message)


R = TypeVar("R", bound=PendingRequest)


class Deadlines(Generic[R]):
    """Ends requests that waited too long; looks a few times a second, and only while something waits."""

    def __init__(
        self, name: str, timeout_seconds: UpstreamTimeouts, waiting: Collection[R], on_expiry: Callable[[R], None]
    ) -> None:
        """Create deadlines for requests to the upstream called `name`.

        Args:
            name: for errors.
            timeout_seconds: how long to wait.
            waiting: a live view of the requests that wait.
            on_expiry: called with a request that timed out, before it fails; it removes the request from `waiting`.
        """
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._waiting = waiting
        self._on_expiry = on_expiry
        self._timer: asyncio.TimerHandle | None = None
        self._held_since: float | None = None

    def watch(self) -> None:
        """Look at the requests that wait from now on, if not yet."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def hold(self, *, on: bool) -> None:
        """Pause all timeouts while riglm holds the server back, which is not to blame for that time; or resume."""
        now = time.monotonic()
        if on and self._held_since is None:
            self._held_since = now
        elif not on and self._held_since is not None:
            held = now - self._held_since
            self._held_since = None
            for request in self._waiting:
                request.started, request.last = min(now, request.started + held), min(now, request.last + held)

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        now = time.monotonic() if self._held_since is None else self._held_since
        loop = asyncio.get_running_loop()
        for request in self._waiting:
            quiet, total = self._timeout_seconds.for_method(request.reply.message.method)
            was_quiet = now - request.last > quiet
            if was_quiet or now - request.started > total:  # each separately: one that raises must not delay the others
                loop.call_soon(self._expire, request, quiet if was_quiet else total, was_quiet)
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep) if self._waiting else None

    def _expire(self, request: R, seconds: float, was_quiet: bool) -> None:
        if request not in self._waiting:
            return  # it was answered in the last moment
        self._on_expiry(request)
        words = f"did not answer {request.reply.message.method} within {seconds:g} s"
        if was_quiet and request.last > request.started:
            words += " of its last message"
        request.reply.failed(ErrorKind.TIMEOUT, f"upstream {self._name!r} {words}")


class PendingRequests(Deadlines[PendingRequest]):
    """The requests in flight over one channel, by the `id_key` of the id that the server knows; each ends once."""

    def __init__(
        self, name: str, timeout_seconds: UpstreamTimeouts, on_expiry: Callable[[PendingRequest], None]
    ) -> None:
        """`on_expiry` gets a request that timed out, before it fails."""
        self.by_key: dict[bytes, PendingRequest] = {}
        self._given_up: deque[bytes] = deque(maxlen=_MAX_GIVEN_UP)
        """The keys of requests to which a late response may come."""
        super().__init__(name, timeout_seconds, self.by_key.values(), self._remove_expired)
        self._on_removal = on_expiry

    @property
    def only(self) -> PendingRequest | None:
        """The one request that waits, None when there are none or several."""
        return next(iter(self.by_key.values())) if len(self.by_key) == 1 else None

    def add(self, key: bytes, reply: UpstreamRequest) -> None:
        """Start the timeout of a request that was sent."""
        self.by_key[key] = PendingRequest(reply, key)
        if self._timer is None:
            self.watch()

    def pop_answered(self, answer: Message) -> PendingRequest | None:
        """Remove the request that an answer is for, if the answer spells its id in another way or has none.

        A late answer to a request that was given up is for no other whose id is spelled nearly the same.
        An error without an id is for the only request. Results without one, and unknown methods, are for none: some
        servers answer notifications like that.
        """
        raw = answer.id or b"null"
        if raw != b"null":
            key: bytes | None = jsonrpc.id_key(raw)
            if key not in self.by_key:
                key = None if key in self._given_up else jsonrpc.find_id(self.by_key, raw)
        else:
            is_for_request = jsonrpc.error_code(answer) not in (None, jsonrpc.METHOD_NOT_FOUND)
            key = self.only.key if is_for_request and self.only is not None else None
        return self.by_key.pop(key) if key is not None else None

    def with_progress_token(self, token: bytes) -> PendingRequest | None:
        """Return the request that named this progress token."""
        asked = {
            progress_token(each.reply.message): each
            for each in self.by_key.values()
            if b'"progressToken"' in each.reply.message.line
        }
        by_key = {jsonrpc.id_key(raw): each for raw, each in asked.items() if raw}
        key = jsonrpc.find_id(by_key, token) if token else None
        return by_key[key] if key is not None else None

    def withdraw(self, reply: UpstreamRequest) -> bytes | None:
        """Remove a request that was given up; return the key that it had, None when it waits no longer."""
        for waiting in self.by_key.values():
            if waiting.reply is reply:
                self._remove(waiting)
                return waiting.key
        return None

    def fail(self, key: bytes, kind: ErrorKind, words: str) -> None:
        """End one request without an answer, if it waits."""
        waiting = self.by_key.pop(key, None)
        if waiting is not None:
            waiting.reply.failed(kind, f"upstream {self._name!r} {words}")

    def fail_all(self, kind: ErrorKind, words: str) -> None:
        """End every request without an answer; those that are added meanwhile are not touched."""
        for key in list(self.by_key):
            self.fail(key, kind, words)

    def close(self) -> None:
        """End every request, and stop the timeouts."""
        self.fail_all(ErrorKind.UNKNOWN, "did not answer before the link to it was closed")
        super().close()

    def _remove(self, request: PendingRequest) -> None:
        del self.by_key[request.key]
        self._given_up.append(request.key)

    def _remove_expired(self, request: PendingRequest) -> None:
        self._remove(request)
        self._on_removal(request)


def progress_token(message: Message) -> bytes:
    """Return the raw progress token of a request, empty when it has none."""
    meta = jsonrpc.members(message.params).get("_meta")
    return bytes(jsonrpc.members(meta).get("progressToken", b"")) if meta else b""
