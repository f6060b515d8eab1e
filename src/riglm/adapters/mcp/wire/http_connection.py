"""One keep-alive connection and the exchange that is on it."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

import httptools

from riglm.adapters.mcp.wire.exchange import HttpClientError, HttpExchange, HttpHeaders

logger = logging.getLogger(__name__)


class HttpClientConnection(asyncio.Protocol):
    """Sends one request at a time and turns the bytes that come back into calls of its sink.

    Unrequested bytes, between exchanges or behind a complete response, close the connection: they would be
    taken for the next answer.

    Args:
        on_free: called when an answer is complete, and another request may be sent.
        on_lost: called when the connection is closed.
        max_header_bytes: the most bytes of an answer's head, and the most that may come with nothing of its body.
    """

    def __init__(
        self,
        on_free: Callable[["HttpClientConnection"], None],
        on_lost: Callable[["HttpClientConnection"], None],
        max_header_bytes: int,
    ) -> None:
        self.free_since = 0.0
        """When its last answer was complete, on the loop's clock."""
        self._on_free = on_free
        self._on_lost = on_lost
        self._max_header_bytes = max_header_bytes
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._exchange: HttpExchange | None = None
        self._served = False
        self._reset()

    def _reset(self) -> None:
        self._pairs: list[tuple[bytes, bytes]] = []
        self._answered = False
        self._in_head = True
        self._until_close = False
        self._complete = False
        self._reusable = False
        self._problem = ""
        self._cause: Exception | None = None
        self._fruitless = 0

    @property
    def usable(self) -> bool:
        """Whether a request can be sent on it."""
        return self._transport is not None and not self._transport.is_closing()

    def start(self, exchange: HttpExchange) -> None:
        """Send a request on this connection, which must be usable and free."""
        self._reset()
        self._exchange = exchange
        exchange.holder = self
        transport = cast("asyncio.Transport", self._transport)
        transport.write(exchange.request)
        exchange.request = b""
        if exchange.paused:
            transport.pause_reading()

    def close(self, reason: str, cause: Exception | None = None) -> None:
        """Close at once; the exchange on it, if there is one, fails for this reason."""
        exchange, self._exchange = self._exchange, None
        self._abort()
        if exchange is not None:
            reused = self._served and not self._answered
            failure = HttpClientError(f"{exchange.place} {reason}", sent=True, reused=reused)
            failure.__cause__ = cause
            exchange.fail(failure)

    def abandon(self, exchange: HttpExchange) -> None:
        """Close at once, and say nothing to the exchange."""
        self._exchange = None
        self._abort()

    def flow(self, exchange: HttpExchange) -> None:
        """Read or stop reading, as the exchange says."""
        if self._transport is None or self._transport.is_closing():
            return
        if exchange.paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop opened the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        """The loop read bytes."""
        if self._exchange is None or self._parser is None:
            self._abort()
            return
        self._answered = True
        self._fruitless += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            self._spoil("wants to switch to another protocol", error)
        except httptools.HttpParserError as error:
            self._reusable = False
            if not self._complete:
                self._spoil(f"does not use HTTP: {error}", error)
        self._look_back()

    def eof_received(self) -> None:
        """The server will send nothing more."""
        self._stop(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The loop closed the connection."""
        self._stop(exc)
        self._parser = None  # it refers to this connection, and would leave both to the garbage collector
        self._on_lost(self)

    def on_message_begin(self) -> None:
        """The parser saw an answer begin: behind a complete one, it belongs to no request."""
        self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser saw a header, or a trailer, which is dropped."""
        if self._in_head:
            self._pairs.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The parser saw a head end: an interim one is dropped."""
        if self._parser is None or self._exchange is None or not self._in_head:
            return
        status = self._parser.get_status_code()
        pairs, self._pairs = self._pairs, []
        if status < 200:
            return
        if self._fruitless > self._max_header_bytes and sum(map(_size, pairs)) > self._max_header_bytes:
            self._spoil(self._too_long())
            return
        headers = HttpHeaders(pairs)
        if problem := _unreadable(status, headers):
            self._spoil(problem)
            return
        self._in_head = False
        self._fruitless = 0
        self._until_close = headers.get(b"content-length") is None and headers.get(b"transfer-encoding") is None
        try:
            if status >= 300 and self._exchange.before_refusal is not None:
                self._exchange.before_refusal(self._exchange, status, headers)
            self._exchange.sink.head(status, headers)
        except Exception as error:  # noqa: BLE001 - what a sink raises must not reach the parser
            self._sink_raised(error)

    def on_body(self, data: bytes) -> None:
        """The parser saw a part of the body."""
        if self._exchange is None or self._complete or self._problem:
            return
        self._fruitless = 0
        try:
            self._exchange.sink.data(data)
        except Exception as error:  # noqa: BLE001 - what a sink raises must not reach the parser
            self._sink_raised(error)

    def on_message_complete(self) -> None:
        """The parser saw an answer end."""
        if not (self._in_head or self._complete) and self._parser is not None:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()

    def _look_back(self) -> None:
        """Draw the consequences of what the parser said."""
        if self._exchange is None:
            return
        if self._problem:
            self.close(self._problem, self._cause)
        elif self._complete:
            self._finish(self._exchange)
        elif self._fruitless > self._max_header_bytes:
            self.close(self._too_long())

    def _spoil(self, problem: str, cause: Exception | None = None) -> None:
        """Note what is wrong; the connection is closed when the parser has returned."""
        self._problem = self._problem or problem
        self._cause = self._cause or cause

    def _sink_raised(self, error: Exception) -> None:
        logger.error("The reader of an HTTP answer raised; its connection is closed", exc_info=error)
        self._spoil("answered, but the reader of the answer raised an error", error)

    def _too_long(self) -> str:
        return f"sent more than {self._max_header_bytes} bytes of headers"

    def _finish(self, exchange: HttpExchange) -> None:
        """The answer is complete. The connection is free first, so that a request which follows at once gets it."""
        self._exchange = None
        self._served = True
        if self._reusable and self._sent_all():
            if exchange.paused:
                cast("asyncio.Transport", self._transport).resume_reading()
            self._on_free(self)
        else:
            self._abort()
        exchange.end()

    def _sent_all(self) -> bool:
        transport = self._transport
        return transport is not None and not transport.is_closing() and transport.get_write_buffer_size() == 0

    def _stop(self, cause: Exception | None) -> None:
        """No more bytes will come."""
        if self._exchange is None:
            self._abort()
        elif self._until_close and cause is None:
            self._finish(self._exchange)
        elif self._answered:
            self.close("closed the connection in the middle of its answer", cause)
        else:
            self.close("closed the connection without an answer", cause)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _size(pair: tuple[bytes, bytes]) -> int:
    return len(pair[0]) + len(pair[1])


def _unreadable(status: int, headers: HttpHeaders) -> str:
    """Why the body could not be read; empty when it can be."""
    transfer = headers.get(b"transfer-encoding")
    if transfer is not None and transfer.lower() != b"chunked":
        return f"sent its answer in a transfer coding that was not asked for: {transfer[:40]!r}"
    content = headers.get(b"content-encoding")
    bodiless = status in {204, 304} or headers.get(b"content-length") == b"0"
    if content and content.lower() != b"identity" and not bodiless:
        return f"compressed its answer ({content[:40]!r}), although Accept-Encoding: identity was sent"
    return ""
