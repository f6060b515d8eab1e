"""A link of one client connection over Streamable HTTP, in the handshake era."""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.upstream.channel_link import cancellation
from riglm.adapters.mcp.upstream.http_link import NEVER_TWICE, HttpLink, HttpLinkContext, log
from riglm.adapters.mcp.upstream.http_listening import GetStream
from riglm.adapters.mcp.upstream.http_post import NotificationPost, PostRequest
from riglm.adapters.mcp.upstream.http_reopening import (
    SESSION_HEADER,
    as_header,
    forgot,
    greet,
    is_known,
    session_headers,
)
from riglm.adapters.mcp.wire.http_client import HttpExchange, HttpHeaders, HttpResponseSink
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import ServerMessageHandler, UpstreamRequest

_UNAVAILABLE: Final = 503
_CLOSE_SECONDS: Final = 2.0
_HOLD_SECONDS: Final = 5.0
_LINGER_SECONDS: Final = 1.0
_DEFAULT: Final = 2048
"""A longer handshake is rare, and not worth to be shared."""

_REPEATED: Final = frozenset({"logging/setLevel", "resources/subscribe"})


class HandshakeHttpLink(HttpLink):
    """Holds the upstream's session, and opens a new one when the upstream forgot it."""

    __slots__ = ("_handshake", "_held", "_listening", "_lost", "_offered", "_reopening", "_repeated", "_session")

    def __init__(self, around: HttpLinkContext, message_handler: ServerMessageHandler) -> None:
        """A link without a session."""
        super().__init__(around, message_handler)
        self._offered = b""
        """The id of a session whose handshake is not answered yet."""
        self._session = b""
        """The headers that name the session."""
        self._handshake = b""
        self._repeated: dict[bytes, Message] | None = None
        self._held: list[Callable[[], None]] | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._lost: list[PostRequest] | None = None
        self._listening: GetStream | None = None

    def block(self, post: PostRequest) -> bytes:
        post.session = self._session
        return self._around.headers + self._session

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        if message.method == "initialize":
            self._remember(message)
            self._session = self._offered = b""
        super().request(message, reply)

    def dispatch(self, post: PostRequest) -> None:
        if self._held is not None:
            self._held.append(lambda: self.dispatch(post))
        elif not post.over:
            super().dispatch(post)

    def send(self, message: Message) -> None:
        if self._held is not None:
            self._held.append(lambda: self.send(message))
        elif message.method == "notifications/initialized":
            self._held = []
            self.notify(self._around.headers + self._session, message, _HOLD_SECONDS, self._release)
        else:
            seconds = self._around.place.timeout_seconds.initialize
            session = session_headers(self._offered, b"") if self._offered else self._session
            self.notify(self._around.headers + session, message, seconds)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        post = self._around.posts.get(id(reply))
        if post is not None:
            self.ended(post)
            post.abandon(_LINGER_SECONDS)
            self.send(notice or cancellation(post.message.id or b"null", "the client gave up"))

    def listen(self, *, listening: bool) -> None:
        if listening:
            if self._listening is None:
                self._listening = GetStream(self._get, self.limit, self.receive)
            if self._held is not None:
                self._held.append(self._listening.start)
            else:
                self._listening.start()
        elif self._listening is not None:
            self._listening.stop()
            if not self._listening.has_place:
                self._listening = None

    async def close(self) -> None:
        self._around.closed(self)
        if self._listening is not None:
            self._listening.stop()
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
        await super().close()
        if _names_session(self._session):
            done = asyncio.Event()
            block = self._around.headers + self._session
            farewell = self._send(b"DELETE", block, b"", NotificationPost(lambda _: done.set()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), _CLOSE_SECONDS)
            farewell.abort()

    def headed(self, post: PostRequest, headers: HttpHeaders) -> None:
        super().headed(post, headers)
        if post.message.method == "initialize":
            self._offered = headers.get(b"mcp-session-id") or b""

    def answered(self, post: PostRequest, message: Message) -> None:
        method = post.message.method
        if method == "initialize" and message.result:
            self.tools_version += 1
            version = jsonrpc.text(jsonrpc.members(message.result).get("protocolVersion"))
            self._session = session_headers(self._offered, as_header(version))
            self._offered = b""
        elif method in _REPEATED and message.result:
            self._repeated = self._repeated or {}
            self._repeated[_subject(post.message)] = post.message
        elif method == "resources/unsubscribe" and self._repeated is not None:
            self._repeated.pop(_subject(post.message), None)

    def refused(self, post: PostRequest, message: Message | None) -> bool:
        if not self._handshake or post.message.method == "initialize" or post.repeated:
            return False
        gone = forgot(post.status, post.message, message, in_session=_names_session(post.session))
        if gone is False:
            return False
        post.repeated = True
        if post.session != self._session:
            self._send_anew(post)  # a new session was opened while the refusal was on its way
            return True
        self._lost = self._lost or []
        self._lost.append(post)
        if self._reopening is None:
            self._reopening = asyncio.get_running_loop().create_task(self._reopen(proven=gone is True))
        return True

    def take_up(self, post: PostRequest, last_event_id: bytes) -> None:
        post.exchange = self._get(last_event_id, post)

    def _remember(self, handshake: Message) -> None:
        self._handshake = _shared(handshake.line) if len(handshake.line) <= _DEFAULT else handshake.line

    async def _reopen(self, *, proven: bool) -> None:
        """Initialize again, if the upstream really forgot the session, and resend what it refused."""
        words, known, place = "", False, self._around.place
        try:
            known = not proven and await is_known(place, self._around.headers + self._session, self.receive)
            if not known:
                repeated = tuple((self._repeated or {}).values())
                greeting = greet(place, jsonrpc.decode(self._handshake), repeated, self.receive, self._note_offered)
                self._session = session_headers(*await asyncio.wait_for(greeting, place.timeout_seconds.initialize))
                self.tools_version += 1
                log.info("re-initialised a session that the upstream forgot", extra={"upstream": self.spec.name})
        except (UpstreamUnavailableError, TimeoutError) as error:
            words = str(error) or "it did not answer in time"
        except Exception:  # noqa: BLE001  # waiting requests must fail, regardless of the reason
            log.exception("greeting again failed", extra={"upstream": self.spec.name})
            words = "see riglm's log"
        self._reopening, self._offered = None, b""
        self._settle(words, known=known)
        if not words and not known and self._listening is not None:
            self._listening.restart()

    def _note_offered(self, session_id: bytes) -> None:
        """The server named a session before it answered the handshake: responses to its requests belong to that."""
        self._offered = session_id

    def _settle(self, words: str, *, known: bool) -> None:
        """Handle what was refused: the session is `known`, or lost and cannot be restored because of `words`."""
        lost, self._lost = self._lost, None
        for post in lost or ():
            if known or (words and post.status == _UNAVAILABLE):
                post.conclude()
            elif words:
                post.fail(ErrorKind.UNAVAILABLE, f"forgot the session and could not be greeted again: {words}")
            else:
                self._send_anew(post)

    def _send_anew(self, post: PostRequest) -> None:
        """Send what was refused for its session in the new one, unless it may have run all the same."""
        if post.status == _UNAVAILABLE and _may_have_run(post):
            post.conclude()
        else:
            post.again()
            self.dispatch(post)

    def _get(self, last_event_id: bytes | None, sink: HttpResponseSink) -> HttpExchange:
        block = b"accept: text/event-stream\r\n" + self._around.place.configured + self._session
        if last_event_id:
            block += b"last-event-id: %b\r\n" % last_event_id
        return self._send(b"GET", block, b"", sink)

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for step in held:
            step()

    def before_expiry(self, post: PostRequest) -> None:
        super().before_expiry(post)
        if post.message.method != "initialize":
            self.send(cancellation(post.message.id or b"null", "riglm's deadline"))


@functools.lru_cache(maxsize=64)
def _shared(line: bytes) -> bytes:
    """One object for equal handshakes: clients of one kind say the same, and each link keeps its client's."""
    return line


def _names_session(block: bytes) -> bool:
    return block.startswith(SESSION_HEADER)


def _may_have_run(post: PostRequest) -> bool:
    """True if a request may have had effects despite a 503: gateways send that too, for their server."""
    return post.message.method in NEVER_TWICE and not post.names_session


def _subject(message: Message) -> bytes:
    """What a request is about that must be repeated in a new session: the log level, or one resource."""
    return bytes(jsonrpc.members(message.params).get("uri", b"level"))
