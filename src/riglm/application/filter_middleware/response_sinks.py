"""Sinks that change a response before it is sent to the client."""

from collections.abc import Callable

from riglm.domain.jsonrpc import Message
from riglm.domain.protocol import TOOLS_CHANGED
from riglm.ports.downstream import ClientResponseSink, ForwardingSink
from riglm.ports.upstream import EventPosition, ResumedStreamHandler


class ServerMessageSink(ForwardingSink):
    """Forwards only what the server sends before its response, which is for riglm."""

    def primed(self, event: EventPosition) -> None:
        """Drop it: the client did not send this request."""

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        """Drop it."""

    def interrupted(self) -> None:
        """Drop it."""


class TransformingSink(ForwardingSink):
    """Forwards everything; `change` returns the result to send in place of the server's."""

    def __init__(self, sink: ClientResponseSink, change: Callable[[Message], Message]) -> None:
        super().__init__(sink)
        self._change = change

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        self._sink.replied(self._change(message) if message.result else message, status, event)


class ListChangedSink(ForwardingSink):
    """Forwards a response and observes list-changed notifications of the upstream."""

    def __init__(self, sink: ClientResponseSink, on_change: Callable[[], None]) -> None:
        super().__init__(sink)
        self._on_change = on_change

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        if message.method == TOOLS_CHANGED:
            self._on_change()
        super().related(message, event)


class NonResumableSink(TransformingSink):
    """Removes event ids, because a resumed stream would contain the response without the change."""

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        self._sink.related(message)

    def primed(self, event: EventPosition) -> None:
        super().primed(EventPosition(None, event.retry_ms))

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        super().replied(message, status)


class ErrorTransformingSink(NonResumableSink):
    """Changes results and errors."""

    def __init__(self, sink: ClientResponseSink, change: Callable[[Message], Message]) -> None:
        super().__init__(sink, lambda answer: answer)
        self._complete = change

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        answer = self._complete(message)
        super().replied(answer, status if answer is message else 200)


class TransformingStream(ResumedStreamHandler):
    """A resumed stream in which `change` returns the result to send in place of the server's."""

    def __init__(self, stream: ResumedStreamHandler, change: Callable[[Message], Message]) -> None:
        self._stream = stream
        self._change = change

    def continued(self, message: Message, event: EventPosition | None = None) -> None:
        self._stream.continued(self._change(message) if message.result else message, event)

    def primed(self, event: EventPosition) -> None:
        self._stream.primed(event)

    def ended(self) -> None:
        self._stream.ended()
