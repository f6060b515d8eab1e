"""The link for modern requests over Streamable HTTP: each one is independent."""

from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp import headers
from riglm.adapters.mcp.upstream.http_link import HttpLink, Surroundings
from riglm.adapters.mcp.upstream.http_post import Post
from riglm.adapters.mcp.upstream.http_reopening import as_header
from riglm.domain import jsonrpc, parameters, protocol
from riglm.domain.jsonrpc import Message, Raw
from riglm.ports.upstream import Outlet, Reply, Stream

_LATEST: Final = protocol.MODERN_VERSIONS[-1].encode()


class ModernHttpLink(HttpLink):
    """Adds the headers that repeat the body; to give a request up is to close its connection."""

    def __init__(self, around: Surroundings, outlet: Outlet, input_schema: Callable[[str, str], Raw | None]) -> None:
        """`input_schema` gives the schema of an upstream's tool as last listed, by upstream and tool."""
        super().__init__(around, outlet)
        self._input_schema = input_schema

    def block(self, post: Post) -> bytes:
        """The header block for a request: the client's own headers where it sent some, computed ones otherwise."""
        given = post.reply.headers
        if given:
            return self._around.headers + b"".join(b"%b: %b\r\n" % pair for pair in given.items())
        envelope = parameters.envelope(post.message)
        version = as_header(envelope.version if envelope else None) or _LATEST
        return self._around.headers + headers.for_request(post.message, version, self._parameters(post.message))

    def send(self, message: Message) -> None:
        """Forward a notification."""
        block = self._around.headers + headers.for_request(message, _LATEST, ())
        self.tell(block, message, self._around.place.patience.initialize)

    def cancel(self, reply: Reply, notice: Message | None) -> None:
        """Close the request's connection."""
        post = self._under_way(reply)
        if post is not None:
            self.ended(post)
            post.abandon()

    def listen(self, *, listening: bool) -> None:
        """In this era a client listens by a request."""

    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """In this era a broken stream is lost."""
        stream.ended()

    def _parameters(self, message: Message) -> tuple[headers.Annotated, ...]:
        if message.method != "tools/call":
            return ()
        tool = jsonrpc.text(parameters.read(message).name)
        schema = self._input_schema(self.spec.name, tool) if tool else None
        return headers.annotated(schema) if schema else ()
