"""Sinks that change one answer on its way to the client."""

from collections.abc import Callable

from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import ReplySink
from riglm.ports.upstream import EventMark


class Relay(ReplySink):
    """Passes everything on, the answer as `change` makes it."""

    def __init__(self, sink: ReplySink, change: Callable[[Message], Message]) -> None:
        self._sink = sink
        self._change = change

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Pass it on."""
        self._sink.related(message, event)

    def primed(self, event: EventMark) -> None:
        """Pass it on."""
        self._sink.primed(event)

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Pass it on, changed if it is a result."""
        self._sink.replied(self._change(message) if message.result else message, status, event)

    def interrupted(self) -> None:
        """Pass it on."""
        self._sink.interrupted()


class Unstreamed(Relay):
    """A relay whose answer must not be had in another way: it names no places at which its stream is taken up."""

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Pass it on without its place."""
        self._sink.related(message)

    def primed(self, event: EventMark) -> None:
        """Begin the stream without a place."""
        super().primed(EventMark(None, event.retry_ms))

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Pass it on without its place."""
        super().replied(message, status)
