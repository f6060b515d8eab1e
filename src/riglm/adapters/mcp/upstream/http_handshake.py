"""A link of one client connection over Streamable HTTP, in the handshake era."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.upstream.deadlines import Waiting
from riglm.adapters.mcp.upstream.http_link import HttpLink, HttpPlace, log
from riglm.adapters.mcp.upstream.http_listening import Listening, resume_stream
from riglm.adapters.mcp.upstream.http_post import Post, Told
from riglm.adapters.mcp.upstream.http_reopening import as_header, greet, session_headers
from riglm.adapters.mcp.wire.http_client import Exchange, Headers, ResponseSink
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailable
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import EventMark, Outlet, Reply, Stream

_SURELY_GONE: Final = frozenset({404, 410})
_PERHAPS_GONE: Final = frozenset({400, 503})
_CLOSE_SECONDS: Final = 2.0
_HOLD_SECONDS: Final = 5.0
_LINGER_SECONDS: Final = 1.0
_REPEATED: Final = frozenset({"logging/setLevel", "resources/subscribe"})


class HandshakeHttpLink(HttpLink):
    """Holds the upstream's session, and opens a new one when the upstream forgot it."""

    def __init__(
        self,
        place: HttpPlace,
        outlet: Outlet,
        on_close: Callable[["HandshakeHttpLink"], None],
        on_unreachable: Callable[[], None],
    ) -> None:
        """A link without a session; `on_close` is told when it is closed for good."""
        super().__init__(place, outlet, on_unreachable)
        self._on_close = on_close
        self._session_id = b""
        self._version = b""
        self._handshake: Message | None = None
        self._repeated: dict[bytes, Message] = {}
        self._held: list[Callable[[], None]] | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._lost: list[Post] = []
        self._listening = Listening(self._get, place.limit, self._heard)

    @property
    def resumable(self) -> bool:
        """The upstream's events keep their ids on the way to the client."""
        return True

    def block(self, post: Post) -> bytes:
        """The header block for a request."""
        return self._headers

    def request(self, message: Message, reply: Reply) -> None:
        """Forward a request."""
        if message.method == "initialize":
            self._handshake = message
            self._enter(b"", b"")
        super().request(message, reply)

    def dispatch(self, post: Post) -> None:
        """Send a request, after the handshake's end has arrived."""
        if self._held is not None:
            self._held.append(lambda: self.dispatch(post))
        elif not post.over:
            super().dispatch(post)

    def send(self, message: Message) -> None:
        """Forward a notification or a response; what follows the handshake's end waits until that arrived."""
        if self._held is not None:
            self._held.append(lambda: self.send(message))
        elif message.method == "notifications/initialized":
            self._held = []
            self.tell(self._headers, message, _HOLD_SECONDS, self._release)
        else:
            self.tell(self._headers, message, self._place.patience.initialize)

    def cancel(self, reply: Reply, notice: Message | None) -> None:
        """Forward the client's notice, and let the request's connection go a little later."""
        post = self._posts.get(id(reply))
        if post is not None:
            self.ended(post)
            post.abandon(_LINGER_SECONDS)
            self.send(notice or _cancellation(post.message, "the client gave up"))

    def listen(self, *, listening: bool) -> None:
        """Keep a stream open, or not."""
        if not listening:
            self._listening.stop()
        elif self._held is not None:
            self._held.append(self._listening.start)
        else:
            self._listening.start()

    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """Ask for the rest of a stream."""
        exchange: Exchange

        def ended() -> None:
            self._deliveries.over(exchange)
            stream.ended()

        exchange = resume_stream(self._get, self.limit, last_event_id, stream, ended)
        self._deliveries.keep(exchange, self._place.patience.call_max, stream.ended)

    async def close(self) -> None:
        """End the session."""
        self._on_close(self)
        self._listening.stop()
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
        await super().close()
        if self._session_id:
            done = asyncio.Event()
            farewell = self._send(b"DELETE", self._headers, b"", Told(lambda _: done.set()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), _CLOSE_SECONDS)
            farewell.abort()

    def headed(self, post: Post, headers: Headers) -> None:
        """The answer to the handshake brings the session's id."""
        if post.message.method == "initialize":
            self._session_id = headers.get(b"mcp-session-id") or b""

    def answered(self, post: Post, message: Message) -> None:
        """Note what a new session of the upstream must be told again."""
        method = post.message.method
        if method == "initialize" and message.result:
            version = jsonrpc.text(jsonrpc.members(message.result).get("protocolVersion"))
            self._enter(self._session_id, as_header(version))
        elif method in _REPEATED and message.result:
            self._repeated[_subject(post.message)] = post.message
        elif method == "resources/unsubscribe":
            self._repeated.pop(_subject(post.message), None)

    def refused(self, post: Post, message: Message | None) -> bool:
        """An upstream that forgot the session is greeted again, once for each request."""
        if self._handshake is None or post.message.method == "initialize" or post.repeated:
            return False
        about_request = message is not None and message.id == post.message.id
        gone = post.status in _SURELY_GONE or (post.status in _PERHAPS_GONE and self._session_id)
        if about_request or not gone:
            return False
        post.repeated = True
        self._lost.append(post)
        if self._reopening is None:
            self._reopening = asyncio.get_running_loop().create_task(self._reopen())
        return True

    def take_up(self, post: Post, last_event_id: bytes) -> None:
        """Ask for the rest of a request's stream."""
        post.exchange = self._get(last_event_id, post)

    async def _reopen(self) -> None:
        """Greet the upstream again, and send anew what it refused."""
        words = ""
        try:
            if self._handshake is not None:
                entered = await asyncio.wait_for(
                    greet(self._place, self._handshake, tuple(self._repeated.values())), self._place.patience.initialize
                )
                self._enter(*entered)
                log.info("re-initialised a session that the upstream forgot", extra={"upstream": self.spec.name})
        except (UpstreamUnavailable, TimeoutError) as error:
            words = str(error) or "it did not answer in time"
        except Exception:  # noqa: BLE001  # whoever waits must be told, whatever went wrong
            log.exception("greeting again failed", extra={"upstream": self.spec.name})
            words = "riglm's log says why"
        self._reopening = None
        lost, self._lost = self._lost, []
        for post in lost:
            if words:
                post.fail(ErrorKind.UNAVAILABLE, f"forgot the session and could not be greeted again: {words}")
            else:
                post.again()
                self.dispatch(post)
        if not words:
            self._listening.restart()

    def _enter(self, session_id: bytes, version: bytes) -> None:
        self._session_id = session_id
        self._version = version
        self._headers = self._place.headers + session_headers(session_id, version)

    def _get(self, last_event_id: bytes | None, sink: ResponseSink) -> Exchange:
        block = b"accept: text/event-stream\r\n" + self._place.configured
        block += session_headers(self._session_id, self._version)
        if last_event_id:
            block += b"last-event-id: %b\r\n" % last_event_id
        return self._send(b"GET", block, b"", sink)

    def _heard(self, message: Message, event: EventMark | None) -> None:
        self._outlet.unsolicited(self, message, event)

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for step in held:
            step()

    def _expired(self, waiting: Waiting) -> None:
        message = waiting.reply.message
        super()._expired(waiting)
        if message.method != "initialize":
            self.send(_cancellation(message, "riglm's deadline"))


def _subject(message: Message) -> bytes:
    """What a request is about that must be repeated in a new session: the log level, or one resource."""
    return bytes(jsonrpc.members(message.params).get("uri", b"level"))


def _cancellation(message: Message, reason: str) -> Message:
    params = b'{"requestId":%b,"reason":%b}' % (message.id or b"null", jsonrpc.encode(reason))
    return jsonrpc.notification("notifications/cancelled", params)
