"""What the links over Streamable HTTP of both eras have in common."""

import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from riglm.adapters.mcp.upstream.deadlines import Deadlines, Patience, Waiting
from riglm.adapters.mcp.upstream.deliveries import Deliveries
from riglm.adapters.mcp.upstream.http_post import Post, PostOwner, Told
from riglm.adapters.mcp.wire.http_client import Exchange, Headers, HttpClient, HttpFailure, ResponseSink, Target
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import Outlet, Reply, UpstreamLink

log: Final = logging.getLogger("riglm.upstream")

_CLOSED: Final = "the link to it was closed"
_NEVER_TWICE: Final = frozenset({"tools/call"})
"""Requests that may have effects, and so are not repeated when it is not sure that they did not arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPlace:
    """Where an upstream is, and how it is reached; `limit` is the longest message in bytes."""

    spec: UpstreamSpec
    client: HttpClient
    target: Target
    patience: Patience
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


class HttpLink(UpstreamLink, PostOwner):
    """Sends every message as a POST of its own."""

    def __init__(self, place: HttpPlace, outlet: Outlet, on_unreachable: Callable[[], None]) -> None:
        """A link that has said nothing yet; `on_unreachable` is called when the server cannot be reached."""
        self.spec = place.spec
        self.limit = place.limit
        self._place = place
        self._outlet = outlet
        self._headers = place.headers
        self._deadlines = Deadlines(place.spec.name, place.patience, self._expired)
        self._posts: dict[int, Post] = {}
        self._deliveries = Deliveries()
        self._on_unreachable = on_unreachable
        self._closed = False

    @abstractmethod
    def block(self, post: Post) -> bytes:
        """The header block for a request."""

    def request(self, message: Message, reply: Reply) -> None:
        """Forward a request."""
        if self._closed:
            reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} cannot be asked any more: {_CLOSED}")
            return
        post = Post(self, message, reply, self._deadlines.add(reply))
        self._posts[id(reply)] = post
        self.dispatch(post)

    def dispatch(self, post: Post) -> None:
        """Send a request now."""
        post.exchange = self._send(b"POST", self.block(post), post.message.line, post)

    def headed(self, post: Post, headers: Headers) -> None:
        """Nothing to note."""

    def answered(self, post: Post, message: Message) -> None:
        """Nothing to note."""

    def refused(self, post: Post, message: Message | None) -> bool:
        """An HTTP error is the answer."""
        return False

    def failed(self, post: Post, failure: HttpFailure) -> None:
        """Try once more what cannot have been run; otherwise the request fails."""
        if failure.reused and post.message.method not in _NEVER_TWICE and not post.repeated:
            post.repeated = True
            post.again()
            self.dispatch(post)
            return
        self._on_unreachable()
        log.warning("no answer", extra={"upstream": self.spec.name, "reason": str(failure)})
        post.fail(ErrorKind.UNAVAILABLE, f"cannot be reached: {failure}")

    def take_up(self, post: Post, last_event_id: bytes) -> None:
        """Streams are not resumable here."""
        post.fail(ErrorKind.UNAVAILABLE, "closed the stream before its answer")

    def ended(self, post: Post) -> None:
        """Forget a request."""
        self._deadlines.remove(post.waiting)
        self._posts.pop(id(post.reply), None)

    def linger(self, exchange: Exchange, seconds: float) -> None:
        """Leave a connection open for a while."""
        self._deliveries.keep(exchange, seconds)

    def left(self, exchange: Exchange) -> None:
        """It closed before."""
        self._deliveries.over(exchange)

    def tell(self, block: bytes, message: Message, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """Send a message that has no answer; `then` is called when it arrived, or did not within so many seconds."""

        def done(_: int) -> None:
            self._deliveries.over(exchange)
            then()

        exchange = self._send(b"POST", block, message.line, Told(done))
        self._deliveries.keep(exchange, seconds, then)

    async def close(self) -> None:
        """Let all connections go."""
        self._closed = True
        for post in list(self._posts.values()):
            post.fail(ErrorKind.UNKNOWN, f"did not answer before {_CLOSED}")
            post.abandon()
        self._deadlines.close()
        self._deliveries.close()

    def _send(self, method: bytes, block: bytes, body: bytes, sink: ResponseSink) -> Exchange:
        return self._place.client.send(self._place.target, method, block, body, sink)

    def _expired(self, waiting: Waiting) -> None:
        post = self._posts.pop(id(waiting.reply), None)
        if post is not None:
            post.abandon()
