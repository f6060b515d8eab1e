"""A link of one client connection over Streamable HTTP, in the handshake era."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from riglm.adapters.mcp.upstream.channel_link import cancellation
from riglm.adapters.mcp.upstream.handshake_replay import HandshakeReplay
from riglm.adapters.mcp.upstream.http_link import NEVER_TWICE, Delivery, HttpLink, as_header, log
from riglm.adapters.mcp.upstream.http_listening import GetStream
from riglm.adapters.mcp.upstream.http_post import PostRequest
from riglm.adapters.mcp.wire.http_client import HttpExchange, HttpHeaders, HttpResponseSink
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import ServerMessageHandler, UpstreamRequest

if TYPE_CHECKING:
    from riglm.adapters.mcp.upstream.http_upstream import HttpUpstream

_UNAVAILABLE: Final = 503
_CLOSE_SECONDS: Final = 2.0
_HOLD_SECONDS: Final = 5.0
_LINGER_SECONDS: Final = 1.0
_PING_SECONDS: Final = 5.0
_PING: Final = jsonrpc.request(b'"riglm-proof"', "ping")
_SURELY_FORGOTTEN: Final = frozenset({404, 410})
_PERHAPS_FORGOTTEN: Final = frozenset({400, 503})
_SESSION_HEADER: Final = b"mcp-session-id"


class _OwnRequest(UpstreamRequest):
    """A request that riglm sends itself."""

    def __init__(self, message: Message, on_message: Callable[[Message], None]) -> None:
        """`on_message` gets what the server sends before its response."""
        self.message = message
        self.headers = {}
        self.response: Message | None = None
        self.reason = ""
        """Why there is no response."""
        self.over = asyncio.Event()
        self._on_message = on_message

    def related(self, message: Message) -> None:
        self._on_message(message)

    def paused(self, retry_ms: int) -> None:
        """Wait on."""

    def replied(self, message: Message, status: int = 200) -> None:
        self.response = message
        self.over.set()

    def failed(self, kind: ErrorKind, reason: str) -> None:
        self.reason = reason
        self.over.set()

    @property
    def is_unknown_method(self) -> bool:
        """True if the server does not know its method."""
        return self.response is not None and jsonrpc.error_code(self.response) == jsonrpc.METHOD_NOT_FOUND


class HandshakeHttpLink(HttpLink):
    """Holds the upstream's session, and opens a new one when the upstream forgot it."""

    __slots__ = ("_handshake", "_held", "_listening", "_lost", "_offered", "_reopening", "_session")

    def __init__(self, upstream: "HttpUpstream", message_handler: ServerMessageHandler) -> None:
        """A link without a session."""
        super().__init__(upstream, message_handler)
        self._offered = b""
        """The id of a session whose handshake is not answered yet."""
        self._session = b""
        """The headers that name the session."""
        self._handshake = HandshakeReplay()
        self._held: list[Callable[[], None]] | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._lost: list[PostRequest] | None = None
        self._listening: GetStream | None = None

    def block(self, post: PostRequest) -> bytes:
        post.session = self._session
        return self._upstream.headers + self._session

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        if message.method == "initialize":
            self._handshake.begin()
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
            self._deliver(self._upstream.headers + self._session, message, _HOLD_SECONDS, self._release)
        else:
            seconds = self._upstream.place.timeout_seconds.initialize
            session = _session_headers(self._offered, b"") if self._offered else self._session
            self._deliver(self._upstream.headers + session, message, seconds)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        post = self._upstream.posts.pop(id(reply), None)
        if post is not None:
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
        self._upstream.closed(self)
        self._held = None
        if self._listening is not None:
            self._listening.stop()
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
        await super().close()
        if _names_session(self._session):
            over = asyncio.Event()
            block = self._upstream.headers + self._session
            Delivery(lambda sink: self._exchange(b"DELETE", block, b"", sink), _CLOSE_SECONDS, lambda _: over.set())
            await over.wait()

    def headed(self, post: PostRequest, headers: HttpHeaders) -> None:
        super().headed(post, headers)
        if post.message.method == "initialize":
            self._offered = headers.get(_SESSION_HEADER) or b""

    def answered(self, post: PostRequest, message: Message) -> None:
        if isinstance(post.reply, _OwnRequest):
            return
        self._handshake.note(post.message, message)
        if post.message.method == "initialize" and message.result:
            self.tools_version += 1
            self._session = self._accept_offered(message)

    def refused(self, post: PostRequest, message: Message | None) -> bool:
        if self._handshake.is_empty or post.message.method == "initialize" or post.repeated:
            return False
        is_forgotten = _is_forgotten(post, message)
        if is_forgotten is False:
            return False
        post.repeated = True
        if post.session != self._session:
            self._send_again(post)  # a new session was opened while the refusal was on its way
            return True
        self._lost = self._lost or []
        self._lost.append(post)
        if self._reopening is None:
            self._reopening = asyncio.get_running_loop().create_task(self._reopen(is_sure=is_forgotten is True))
        return True

    def resume(self, post: PostRequest, last_event_id: bytes) -> None:
        post.exchange = self._get(last_event_id, post)

    def before_expiry(self, post: PostRequest) -> None:
        super().before_expiry(post)
        if post.message.method != "initialize":
            self.send(cancellation(post.message.id or b"null", "riglm's deadline"))

    async def _reopen(self, *, is_sure: bool) -> None:
        """Initialize again, if the upstream really forgot the session, and resend what it refused."""
        words, is_known = "", False
        try:
            is_known = not is_sure and await self._is_session_known()
            if not is_known:
                seconds = self._upstream.place.timeout_seconds.initialize
                self._session = await asyncio.wait_for(self._greet(), seconds)
                self.tools_version += 1
                log.info("re-initialised a session that the upstream forgot", extra={"upstream": self.spec.name})
        except (UpstreamUnavailableError, TimeoutError) as error:
            words = str(error) or "it did not answer in time"
        except Exception:  # noqa: BLE001  # waiting requests must fail, regardless of the reason
            log.exception("greeting again failed", extra={"upstream": self.spec.name})
            words = "see riglm's log"
        self._reopening, self._offered = None, b""
        self._settle(words, is_known=is_known)
        if not words and not is_known and self._listening is not None:
            self._listening.restart()

    async def _is_session_known(self) -> bool:
        """Return True if the upstream still knows the session, or if that is unknown."""
        try:
            post, ping = await asyncio.wait_for(self._ask(_PING, self._session), _PING_SECONDS)
        except (UpstreamUnavailableError, TimeoutError):
            return True
        return post.status not in _SURELY_FORGOTTEN | _PERHAPS_FORGOTTEN or ping.is_unknown_method

    async def _greet(self) -> bytes:
        """Open a session with the client's own handshake, and repeat its subscriptions and log level.

        Returns:
            The headers that name the session.

        Raises:
            UpstreamUnavailableError: the upstream cannot be reached or refuses.
        """
        post, handshake = await self._ask(self._handshake.initialize(), b"")
        if handshake.response is None or not handshake.response.result:
            raise UpstreamUnavailableError(handshake.reason or f"the handshake was answered by HTTP {post.status}")
        session = self._accept_offered(handshake.response)
        for message in self._handshake.messages():
            await self._ask(message, session)
        return session

    async def _ask(self, message: Message, session: bytes) -> tuple[PostRequest, _OwnRequest]:
        """Send a message in a session and wait for its response.

        Raises:
            UpstreamUnavailableError: the upstream cannot be reached.
        """
        request = _OwnRequest(message, self.receive)
        post = PostRequest(self, message, request)
        post.repeated = True
        post.exchange = self._exchange(b"POST", self._upstream.headers + session, message.line, post)
        try:
            await request.over.wait()
        finally:
            post.abandon()
        if not post.status:
            raise UpstreamUnavailableError(request.reason)
        return post, request

    def _settle(self, words: str, *, is_known: bool) -> None:
        """Handle what was refused: the session is known, or lost and cannot be restored because of `words`."""
        lost, self._lost = self._lost, None
        for post in lost or ():
            if is_known or (words and post.status == _UNAVAILABLE):
                post.conclude()
            elif words:
                post.fail(ErrorKind.UNAVAILABLE, f"forgot the session and could not be greeted again: {words}")
            else:
                self._send_again(post)

    def _send_again(self, post: PostRequest) -> None:
        """Send what was refused for its session in the new one, unless it may have run all the same.

        Gateways send a 503 too, for their server.
        """
        if post.status == _UNAVAILABLE and post.message.method in NEVER_TWICE and not _is_about_session(post.answer):
            post.conclude()
        else:
            post.again()
            self.dispatch(post)

    def _accept_offered(self, response: Message) -> bytes:
        """Return the headers of the session that the response to a handshake opens."""
        version = jsonrpc.text(jsonrpc.members(response.result).get("protocolVersion"))
        session, self._offered = _session_headers(self._offered, as_header(version)), b""
        return session

    def _get(self, last_event_id: bytes | None, sink: HttpResponseSink) -> HttpExchange:
        block = b"accept: text/event-stream\r\n" + self._upstream.place.configured + self._session
        if last_event_id:
            block += b"last-event-id: %b\r\n" % last_event_id
        return self._exchange(b"GET", block, b"", sink)

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for step in held:
            step()


def _session_headers(session_id: bytes, version: bytes) -> bytes:
    """Return the headers with a session's id and protocol version."""
    block = b"%b: %b\r\n" % (_SESSION_HEADER, session_id) if session_id else b""
    return block + (b"mcp-protocol-version: %b\r\n" % version if version else b"")


def _names_session(block: bytes) -> bool:
    return block.startswith(_SESSION_HEADER)


def _is_forgotten(post: PostRequest, answer: Message | None) -> bool | None:
    """Return True if an HTTP error means that the session is forgotten; None if that needs a further request.

    `answer` is the error's body if that is a message. A 404 to a request with a session means exactly this, with any
    body; but some servers also send it for an unknown method.
    """
    is_in_session = _names_session(post.session)
    is_about_request = answer is not None and answer.id == post.message.id
    if post.status in _SURELY_FORGOTTEN:
        if answer is None or not is_about_request:
            return True
        return (None if jsonrpc.error_code(answer) == jsonrpc.METHOD_NOT_FOUND else True) if is_in_session else False
    if post.status not in _PERHAPS_FORGOTTEN or not is_in_session:
        return False
    return None if _is_about_session(answer) or not is_about_request else False


def _is_about_session(answer: Message | None) -> bool:
    """Return True if a response is an error of the server about the session, and thus not of a gateway."""
    return answer is not None and b"session" in bytes(answer.error).lower()
