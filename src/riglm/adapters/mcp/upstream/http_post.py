"""One request to an upstream over Streamable HTTP, from its POST to the answer."""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final, Protocol

from riglm.adapters.mcp.upstream.channel import answered_id
from riglm.adapters.mcp.upstream.deadlines import PendingRequest
from riglm.adapters.mcp.wire.event_stream import Event, EventParser, EventTooLargeError, unwrap
from riglm.adapters.mcp.wire.http_client import HttpClientError, HttpExchange, HttpHeaders, HttpResponseSink
from riglm.adapters.mcp.wire.messages import ChunkBuffer, MessageDecoder
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import MalformedMessageError, Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import UpstreamRequest

RETRY_MS: Final = 1000
"""How long to wait before a broken stream is asked for again, when the server does not say."""

_log: Final = logging.getLogger("riglm.upstream")
REFUSALS: Final = frozenset({401, 403})
_SCOPE: Final = re.compile(rb'\bscope="?([!#-\[\]-~ ]+)')
_DESCRIPTION: Final = re.compile(rb'\berror_description="((?:[^"\\]|\\.)+)"')
_TEXT_MEMBERS: Final = ("error_description", "message", "Message", "detail", "msg", "reason", "title", "error")
_MAX_TEXT: Final = 200
_TOO_MANY: Final = 429
_MAX_RESUMPTIONS: Final = 10
_LINGER_SECONDS: Final = 5.0
_MAX_RETRY_SECONDS: Final = 30.0


class PostOwner(Protocol):
    """The link that a request goes over, as the request sees it."""

    spec: UpstreamSpec
    limit: int

    def headed(self, post: "PostRequest", headers: HttpHeaders) -> None:
        """The upstream began to answer."""

    def answered(self, post: "PostRequest", message: Message) -> None:
        """The answer is there, and will be passed on next."""

    def notified(self, message: Message) -> None:
        """Called with each notification and request that the upstream sends."""

    def refused(self, post: "PostRequest", message: Message | None) -> bool:
        """The upstream answered with an HTTP error; True when the link deals with it and the request goes on."""

    def failed(self, post: "PostRequest", failure: HttpClientError) -> None:
        """The exchange broke."""

    def take_up(self, post: "PostRequest", last_event_id: bytes) -> None:
        """Ask for the rest of the request's stream."""

    def ended(self, post: "PostRequest") -> None:
        """Nothing more will come for this request."""

    def before_expiry(self, post: "PostRequest") -> None:
        """Called with a request that timed out, before it fails."""

    def linger(self, exchange: HttpExchange, seconds: float) -> None:
        """Seconds for which a request's connection is kept although the request is over."""

    def left(self, exchange: HttpExchange) -> None:
        """The server ended a connection that was left to it."""


def names_session(answer: Message | None) -> bool:
    """True if a response is an error about the session."""
    return answer is not None and b"session" in bytes(answer.error).lower()


def _text_of(refusal: bytes) -> str:
    """Return the text of a refusal's body, shortened: what JSON calls an error or a message, or plain text."""
    body = jsonrpc.members(refusal)
    parts = [jsonrpc.members(body.get("error", b"")), body]
    parts += [jsonrpc.members(each) for name in ("detail", "errors") for each in jsonrpc.elements(body.get(name, b""))]
    values = (part.get(name) for part in parts for name in _TEXT_MEMBERS)
    text = next((found for value in values if (found := jsonrpc.text(value))), "")
    if not text and not refusal.lstrip().startswith((b"{", b"[", b"<")):
        text = refusal[: 4 * _MAX_TEXT].decode("utf-8", "replace")
    return _shortened(text)


def _shortened(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())[:_MAX_TEXT]


def describe_refusal(spec: UpstreamSpec, status: int, challenge: bytes, body: bytes) -> str:
    """Return the error for a response of the `REFUSALS`, with the scope that the server requires and its text."""
    scope = _SCOPE.search(challenge) if b"insufficient_scope" in challenge else None
    described = _DESCRIPTION.search(challenge)
    text = _shortened(re.sub(r"\\(.)", r"\1", described[1].decode("utf-8", "replace"))) if described else _text_of(body)
    words = f"refused the credentials (HTTP {status}): {spec.sign_in_hint}see `auth` and `headers` of the upstream"
    found = f"; it requires the scope {scope[1].decode('ascii')}" if scope else ""
    return f"{words}{found}; it says: {text}" if text else f"{words}{found}"


def is_answer(asked: bytes, answer: Message) -> bool:
    """True if a response is for the request with this raw id; those under the id null are."""
    given = answer.id or b"null"
    return given in (asked, b"null") or jsonrpc.find_id((jsonrpc.id_key(asked),), given) is not None


class PostRequest(PendingRequest, HttpResponseSink):
    """Passes on what comes back for one request, as JSON or as an event stream."""

    __slots__ = (
        "_answer",
        "_body",
        "_challenge",
        "_decoder",
        "_last_event_id",
        "_parser",
        "_refusal",
        "_resumptions",
        "_retry_ms",
        "_skipped",
        "_timer",
        "exchange",
        "message",
        "over",
        "owner",
        "repeated",
        "session",
        "status",
    )

    def __init__(self, owner: PostOwner, message: Message, reply: UpstreamRequest) -> None:
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
        self._answer: Message | None = None
        """The message that the body is."""
        self._decoder = MessageDecoder(self._received, self._malformed, self._pause)
        self._parser: EventParser | None = None
        self._last_event_id: bytes | None = None
        self._retry_ms = RETRY_MS
        self._resumptions = 0
        self._timer: asyncio.TimerHandle | None = None
        self._challenge = self._refusal = b""
        """The header and the body of a refusal, for the error."""
        self._skipped = ""
        """What came in place of the answer, for its error."""

    def again(self) -> None:
        """Discard what was received: the request, or the rest of its stream, is requested again."""
        self.status = 0
        self._body = ChunkBuffer()
        self._answer = self._parser = None

    @property
    def names_session(self) -> bool:
        """True if the response is an error of the server about the session, and thus not of a gateway."""
        return names_session(self._answer)

    def abandon(self, after: float = 0.0) -> None:
        """Read nothing more, and release the connection `after` seconds."""
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        if self.exchange is not None:
            if after:
                self.owner.linger(self.exchange, after)
            else:
                self.exchange.abort()

    def head(self, status: int, headers: HttpHeaders) -> None:
        self.status = status
        if self.over:
            return
        self.owner.headed(self, headers)
        self._challenge = headers.get(b"www-authenticate") or b""
        if status < 300 and (headers.get(b"content-type") or b"").lower().startswith(b"text/event-stream"):
            self._parser = EventParser(self._event, self.owner.limit)

    def data(self, chunk: bytes) -> None:
        if self._parser is None:
            self._body.add(chunk)
            too_much = self._body.size > self.owner.limit
        else:
            too_much = self._is_too_much(self._parser, chunk)
        if too_much:
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
            self._leave()
            return
        if self._parser is not None:
            self._broke_off()
            return
        message = self._answer
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
        message = self._answer
        if self.status in REFUSALS:
            self.fail(
                ErrorKind.UNAVAILABLE, describe_refusal(self.owner.spec, self.status, self._challenge, self._refusal)
            )
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
            self._leave()
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

    def _leave(self) -> None:
        if self.exchange is not None:
            self.owner.left(self.exchange)

    @staticmethod
    def _is_too_much(parser: EventParser, chunk: bytes) -> bool:
        try:
            parser.feed(chunk)
        except EventTooLargeError:
            return True
        return False

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
        if self._parser is None:
            self._refusal = data
        elif self.over:
            return
        elif answered_id(data, data) == jsonrpc.id_key(self.message.id or b"null"):
            self.fail(ErrorKind.PROTOCOL, f"sent an unreadable answer: {error}")
            self.abandon()
        else:
            self._skip(f"an event that is no message: {error}")

    def _received(self, message: Message) -> None:
        if self._parser is None:
            self._answer, self._refusal = message, message.line
        elif self.over:
            return
        elif message.is_response and not is_answer(self.message.id or b"null", message):
            self._skip("an answer under an id that was not asked")
        elif message.is_response:
            self._replied(message)
            if self.exchange is not None:
                self.owner.linger(self.exchange, _LINGER_SECONDS)
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
        self.owner.take_up(self, last_event_id)


class NotificationPost(HttpResponseSink):
    """A message to which no answer is owed; only its delivery is awaited."""

    def __init__(self, done: Callable[[int], None] = lambda _: None) -> None:
        """`done` gets the HTTP status, 0 when there was none."""
        self._done = done
        self._status = 0

    def head(self, status: int, headers: HttpHeaders) -> None:
        self._status = status

    def data(self, chunk: bytes) -> None:
        """Nothing is owed, so nothing is read."""

    def end(self) -> None:
        self._done(self._status)

    def failed(self, failure: HttpClientError) -> None:
        self._done(0)
