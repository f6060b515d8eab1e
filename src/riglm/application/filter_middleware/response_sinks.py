"""Sinks that change one answer on its way to the client."""

from collections.abc import Callable

from riglm.application.filter_middleware.list_changes import TOOLS_CHANGED
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import ClientResponseSink
from riglm.ports.upstream import EventPosition, ResumedStreamHandler


class TransformingSink(ClientResponseSink):
    """Passes everything on, the answer as `change` makes it."""

    def __init__(self, sink: ClientResponseSink, change: Callable[[Message], Message]) -> None:
        self._sink = sink
        self._change = change

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        self._sink.related(message, event)

    def primed(self, event: EventPosition) -> None:
        self._sink.primed(event)

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        self._sink.replied(self._change(message) if message.result else message, status, event)

    def interrupted(self) -> None:
        self._sink.interrupted()


class ListChangedSink(TransformingSink):
    """Forwards a response and observes list-changed notifications of the upstream."""

    def __init__(self, sink: ClientResponseSink, on_change: Callable[[], None]) -> None:
        super().__init__(sink, lambda answer: answer)
        self._on_change = on_change

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        if message.method == TOOLS_CHANGED:
            self._on_change()
        super().related(message, event)


class NonResumableSink(TransformingSink):
    """A relay whose answer must not be had in another way: it names no places at which its stream is taken up."""

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        self._sink.related(message)

    def primed(self, event: EventPosition) -> None:
        super().primed(EventPosition(None, event.retry_ms))

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        super().replied(message, status)


class ErrorTransformingSink(NonResumableSink):
    """A relay that changes errors as well."""

    def __init__(self, sink: ClientResponseSink, change: Callable[[Message], Message]) -> None:
        super().__init__(sink, lambda answer: answer)
        self._complete = change

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        answer = self._complete(message)
        super().replied(answer, status if answer is message else 200)


class TransformingStream(ResumedStreamHandler):
    """The rest of a stream that was taken up, with every result as `change` makes it."""

    def __init__(self, stream: ResumedStreamHandler, change: Callable[[Message], Message]) -> None:
        self._stream = stream
        self._change = change

    def continued(self, message: Message, event: EventPosition | None = None) -> None:
        self._stream.continued(self._change(message) if message.result else message, event)

    def primed(self, event: EventPosition) -> None:
        self._stream.primed(event)

    def ended(self) -> None:
        self._stream.ended()
