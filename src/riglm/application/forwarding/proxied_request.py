"""One request of a client on its way to an upstream and back."""

import logging
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final

from riglm.application.forwarding.tracing import CANCELLED, UpstreamSpan, current
from riglm.application.tracking.tracking_service import TrackingService
from riglm.domain import jsonrpc
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Session
from riglm.ports.downstream import NO_HEADERS, ClientResponseSink, InFlightRequest
from riglm.ports.telemetry import MeterPort
from riglm.ports.upstream import EventPosition, OutboundRequest, UpstreamLink

_since: Final[ContextVar[float]] = ContextVar("riglm_request_since")


class OverheadMeter:
    """Knows since when riglm alone has had the request that the running code is about.

    That is since its line or its body was whole, or since the last answer of a server that it had to wait for before it
    could go its way.
    """

    def __init__(self, meter: MeterPort) -> None:
        """Reports the overhead of calls to `meter`."""
        self._meter = meter

    def begin(self) -> None:
        """A request is about to be read, or riglm goes on with one."""
        _since.set(time.perf_counter())

    def listed(self, seconds: float) -> None:
        """Report what riglm took of a tool list, after the last page of the servers had arrived."""
        self._meter.listed(seconds)

    def stopwatch(self, upstream: str) -> "Stopwatch":
        """For a call that goes to this server."""
        return Stopwatch(self._meter, upstream, _since.get(0.0) or time.perf_counter())


class Stopwatch:
    """Measures the time that riglm spends on a call, without the time of its server."""

    __slots__ = ("_meter", "_own", "_since", "_upstream")

    def __init__(self, meter: MeterPort, upstream: str, since: float) -> None:
        """It ran `since` then, by `time.perf_counter`."""
        self._meter = meter
        self._upstream = upstream
        self._since = since
        self._own: float | None = None

    def left(self) -> None:
        """The request is on its way to the server; said again when it is sent once more, which does not count."""
        if self._own is None:
            self._own = time.perf_counter() - self._since

    def came(self) -> None:
        """The answer is there."""
        self._since = time.perf_counter()

    def handed_over(self) -> None:
        """The answer is on its way to the client."""
        if self._own is not None:
            self._meter.held(self._upstream, self._own + time.perf_counter() - self._since)


_log: Final = logging.getLogger("riglm.proxy")
_FAILURE_CODE: Final = {ErrorKind.TIMEOUT: jsonrpc.REQUEST_TIMEOUT}


class ActiveCall:
    """What is known of an invocation when it starts."""

    __slots__ = (
        "arguments",
        "clock",
        "found",
        "is_confidential",
        "is_unlisted",
        "on_end",
        "refusal",
        "sequence_number",
        "session",
        "started",
        "stopwatch",
        "tool",
        "tracking",
        "upstream",
        "with_list",
    )

    def __init__(
        self,
        tracking: TrackingService,
        session: Session,
        *,
        tool: str,
        upstream: str,
        arguments: bytes | None,
        found: DiscoveryMethod,
        is_unlisted: Callable[[], bool] | None = None,
        on_end: Callable[[ErrorKind | None], None] | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """A call that starts now.

        `is_unlisted` is called after a failure and returns True if the upstream's list is known and lacks the tool;
        None if the list has it. `on_end` is called with the kind of error, or None on success; `stopwatch` measures
        riglm's overhead.
        """
        self.tracking = tracking
        self.session = session
        self.tool = tool
        self.upstream = upstream
        self.arguments = arguments
        self.found = found
        self.is_unlisted = is_unlisted
        self.on_end = on_end
        self.stopwatch = stopwatch
        self.is_confidential = False
        self.refusal = ""
        self.with_list = tracking.list_of(session)
        self.sequence_number = session.next_sequence_number()
        self.started = time.time()
        self.clock = time.perf_counter()

    def ended(self, kind: ErrorKind | None, code: int | None = None) -> None:
        """Record the invocation."""
        self.tracking.called(
            self.session,
            tool=self.tool,
            upstream=self.upstream,
            arguments=self.arguments,
            sequence_number=self.sequence_number,
            started=self.started,
            duration_ms=(time.perf_counter() - self.clock) * 1000.0,
            error_kind=kind,
            error_code=code,
            found=self.found,
            is_confidential=self.is_confidential,
            with_list=self.with_list,
            refusal=self.refusal,
        )
        if self.on_end is not None:
            self.on_end(kind)

    def answered(self, message: Message) -> None:
        """Record the invocation by the answer that it got.

        Some servers answer a name that they do not know by `isError`: one that is not listed may be no tool at all.
        """
        if message.error:
            self.ended(ErrorKind.PROTOCOL, jsonrpc.error_code(message))
        elif jsonrpc.is_tool_error(message):
            is_tool = self.is_unlisted is None or not self.is_unlisted()
            self.ended(ErrorKind.TOOL if is_tool else ErrorKind.PROTOCOL)
        else:
            self.ended(None)


class ProxiedRequest(OutboundRequest, InFlightRequest):
    """Sends the response of an upstream to the client exactly once, and notifies the observers."""

    __slots__ = (
        "call",
        "done",
        "failure",
        "headers",
        "message",
        "on_done",
        "on_reply",
        "on_server_message",
        "resumable",
        "session",
        "sink",
        "span",
    )

    def __init__(
        self,
        message: Message,
        sink: ClientResponseSink,
        *,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        resumable: bool = False,
        session: Session | None = None,
        call: ActiveCall | None = None,
        on_reply: Callable[["ProxiedRequest", Message], Message | None] | None = None,
        on_server_message: Callable[[Message], Message | None] | None = None,
        on_done: Callable[["ProxiedRequest"], None] | None = None,
    ) -> None:
        """An open exchange.

        `on_reply` may change the response, or return None to hold it back and end the request later; `failure` is True
        for errors that riglm created. `on_server_message` gets related messages before the client and may change them
        or hold them back.
        """
        self.message = message
        self.sink = sink
        self.headers = headers
        self.resumable = resumable
        self.session = session
        self.call = call
        self.on_reply = on_reply
        self.on_server_message = on_server_message
        self.on_done = on_done
        self.done = False
        self.failure: ErrorKind | None = None
        self.span: UpstreamSpan | None = None

    def send(self, link: UpstreamLink) -> None:
        """Send the request to a server."""
        client = current.get()
        if client is not None:
            self.span, self.message = client.start_upstream(self.message, link)
        link.request(self.message, self)
        if self.call is not None and self.call.stopwatch is not None:
            self.call.stopwatch.left()

    def resumed(self) -> None:
        """The request had to wait for a server before it can be sent: what follows is riglm's again."""
        if self.call is not None and self.call.stopwatch is not None:
            self.call.stopwatch.came()

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        if self.done:
            return
        seen = message if self.on_server_message is None else self._seen(message)
        if seen is not None:
            self.sink.related(seen, event)

    def primed(self, event: EventPosition) -> None:
        if not self.done:
            self.sink.primed(event)

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        if self.done:
            return
        span, self.span = self.span, None
        if span is None:
            self._reply(message, status, event)
            return
        span.end(message)
        with span.client.active():
            self._reply(message, status, event)

    def _reply(self, message: Message, status: int, event: EventPosition | None) -> None:
        stopwatch = self.call.stopwatch if self.call is not None else None
        if stopwatch is not None:
            stopwatch.came()
        changed = self._changed(message)
        if changed is None:
            return
        self._end()
        if self.call is not None:
            self.call.answered(changed)
        self.sink.replied(changed, status, event)
        if stopwatch is not None:
            stopwatch.handed_over()

    def failed(self, kind: ErrorKind, words: str) -> None:
        if self.done:
            return
        span, self.span = self.span, None
        if span is None:
            self._fail(kind, words)
            return
        span.fail(kind.value)
        with span.client.active():
            self._fail(kind, words)

    def _fail(self, kind: ErrorKind, words: str) -> None:
        code = _FAILURE_CODE.get(kind, jsonrpc.UPSTREAM_UNAVAILABLE)
        self.failure = kind
        changed = self._changed(jsonrpc.error(self.message.id, code, words))
        if changed is None:
            return
        self._end()
        if self.call is not None:  # `protocol` marks calls that the server never answered
            self.call.ended(ErrorKind.UNAVAILABLE if kind is ErrorKind.PROTOCOL else kind, code)
        self.sink.replied(changed)

    @property
    def is_interrupted(self) -> bool:
        """Whether the client is to take up the stream by itself, so that nothing reaches it from here."""
        return self.sink is NOWHERE

    def interrupted(self) -> None:
        if not self.done:
            self._cancel_span()
            self.sink.interrupted()
            self.sink = NOWHERE

    def cancelled(self) -> None:
        """The client gave up: nothing will be passed on any more."""
        if self.done:
            return
        self._cancel_span()
        self._end()
        if self.call is not None:
            self.call.ended(ErrorKind.CANCELLED)

    def _cancel_span(self) -> None:
        span, self.span = self.span, None
        if span is not None:
            span.fail(CANCELLED)

    def _changed(self, message: Message) -> Message | None:
        if self.on_reply is None:
            return message
        hook, self.on_reply = self.on_reply, None
        try:
            return hook(self, message)
        except Exception:  # noqa: BLE001  # fails open
            _log.exception("riglm failed at an answer; the client gets it as it came")
            return message

    def _seen(self, message: Message) -> Message | None:
        try:
            return self.on_server_message(message) if self.on_server_message is not None else message
        except Exception:  # noqa: BLE001  # what could not be translated would mean something else to the client
            _log.exception("riglm failed at a message of a server, and left it out")
            return None

    def _end(self) -> None:
        self.done = True
        if self.call is None and _log.isEnabledFor(logging.DEBUG):
            outcome = "response" if self.failure is None else self.failure.value
            _log.debug("request ended", extra={"method": self.message.method, "outcome": outcome})
        if self.on_done is not None:
            self.on_done(self)


class _DiscardedResponse(ClientResponseSink):
    def related(self, message: Message, event: EventPosition | None = None) -> None:
        pass

    def primed(self, event: EventPosition) -> None:
        pass

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        pass

    def interrupted(self) -> None:
        pass


NOWHERE: Final = _DiscardedResponse()
"""The sink of requests whose answer no client waits for."""
