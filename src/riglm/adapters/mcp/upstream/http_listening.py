"""Server messages of an upstream over Streamable HTTP: the stream of a GET."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from riglm.adapters.mcp.upstream.http_post import RETRY_MS
from riglm.adapters.mcp.wire.event_stream import Event, EventParser, unwrap
from riglm.adapters.mcp.wire.http_client import HttpClientError, HttpExchange, HttpHeaders, HttpResponseSink
from riglm.adapters.mcp.wire.messages import decode
from riglm.domain.jsonrpc import Message

_MAX_WAIT: Final = 30.0
_LATER: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses after which a stream is asked for again; any other answer that is none means that it is not offered."""

_log: Final = logging.getLogger("riglm.upstream")


class SendGet(Protocol):
    """Sends a GET whose answer goes to a sink."""

    def __call__(self, last_event_id: bytes | None, sink: HttpResponseSink) -> HttpExchange:
        """Send it."""


class _Events(HttpResponseSink):
    """One GET's stream."""

    def __init__(
        self, limit: int, on_event: Callable[[Event, Message | None], None], on_end: Callable[[int], None]
    ) -> None:
        """`on_end` gets the HTTP status of an answer that is no event stream; 0 for an event stream, or no answer."""
        self._limit = limit
        self._on_event = on_event
        self._on_end = on_end
        self._status = 0
        self._parser: EventParser | None = None
        self._has_skipped = False

    def head(self, status: int, headers: HttpHeaders) -> None:
        self._status = status
        if status == 200 and (headers.get(b"content-type") or b"").lower().startswith(b"text/event-stream"):
            self._parser = EventParser(self._event, self._limit)

    def data(self, chunk: bytes) -> None:
        if self._parser is not None:
            self._parser.feed(chunk)

    def end(self) -> None:
        self._on_end(self._status if self._parser is None else 0)

    def failed(self, failure: HttpClientError) -> None:
        self._on_end(0)

    def _event(self, event: Event) -> None:
        if not event.data:
            self._on_event(event, None)
            return
        decoded = decode(unwrap(event.data))
        if isinstance(decoded, Message):
            self._on_event(event, decoded)
            return
        if not self._has_skipped:  # heartbeats come again and again
            _log.warning("skipped an event that is no message", extra={"reason": str(decoded)})
        self._has_skipped = True
        self._on_event(event, None)


class GetStream:
    """Keeps one stream open while it has a subscriber, and resumes it where it broke off."""

    __slots__ = (
        "_exchange",
        "_failures",
        "_get",
        "_last_event_id",
        "_limit",
        "_on_message",
        "_retry_ms",
        "_timer",
        "_wanted",
    )

    def __init__(self, get: SendGet, limit: int, on_message: Callable[[Message], None]) -> None:
        """A stream that is not asked for yet."""
        self._get = get
        self._limit = limit
        self._on_message = on_message
        self._exchange: HttpExchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_event_id: bytes | None = None
        self._retry_ms = RETRY_MS
        self._failures = 0
        self._wanted = False

    @property
    def has_place(self) -> bool:
        """Whether the server named a place where the stream can be taken up."""
        return self._last_event_id is not None

    def start(self) -> None:
        """Open the stream unless it is open."""
        self._wanted = True
        if self._exchange is None and self._timer is None:
            self._open()

    def stop(self) -> None:
        """Close the stream."""
        self._wanted = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._exchange is not None:
            self._exchange.abort()
            self._exchange = None

    def restart(self) -> None:
        """The server started a new session: what was open in the old one is closed."""
        if self._wanted:
            self.stop()
            self._last_event_id = None
            self.start()

    def _open(self) -> None:
        self._timer = None
        self._exchange = self._get(self._last_event_id, _Events(self._limit, self._event, self._ended))

    def _event(self, event: Event, message: Message | None) -> None:
        self._failures = 0
        self._last_event_id = event.id or self._last_event_id
        self._retry_ms = event.retry_ms if event.retry_ms is not None else self._retry_ms
        if message is not None:
            self._on_message(message)

    def _ended(self, status: int) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None and exchange.redirect:
            about = {"reason": f"it answered HTTP {status}{exchange.redirect}"}
            _log.warning("a server cannot send messages outside of requests", extra=about)
        if not self._wanted or (status and status not in _LATER):
            return
        delay = min(_MAX_WAIT, self._retry_ms / 1000 * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._timer = asyncio.get_running_loop().call_later(delay, self._open)
