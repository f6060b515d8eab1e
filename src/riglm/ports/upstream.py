"""The servers behind riglm, as the inside sees them."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.session import ProtocolEra
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec


class UpstreamRequest(Protocol):
    """One request on its way to a server.

    Exactly one of `replied` and `failed` ends it; what comes later is ignored.
    """

    message: Message
    headers: Mapping[bytes, bytes]
    """The client's `Mcp-*` headers by lower-case name; empty on other transports."""

    has_unique_id: bool = False
    """Whether no other client has requests with its id: then the server may be sent that."""

    def related(self, message: Message) -> None:
        """Pass on a notification or request of the server that belongs to this request."""

    def paused(self, retry_ms: int) -> None:
        """The server closed the stream before its reply, which riglm asks for again after this time."""

    def replied(self, message: Message, status: int = 200) -> None:
        """Take the reply; `status` is the HTTP status that it came with."""

    def failed(self, kind: ErrorKind, reason: str) -> None:
        """No reply will come."""


class ServerMessageHandler(Protocol):
    """Handler for server messages that belong to no client request, such as list-changed notifications."""

    def unsolicited(self, link: "UpstreamLink", message: Message) -> None:
        """A notification or request of the server that belongs to no request."""

    def disconnected(self, link: "UpstreamLink") -> None:
        """The connection to the server broke: responses to its requests are not expected any more."""
        return


class NullServerMessageHandler(ServerMessageHandler):
    """Answers requests of a server in place of a client where there is none, and ignores notifications."""

    def unsolicited(self, link: "UpstreamLink", message: Message) -> None:
        """Answer a ping with an empty result and any other request with an error."""
        if message.is_request:
            link.send(jsonrpc.answer_without_client(message))


class UpstreamLink(Protocol):
    """A way to one upstream: in the handshake era one for each client connection, in the modern era one for all.

    Nothing here blocks or raises: failures arrive through the reply.
    """

    spec: UpstreamSpec

    @property
    def tools_version(self) -> int:
        """Number of times that the server's tools may have changed: it was restarted, or announced a change."""
        return 0

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        """Forward a request; the answer comes through `reply`."""

    def send(self, message: Message) -> None:
        """Forward a notification, or a response to a request of the server."""

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        """The client gave a request up; `notice` is its `notifications/cancelled`, if it sent one."""

    def listen(self, *, listening: bool) -> None:
        """Set whether server messages are delivered from now on; a link without streams always delivers them."""
        return

    async def close(self) -> None:
        """Close the link and end its requests."""


@runtime_checkable
class UpstreamPort(Protocol):
    """One server behind riglm."""

    spec: UpstreamSpec

    def for_principal(self, principal: str) -> "UpstreamPort":
        """The upstream as a caller uses it: a separate one if each caller has a separate account there."""
        return self

    def connect(self, message_handler: ServerMessageHandler, principal: str = "") -> UpstreamLink:
        """A link for one client connection of the handshake era; nothing is started until its first request.

        A server process that keeps state is never shared by clients of different principals.
        """

    def stateless(self, message_handler: ServerMessageHandler) -> UpstreamLink:
        """The link for requests of the modern era, which may be shared between clients."""

    def supports(self, era: ProtocolEra) -> bool | None:
        """True if the upstream supports this era; None if it is not known yet."""

    def learned(self, era: ProtocolEra, *, supported: bool) -> None:
        """Remember what a conversation found out; forgotten when the upstream restarts."""

    def health(self) -> UpstreamHealth:
        """Return the connection state without a request. Thread-safe."""

    def hold(self, *, on: bool) -> None:
        """Take nothing from the server for the time being, or go on: the only client there is does not read.

        Upstreams that cannot be held back go on as they were.
        """
        return

    def announce_changed_tools(self) -> None:
        """Deliver a `tools/list_changed` over every open link, for a server whose transport does not carry one."""
        return

    async def close(self) -> None:
        """End all links."""
