"""Links over Streamable HTTP: what those of both eras have in common, and the link of the modern era."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from riglm.adapters.mcp import headers
from riglm.adapters.mcp.upstream.channel_link import log_unawaited
from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.upstream.http_post import PostRequest
from riglm.adapters.mcp.wire.http_client import (
    HttpClient,
    HttpClientError,
    HttpExchange,
    HttpHeaders,
    HttpResponseSink,
    Target,
)
from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamRequest

if TYPE_CHECKING:
    from riglm.adapters.mcp.oauth.signed_in_client import SignedInClient
    from riglm.adapters.mcp.upstream.http_upstream import HttpUpstream

log: Final = logging.getLogger("riglm.upstream")

_CLOSED: Final = "the link to it was closed"
NEVER_TWICE: Final = frozenset({"tools/call"})
"""Requests that may have effects, and so are not repeated when it is not sure that they did not arrive."""

_LATEST: Final = protocol.MODERN_VERSIONS[-1].encode()


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


class Delivery(HttpResponseSink):
    """A message without a response; its arrival is awaited for a time."""

    def __init__(
        self, send: Callable[[HttpResponseSink], HttpExchange], seconds: float, on_end: Callable[[HttpExchange], None]
    ) -> None:
        """Send it; `on_end` is called when it arrived, or timed out."""
        self._on_end = on_end
        self._exchange = send(self)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def head(self, status: int, headers: HttpHeaders) -> None:
        """Read nothing."""

    def data(self, chunk: bytes) -> None:
        """Read nothing."""

    def end(self) -> None:
        self._timer.cancel()
        self._on_end(self._exchange)

    def failed(self, failure: HttpClientError) -> None:
        self.end()

    def _expire(self) -> None:
        self._exchange.abort()
        self._on_end(self._exchange)


class HttpLink(UpstreamLink):
    """Sends every message as a separate POST.

    There may be a link for each of very many idle clients: what they can share is in the upstream, and what a link
    rarely needs is made on demand.
    """

    __slots__ = ("_closed", "_message_handler", "_upstream", "limit", "spec", "tools_version")

    tools_version: int

    def __init__(self, upstream: "HttpUpstream", message_handler: ServerMessageHandler) -> None:
        """A link that has sent nothing yet."""
        self.spec = upstream.spec
        self.limit = upstream.place.limit
        self._upstream = upstream
        self._message_handler = message_handler
        self._closed = False
        self.tools_version = 0

    @abstractmethod
    def block(self, post: PostRequest) -> bytes:
        """Return the header block for a request."""

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        if self._closed:
            reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} cannot be asked any more: {_CLOSED}")
            return
        post = self._upstream.posts[id(reply)] = PostRequest(self, message, reply)
        self._upstream.deadlines.watch()
        self.dispatch(post)

    def dispatch(self, post: PostRequest) -> None:
        """Send a request now."""
        self._upstream.condition.asked()
        post.exchange = self._exchange(b"POST", self.block(post), post.message.line, post)

    def headed(self, post: PostRequest, headers: HttpHeaders) -> None:
        """Called when the upstream begins to answer a request."""
        self._upstream.condition.answered(post.status)

    def answered(self, post: PostRequest, message: Message) -> None:
        """Called with the response to a request, before it is passed on."""

    def notified(self, message: Message) -> None:
        """Called with each notification and request that the upstream sends."""
        if message.method == protocol.TOOLS_CHANGED:
            self.tools_version += 1

    def refused(self, post: PostRequest, message: Message | None) -> bool:
        """Called when the upstream answers with an HTTP error; True if the link handles that and the request goes on.

        `message` is the body of the error, if that is a message.
        """
        return False

    def failed(self, post: PostRequest, failure: HttpClientError) -> None:
        """Called when the exchange of a request breaks."""
        if failure.reused and post.message.method not in NEVER_TWICE and not post.repeated:
            post.repeated = True
            post.again()
            self.dispatch(post)
            return
        self._upstream.unreachable(str(failure))
        log.warning("no answer", extra={"upstream": self.spec.name, "reason": str(failure)})
        if failure.is_unreachable:
            problem = "cannot be reached"
        else:
            problem = "gave no usable answer" if failure.sent else "was not asked"
        post.fail(ErrorKind.UNAVAILABLE, f"{problem}: {failure}")

    def resume(self, post: PostRequest, last_event_id: bytes) -> None:
        """Request the rest of a request's stream."""
        post.fail(ErrorKind.UNAVAILABLE, "closed the stream before its answer")

    def ended(self, post: PostRequest) -> None:
        """Called when a request ends, before its reply."""
        self._upstream.posts.pop(id(post.reply), None)

    def before_expiry(self, post: PostRequest) -> None:
        """Called with a request that timed out, before it fails."""
        self._upstream.condition.expired()
        post.abandon()

    def receive(self, message: Message) -> None:
        """Deliver a message of the server that belongs to no request."""
        if message.is_response:
            log_unawaited(self.spec.name, message)
            return
        self.notified(message)
        self._message_handler.unsolicited(self, message)

    async def close(self) -> None:
        self._closed = True
        for post in [post for post in self._upstream.posts.values() if post.owner is self]:
            post.fail(ErrorKind.UNKNOWN, f"did not answer before {_CLOSED}")
            post.abandon()

    def _deliver(
        self, block: bytes, message: Message, seconds: float, on_end: Callable[[], None] = lambda: None
    ) -> None:
        """Send a message that has no response; `on_end` is called when it arrived, or timed out."""

        def end(exchange: HttpExchange) -> None:
            if exchange.redirect:
                about = {"upstream": self.spec.name, "method": message.method, "redirect": exchange.redirect.strip()}
                log.warning("a message was not taken", extra=about)
            on_end()

        Delivery(lambda sink: self._exchange(b"POST", block, message.line, sink), seconds, end)

    def _exchange(self, method: bytes, block: bytes, body: bytes, sink: HttpResponseSink) -> HttpExchange:
        place = self._upstream.place
        return place.client.send(place.target, method, block, body, sink)


class ModernHttpLink(HttpLink):
    """Adds the headers that repeat the body; to give a request up is to close its connection."""

    def block(self, post: PostRequest) -> bytes:
        given = post.reply.headers
        if given:
            return self._upstream.headers + b"".join(b"%b: %b\r\n" % pair for pair in given.items())
        envelope = request_params.envelope(post.message)
        version = as_header(envelope.version if envelope else None) or _LATEST
        return self._upstream.headers + headers.for_request(post.message, version, self._parameters(post.message))

    def send(self, message: Message) -> None:
        block = self._upstream.headers + headers.for_request(message, _LATEST, ())
        self._deliver(block, message, self._upstream.place.timeout_seconds.initialize)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        post = self._upstream.posts.pop(id(reply), None)
        if post is not None:
            post.abandon()

    def _parameters(self, message: Message) -> tuple[headers.AnnotatedParameter, ...]:
        if message.method != "tools/call":
            return ()
        tool = jsonrpc.text(request_params.read(message).name)
        schema = self._upstream.input_schema(self.spec.name, tool) if tool else None
        return headers.annotated(schema) if schema else ()


def as_header(version: str | None) -> bytes:
    """Return a protocol version that a peer named, as a header may carry it; empty when it is none."""
    return version.encode() if version and version.isascii() and version.isprintable() else b""
