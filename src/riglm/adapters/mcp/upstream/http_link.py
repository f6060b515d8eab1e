"""What the links over Streamable HTTP of both eras have in common."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from riglm.adapters.mcp.upstream.channel_link import log_unawaited
from riglm.adapters.mcp.upstream.deadlines import Deadlines, UpstreamTimeouts
from riglm.adapters.mcp.upstream.health import RequestHealthTracker
from riglm.adapters.mcp.upstream.http_post import NotificationPost, PostOwner, PostRequest
from riglm.adapters.mcp.wire.http_client import (
    HttpClient,
    HttpClientError,
    HttpExchange,
    HttpHeaders,
    HttpResponseSink,
    Target,
)
from riglm.domain import protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamRequest

if TYPE_CHECKING:
    from riglm.adapters.mcp.oauth.signed_in_client import SignedInClient


class Deliveries:
    """Lets every exchange go after a while, and all of them when the link closes."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[HttpExchange, tuple[asyncio.TimerHandle, Callable[[], None] | None]] | None = None
        """None when empty: most links are idle, and there may be very many."""

    def keep(self, exchange: HttpExchange, seconds: float, on_drop: Callable[[], None] | None = None) -> None:
        """Set the timeout of an exchange; `on_drop` is called if it expires."""
        timer = asyncio.get_running_loop().call_later(seconds, self._drop, exchange)
        if self._kept is None:
            self._kept = {}
        self._kept[exchange] = (timer, on_drop)

    def over(self, exchange: HttpExchange) -> None:
        """An exchange came to its end by itself."""
        kept = self._take(exchange)
        if kept is not None:
            kept[0].cancel()

    def close(self) -> None:
        """Let all of them go."""
        kept, self._kept = self._kept, None
        for exchange, (timer, _) in (kept or {}).items():
            timer.cancel()
            exchange.abort()

    def _drop(self, exchange: HttpExchange) -> None:
        kept = self._take(exchange)
        exchange.abort()
        if kept is not None and kept[1] is not None:
            kept[1]()

    def _take(self, exchange: HttpExchange) -> tuple[asyncio.TimerHandle, Callable[[], None] | None] | None:
        if self._kept is None:
            return None
        kept = self._kept.pop(exchange, None)
        if not self._kept:
            self._kept = None
        return kept


log: Final = logging.getLogger("riglm.upstream")

_CLOSED: Final = "the link to it was closed"
NEVER_TWICE: Final = frozenset({"tools/call"})
"""Requests that may have effects, and so are not repeated when it is not sure that they did not arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEndpoint:
    """Where an upstream is, and how it is reached; `limit` is the longest message in bytes."""

    spec: UpstreamSpec
    client: "HttpClient | SignedInClient"
    target: Target
    timeout_seconds: UpstreamTimeouts
    limit: int

    @property
    def headers(self) -> bytes:
        """The header block that every POST starts with: ours, and what the configuration adds."""
        own = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
        return own + self.configured

    @property
    def configured(self) -> bytes:
        """The headers of the configuration."""
        return b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in self.spec.headers.items())


class HttpLinkContext(Protocol):
    """What the links to one upstream share; `headers` is the header block that every POST starts with."""

    place: HttpEndpoint
    headers: bytes
    posts: dict[int, PostRequest]
    """The requests in flight of all links, by the `id()` of their reply."""
    deadlines: Deadlines[PostRequest]
    condition: RequestHealthTracker

    def unreachable(self, reason: str) -> None:
        """The server could not be reached."""

    def closed(self, link: "HttpLink") -> None:
        """A link is closed permanently."""


class HttpLink(UpstreamLink, PostOwner):
    """Sends every message as a separate POST.

    There may be a link for each of very many idle clients: what they can share is in their surroundings, and what a
    link rarely needs is made on demand.
    """

    __slots__ = ("_around", "_closed", "_deliveries", "_message_handler", "limit", "spec", "tools_version")

    tools_version: int

    def __init__(self, around: HttpLinkContext, message_handler: ServerMessageHandler) -> None:
        """A link that has said nothing yet."""
        self.spec = around.place.spec
        self.limit = around.place.limit
        self._around = around
        self._message_handler = message_handler
        self._deliveries = Deliveries()
        self._closed = False
        self.tools_version = 0

    @abstractmethod
    def block(self, post: PostRequest) -> bytes:
        """The header block for a request."""

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        if self._closed:
            reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} cannot be asked any more: {_CLOSED}")
            return
        post = self._around.posts[id(reply)] = PostRequest(self, message, reply)
        self._around.deadlines.watch()
        self.dispatch(post)

    def dispatch(self, post: PostRequest) -> None:
        """Send a request now."""
        self._around.condition.asked()
        post.exchange = self._send(b"POST", self.block(post), post.message.line, post)

    def headed(self, post: PostRequest, headers: HttpHeaders) -> None:
        self._around.condition.answered(post.status)

    def answered(self, post: PostRequest, message: Message) -> None:
        """Nothing to note."""

    def notified(self, message: Message) -> None:
        if message.method == protocol.TOOLS_CHANGED:
            self.tools_version += 1

    def receive(self, message: Message) -> None:
        """Deliver a message of the server that belongs to no request."""
        if message.is_response:
            log_unawaited(self.spec.name, message)
            return
        self.notified(message)
        self._message_handler.unsolicited(self, message)

    def refused(self, post: PostRequest, message: Message | None) -> bool:
        return False

    def failed(self, post: PostRequest, failure: HttpClientError) -> None:
        if failure.reused and post.message.method not in NEVER_TWICE and not post.repeated:
            post.repeated = True
            post.again()
            self.dispatch(post)
            return
        self._around.unreachable(str(failure))
        log.warning("no answer", extra={"upstream": self.spec.name, "reason": str(failure)})
        if failure.is_unreachable:
            problem = "cannot be reached"
        else:
            problem = "gave no usable answer" if failure.sent else "was not asked"
        post.fail(ErrorKind.UNAVAILABLE, f"{problem}: {failure}")

    def take_up(self, post: PostRequest, last_event_id: bytes) -> None:
        post.fail(ErrorKind.UNAVAILABLE, "closed the stream before its answer")

    def ended(self, post: PostRequest) -> None:
        self._around.posts.pop(id(post.reply), None)

    def linger(self, exchange: HttpExchange, seconds: float) -> None:
        self._deliveries.keep(exchange, seconds)

    def left(self, exchange: HttpExchange) -> None:
        self._deliveries.over(exchange)

    def notify(self, block: bytes, message: Message, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """Send a message that has no response; `then` is called when it arrived, or timed out."""

        def done(_: int) -> None:
            self._deliveries.over(exchange)
            if exchange.redirect:
                about = {"upstream": self.spec.name, "method": message.method, "redirect": exchange.redirect.strip()}
                log.warning("a message was not taken", extra=about)
            then()

        exchange = self._send(b"POST", block, message.line, NotificationPost(done))
        self._deliveries.keep(exchange, seconds, then)

    async def close(self) -> None:
        self._closed = True
        for post in [post for post in self._around.posts.values() if post.owner is self]:
            post.fail(ErrorKind.UNKNOWN, f"did not answer before {_CLOSED}")
            post.abandon()
        self._deliveries.close()

    def _send(self, method: bytes, block: bytes, body: bytes, sink: HttpResponseSink) -> HttpExchange:
        place = self._around.place
        return place.client.send(place.target, method, block, body, sink)

    def before_expiry(self, post: PostRequest) -> None:
        self._around.condition.expired()
        post.abandon()
