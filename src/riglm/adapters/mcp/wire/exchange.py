"""A request and its response, owned by one component at a time."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from riglm.domain.errors import RiglmError


class HttpHeaders:
    """The headers of one answer, names in lower case.

    Of a header that came more than once `get` gives the first, so that nothing appended later can replace it; `pairs`
    holds all of them in the order they came.
    """

    __slots__ = ("_first", "pairs")

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.pairs = pairs
        self._first = dict(reversed(pairs))

    def get(self, name: bytes) -> bytes | None:
        """The first value of the header with this lower-case name; None when it did not come."""
        return self._first.get(name)

    def all(self, name: bytes) -> list[bytes]:
        """Every value of the header with this lower-case name, in the order they came."""
        return [value for each, value in self.pairs if each == name]


class HttpClientError(RiglmError):
    """The exchange did not come to its end; the message names the target, without credentials, and what happened."""

    def __init__(self, message: str, *, sent: bool, reused: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether any of the request may have left; if not, sending it again is safe."""
        self.is_unreachable = False
        """Whether no connection could be opened."""
        self.reused = reused
        """The connection had served before and closed without a byte of an answer.

        Most likely the server had closed it while it was idle and never saw the request, but that is not certain.
        """


class HttpResponseSink(Protocol):
    """Receives one response as it comes: `head`, any number of `data`, then exactly one of `end` and `failed`.

    `failed` may come at any moment, before `head` too. Nothing comes after either of them, or after
    `HttpExchange.abort`. A sink should not raise: what `head` or `data` raises is logged, the connection is closed,
    and `failed` is called; what `end` or `failed` raises is logged.
    """

    def head(self, status: int, headers: HttpHeaders) -> None:
        """The status (200 to 599; interim answers are not reported) and the headers."""

    def data(self, chunk: bytes) -> None:
        """The next bytes of the body, never empty, with chunked coding taken off."""

    def end(self) -> None:
        """The answer is complete."""

    def failed(self, failure: HttpClientError) -> None:
        """The answer will not be complete."""


logger = logging.getLogger(__name__)


class ExchangeOwner(Protocol):
    """The owner of an exchange: the pool while it waits for a connection, then that connection."""

    def abandon(self, exchange: "HttpExchange") -> None:
        """Release it: its sink wants no further events."""

    def flow(self, exchange: "HttpExchange") -> None:
        """Read or stop reading, as `exchange.paused` says now."""


class HttpExchange:
    """A request in flight and its response: `abort`, `pause` and `resume` are for the caller."""

    __slots__ = ("before_refusal", "holder", "number", "paused", "place", "redirect", "redirects", "request", "sink")

    def __init__(self, request: bytes, sink: HttpResponseSink, place: object) -> None:
        self.request = request
        self.sink = sink
        self.place = place
        """What failures name; its `str()` must be safe to log."""
        self.number = 0
        """Its place in the order of those that had to wait for a connection."""
        self.paused = False
        self.redirects = 0
        """Number of redirects that were followed."""
        self.redirect = ""
        """What to add to an error about the response, if that is a redirect."""
        self.before_refusal: Callable[[HttpExchange, int, HttpHeaders], None] | None = None
        """Called with a status of 300 or more before the sink gets it; may replace the sink to follow a redirect."""
        self.holder: ExchangeOwner | None = None
        """None before the exchange begins and once it is over."""

    def abort(self) -> None:
        """Close the connection; the sink gets nothing more. Does nothing once the exchange is over."""
        holder, self.holder = self.holder, None
        if holder is not None:
            holder.abandon(self)

    def pause(self) -> None:
        """Stop reading until `resume`, so that the server has to wait; what was read before is still delivered."""
        self._flow(paused=True)

    def resume(self) -> None:
        """Read on."""
        self._flow(paused=False)

    def _flow(self, *, paused: bool) -> None:
        self.paused = paused
        if self.holder is not None:
            self.holder.flow(self)

    def end(self) -> None:
        """Notify the sink that its response is complete."""
        self.holder = None
        _notify(self.sink.end)

    def fail(self, failure: HttpClientError) -> None:
        """Notify the sink that its response will not be complete."""
        self.holder = None
        _notify(lambda: self.sink.failed(failure))


def _notify(news: Callable[[], None]) -> None:
    try:
        news()
    except Exception:
        # An exception of a sink must reach neither the event loop nor another exchange.
        logger.exception("The reader of an HTTP answer raised when the answer was over")
