"""Server messages of an upstream over Streamable HTTP: the stream of a GET."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.upstream.http_post import RETRY_MS
from riglm.adapters.mcp.wire.event_stream import Event, EventParser, unwrap
from riglm.adapters.mcp.wire.http_client import HttpClientError, HttpExchange, HttpHeaders, HttpResponseSink
from riglm.adapters.mcp.wire.messages import decode
from riglm.domain.jsonrpc import Message

_MAX_WAIT: Final = 30.0
_LATER: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses after which a stream is asked for again; any other answer that is none means that it is not offered."""

_log: Final = logging.getLogger("riglm.upstream")


class GetStream(HttpResponseSink):
    """Keeps one stream open while it has a subscriber, and resumes it where it broke off."""

    __slots__ = (
        "_exchange",
        "_failures",
        "_get",
        "_has_skipped",
        "_last_event_id",
        "_limit",
        "_on_message",
        "_parser",
        "_retry_ms",
        "_status",
        "_timer",
        "_wanted",
    )

    def __init__(
        self,
        get: Callable[[bytes | None, HttpResponseSink], HttpExchange],
        limit: int,
        on_message: Callable[[Message], None],
    ) -> None:
        """Create a stream that is not open; `get` requests it after the last event id, for a sink."""
        self._get = get
        self._limit = limit
        self._on_message = on_message
        self._exchange: HttpExchange | None = None
        self._status = 0
        self._parser: EventParser | None = None
        self._has_skipped = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_event_id: bytes | None = None
        self._retry_ms = RETRY_MS
        self._failures = 0
        self._wanted = False

    @property
    def has_place(self) -> bool:
        """True if the server named a place where the stream can be resumed."""
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
        """Open the stream of a new session: what was open in the old one is closed."""
        if self._wanted:
            self.stop()
            self._last_event_id = None
            self.start()

    def head(self, status: int, headers: HttpHeaders) -> None:
        self._status = status
        if status == 200 and (headers.get(b"content-type") or b"").lower().startswith(b"text/event-stream"):
            self._parser = EventParser(self._event, self._limit)

    def data(self, chunk: bytes) -> None:
        if self._parser is not None:
            self._parser.feed(chunk)

    def end(self) -> None:
        self._ended(self._status if self._parser is None else 0)

    def failed(self, failure: HttpClientError) -> None:
        self._ended(0)

    def _open(self) -> None:
        self._timer = None
        self._status = 0
        self._parser = None
        self._exchange = self._get(self._last_event_id, self)

    def _event(self, event: Event) -> None:
        self._failures = 0
        self._last_event_id = event.id or self._last_event_id
        self._retry_ms = event.retry_ms if event.retry_ms is not None else self._retry_ms
        decoded = decode(unwrap(event.data)) if event.data else None
        if isinstance(decoded, Message):
            self._on_message(decoded)
        elif decoded is not None and not self._has_skipped:  # heartbeats come again and again
            _log.warning("skipped an event that is no message", extra={"reason": str(decoded)})
            self._has_skipped = True

    def _ended(self, status: int) -> None:
        """Open the stream again after a while; `status` is that of an answer that is no event stream, or 0."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and exchange.redirect:
            about = {"reason": f"it answered HTTP {status}{exchange.redirect}"}
            _log.warning("a server cannot send messages outside of requests", extra=about)
        if not self._wanted or (status and status not in _LATER):
            return
        delay = min(_MAX_WAIT, self._retry_ms / 1000 * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._timer = asyncio.get_running_loop().call_later(delay, self._open)
