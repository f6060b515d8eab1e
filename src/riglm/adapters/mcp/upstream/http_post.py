"""One request to an upstream over Streamable HTTP, from its POST to the answer."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from riglm.adapters.mcp.upstream.channel import answered_id
from riglm.adapters.mcp.upstream.deadlines import PendingRequest
from riglm.adapters.mcp.upstream.refusals import REFUSALS, Refusal
from riglm.adapters.mcp.wire.event_stream import Event, EventParser, EventTooLargeError, unwrap
from riglm.adapters.mcp.wire.http_client import HttpClientError, HttpExchange, HttpHeaders, HttpResponseSink
from riglm.adapters.mcp.wire.messages import ChunkBuffer, MessageDecoder
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import MalformedMessageError, Message
from riglm.ports.upstream import UpstreamRequest

if TYPE_CHECKING:
    from riglm.adapters.mcp.upstream.http_link import HttpLink

RETRY_MS: Final = 1000
"""How long to wait before a broken stream is asked for again, when the server does not say."""

_log: Final = logging.getLogger("riglm.upstream")
_TOO_MANY: Final = 429
_MAX_RESUMPTIONS: Final = 10
_LINGER_SECONDS: Final = 5.0
_MAX_RETRY_SECONDS: Final = 30.0


def is_answer(asked: bytes, answer: Message) -> bool:
    """True if a response is for the request with this raw id; those under the id null are."""
    given = answer.id or b"null"
    return given in (asked, b"null") or jsonrpc.find_id((jsonrpc.id_key(asked),), given) is not None


class PostRequest(PendingRequest, HttpResponseSink):
    """Passes on what comes back for one request, as JSON or as an event stream."""

    def __init__(self, owner: "HttpLink", message: Message, reply: UpstreamRequest) -> None:
        """A request that is about to be sent."""
        super().__init__(reply)
        self.owner = owner
        self.message = message
        self.exchange: HttpExchange | None = None
        self.over = False
        self.repeated = False
        self.session = b""
        """The headers that name the session in which it was sent last."""
        self.status = 0
        self._body = ChunkBuffer()
        self.answer: Message | None = None
        """The message in a body that is no event stream."""
        self._decoder = MessageDecoder(self._received, self._malformed, self._pause)
        self._parser: EventParser | None = None
        self._last_event_id: bytes | None = None
        self._retry_ms = RETRY_MS
        self._resumptions = 0
        self._timer: asyncio.TimerHandle | None = None
        self._refusal: Refusal | None = None
        self._skipped = ""
        """What came in place of the answer, for its error."""

    def again(self) -> None:
        """Discard what was received: the request, or the rest of its stream, is requested again."""
        self.status = 0
        self._body = ChunkBuffer()
        self.answer = self._parser = None

    def abandon(self, after: float = 0.0) -> None:
        """Read nothing more, and release the connection `after` seconds."""
        self.over = True
        self._cancel_timer()
        if after:
            self._linger(after)
        elif self.exchange is not None:
            self.exchange.abort()

    def head(self, status: int, headers: HttpHeaders) -> None:
        self.status = status
        if self.over:
            return
        self.owner.headed(self, headers)
        self._refusal = Refusal(self.owner.spec, status, headers) if status in REFUSALS else None
        if status < 300 and (headers.get(b"content-type") or b"").lower().startswith(b"text/event-stream"):
            self._parser = EventParser(self._event, self.owner.limit)

    def data(self, chunk: bytes) -> None:
        too_large = False
        if self._refusal is not None:
            self._refusal.add(chunk)
        if self._parser is None:
            self._body.add(chunk)
            too_large = self._body.size > self.owner.limit
        else:
            try:
                self._parser.feed(chunk)
            except EventTooLargeError:
                too_large = True
        if too_large:
            words = f"sent a message over the limit of {self.owner.limit} bytes (`limits.message_bytes`)"
            self.fail(ErrorKind.PROTOCOL, words)
            self.abandon()

    def end(self) -> None:
        if self._parser is None and not self.over:
            self._decoder.feed(self._body.take(b""))
        self._decoder.end(self._end)

    def failed(self, failure: HttpClientError) -> None:
        self._decoder.end(lambda: self._fail(failure))

    def _end(self) -> None:
        if self.over:
            self._cancel_timer()
            return
        if self._parser is not None:
            self._broke_off()
            return
        message = self.answer
        if message is not None and message.is_response and self.status < 300:
            self._replied(message)
        elif not self._resumptions and self.owner.refused(self, message):
            return  # a stream that cannot be taken up again is no reason to run the request twice
        else:
            self.conclude()

    def conclude(self) -> None:
        """End the request by the HTTP error, or the body without an answer, that came for it."""
        if self.over:
            return
        message = self.answer
        if self._refusal is not None:
            self.fail(ErrorKind.UNAVAILABLE, self._refusal.text)
        elif message is not None and message.error:
            self._replied(message.replace(id=self.message.id or b"null"))  # some send errors without the id
        elif self.status in (202, 204):
            self.fail(ErrorKind.PROTOCOL, "accepted the request without an answer")
        elif self.status < 300:
            self.fail(ErrorKind.PROTOCOL, "sent an answer that is no JSON-RPC message")
        else:
            kind = ErrorKind.UNAVAILABLE if self.status >= 500 or self.status == _TOO_MANY else ErrorKind.PROTOCOL
            redirect = self.exchange.redirect if self.exchange is not None else ""
            self.fail(kind, f"answered HTTP {self.status}{redirect}")

    def _fail(self, failure: HttpClientError) -> None:
        if self.over:
            self._cancel_timer()
            return
        if self._last_event_id is not None:
            self._broke_off()
        else:
            self.owner.failed(self, failure)

    def fail(self, kind: ErrorKind, words: str) -> None:
        """End the request without an answer."""
        if not self.over:
            self.over = True
            self.owner.ended(self)
            self.reply.failed(kind, f"upstream {self.owner.spec.name!r} {words}")

    def _linger(self, seconds: float) -> None:
        """Read on for this time, though the request is over: the connection can be used again after the end."""
        if self.exchange is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.exchange.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _event(self, event: Event) -> None:
        if event.retry_ms is not None:
            self._retry_ms = event.retry_ms
        if event.id:
            self._last_event_id = event.id
        if self.over:
            return
        if event.data:
            self._decoder.feed(unwrap(event.data))

    def _malformed(self, error: MalformedMessageError, data: bytes) -> None:
        if self._parser is None or self.over:
            return
        if answered_id(data, data) == jsonrpc.id_key(self.message.id or b"null"):
            self.fail(ErrorKind.PROTOCOL, f"sent an unreadable answer: {error}")
            self.abandon()
        else:
            self._skip(f"an event that is no message: {error}")

    def _received(self, message: Message) -> None:
        if self._parser is None:
            self.answer = message
        elif self.over:
            return
        elif message.is_response and not is_answer(self.message.id or b"null", message):
            self._skip("an answer under an id that was not asked")
        elif message.is_response:
            self._replied(message)
            self._linger(_LINGER_SECONDS)
        else:
            self.owner.notified(message)
            self.relate(message)

    def _skip(self, what: str) -> None:
        """Wait for the answer behind something else, such as a heartbeat of the server or of a gateway."""
        if not self._skipped:  # heartbeats come again and again
            _log.warning("skipped what is no answer", extra={"upstream": self.owner.spec.name, "reason": what})
        self._skipped = f", after {what}"

    def _pause(self, on: bool) -> None:
        if self.exchange is not None:
            (self.exchange.pause if on else self.exchange.resume)()

    def _replied(self, message: Message) -> None:
        asked = self.message.id or b"null"
        if not is_answer(asked, message):
            self.fail(ErrorKind.PROTOCOL, "answered under an id that was not asked")
            return
        if message.id != asked:
            message = message.replace(id=asked)
        self.over = True
        self.owner.answered(self, message)
        self.owner.ended(self)
        self.reply.replied(message, self.status)

    def _broke_off(self) -> None:
        """The stream ended before the answer: it can be asked for again if the server named a place in it."""
        if self._last_event_id is None:
            self.fail(ErrorKind.UNAVAILABLE, f"closed the stream before its answer{self._skipped}")
        elif self._resumptions >= _MAX_RESUMPTIONS:
            self.fail(ErrorKind.UNAVAILABLE, "closed the stream again and again before its answer")
        else:
            self._resumptions += 1
            self.reply.paused(self._retry_ms)
            seconds = min(self._retry_ms / 1000, _MAX_RETRY_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._resume, self._last_event_id)

    def _resume(self, last_event_id: bytes) -> None:
        self.again()
        self.owner.resume(self, last_event_id)
