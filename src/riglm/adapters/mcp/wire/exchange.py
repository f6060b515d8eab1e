"""A request and its response, owned by one component at a time."""

import logging
from collections.abc import Callable
from typing import Protocol

from riglm.adapters.mcp.wire.response import HttpFailure, ResponseSink

logger = logging.getLogger(__name__)


class Holder(Protocol):
    """The owner of an exchange: the pool while it waits for a connection, then that connection."""

    def abandon(self, exchange: "Exchange") -> None:
        """Release it: its sink wants no further events."""
        ...

    def flow(self, exchange: "Exchange") -> None:
        """Read or stop reading, as `exchange.paused` says now."""
        ...


class Exchange:
    """A request in flight and its response: `abort`, `pause` and `resume` are for the caller."""

    __slots__ = ("holder", "number", "paused", "place", "request", "sink")

    def __init__(self, request: bytes, sink: ResponseSink, place: object) -> None:
        self.request = request
        self.sink = sink
        self.place = place
        """What failures name; its `str()` must be safe to log."""
        self.number = 0
        """Its place in the order of those that had to wait for a connection."""
        self.paused = False
        self.holder: Holder | None = None
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
        _tell(self.sink.end)

    def fail(self, failure: HttpFailure) -> None:
        """Notify the sink that its response will not be complete."""
        self.holder = None
        _tell(lambda: self.sink.failed(failure))


def _tell(news: Callable[[], None]) -> None:
    try:
        news()
    except Exception:
        # An exception of a sink must reach neither the event loop nor another exchange.
        logger.exception("The reader of an HTTP answer raised when the answer was over")
