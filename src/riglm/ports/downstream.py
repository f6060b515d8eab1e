"""The client side of riglm, as the inside sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from riglm.domain.jsonrpc import Message
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import Transport

NO_HEADERS: Final[Mapping[bytes, bytes]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is on the other side of a connection or of one HTTP request.

    `principal` is the subject of a checked token, or empty for local users; `address` is the peer's
    address; `handle` a session handle that the client was given, taken from a header or a path. `profile` is the one
    that it selected, empty for `filtering.profile`. `access` are the access rules that apply, one on each line; empty
    if there are none for this process. `connection` identifies HTTP connections of one address apart.
    """

    transport: Transport
    principal: str = ""
    profile: str = ""
    access: str = ""
    address: str = ""
    handle: str = ""
    connection: str = field(default="", compare=False)

    @property
    def owner(self) -> str:
        """Whose sessions it may continue: those of its principal in its profile, with the same rights."""
        return "\n".join((self.principal, self.profile, self.access)).rstrip("\n")


class ClientResponseSink(Protocol):
    """Where the downstream adapter takes the response to one request, and what belongs to it."""

    def related(self, message: Message) -> None:
        """A notification or request of the server that belongs to the request."""

    def paused(self, retry_ms: int) -> None:
        """The server closed its stream for now: a client that can resume streams may be asked to come back."""
        return

    def replied(self, message: Message, status: int = 200) -> None:
        """The response; nothing comes after it."""


class ClientChannel(Protocol):
    """Messages to a connected client outside of its requests."""

    def push(self, message: Message) -> bool:
        """Hand over a message; False when there is no open stream to carry it now."""


class InFlightRequest(Protocol):
    """A request of a client that has no response yet."""

    done: bool
    """Whether it has a response, or was cancelled."""

    def cancel(self, notice: Message | None = None) -> None:
        """Stop working for it; `notice` is the client's cancellation, if it sent one."""


class ClientConnection(Protocol):
    """One client's connection, which may carry requests of both eras."""

    @property
    def in_flight(self) -> Sequence[Message]:
        """The client's requests without a response yet, except subscriptions, which have none to wait for."""

    def receive_line(self, line: bytes) -> None:
        """Process one message as it came; what is none gets an error."""

    def receive(
        self, message: Message, sink: ClientResponseSink | None = None, headers: Mapping[bytes, bytes] = NO_HEADERS
    ) -> InFlightRequest | None:
        """Process a message; the response goes to `sink`, by default that of the connection. Never raises."""

    def listen(self, *, listening: bool) -> None:
        """Set whether the client has a stream open for server messages."""

    async def close(self) -> None:
        """The client disconnected."""


@runtime_checkable
class DownstreamPort(Protocol):
    """The application as downstream adapters use it."""

    def connect(
        self, caller: Caller, channel: ClientChannel, sink: ClientResponseSink | None = None
    ) -> ClientConnection:
        """Return a connection for a client; without a `sink`, one is given with each message."""

    def receive_modern(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> InFlightRequest:
        """Process a modern request that belongs to no connection."""

    def notify_modern(self, message: Message, caller: Caller) -> None:
        """Process a notification that belongs to no connection."""

    def input_schema(self, tool: str, caller: Caller) -> bytes | None:
        """Return the raw `inputSchema` of a tool that was listed, by the name that clients use."""

    def hold(self, *, on: bool) -> None:
        """Pause or resume reading from the servers (backpressure while the only client does not read)."""


class StoredHandshakes(Protocol):
    """Keeps what reopens an MCP session in another process. Nothing here raises, or waits for long."""

    async def keep(self, session_id: bytes, caller: Caller, message: Message) -> None:
        """Keep the `initialize` of a client, or a later request that sets its log level or a subscription."""

    async def find(self, session_id: bytes, caller: Caller) -> Sequence[Message]:
        """Return these messages in their order; none if the session is unknown, or another caller's."""

    async def delete(self, session_id: bytes) -> None:
        """The client ended the session."""

    async def prolong(self, session_ids: Sequence[bytes]) -> None:
        """Keep sessions as if they had just been used."""
