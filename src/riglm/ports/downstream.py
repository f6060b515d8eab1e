"""The client side of riglm, as the inside sees it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from riglm.domain.jsonrpc import Message
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import Session, Transport
from riglm.ports.upstream import EventPosition, ResumedStreamHandler

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
    """Where the downstream adapter takes the answer to one request, and what belongs to it."""

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        """A notification or request of the server that belongs to the request."""

    def primed(self, event: EventPosition) -> None:
        """A place in the event stream without a message, for clients that can resume streams."""
        return

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        """The answer; nothing comes after it."""

    def interrupted(self) -> None:
        """The stream ends here without an answer, for clients that can resume it."""
        return


class ForwardingSink(ClientResponseSink):
    """Forwards everything to another sink; subclasses override what they change."""

    __slots__ = ("_sink",)

    def __init__(self, sink: ClientResponseSink) -> None:
        self._sink = sink

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        self._sink.related(message, event)

    def primed(self, event: EventPosition) -> None:
        self._sink.primed(event)

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        self._sink.replied(message, status, event)

    def interrupted(self) -> None:
        self._sink.interrupted()


class ClientChannel(Protocol):
    """Messages to a connected client outside of its requests."""

    def push(self, message: Message, event: EventPosition | None = None) -> bool:
        """Hand over a message; False when there is no open stream to carry it now."""


class InFlightRequest(Protocol):
    """A request of the client that is on its way."""

    done: bool
    """Whether it was answered or given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionHandoff:
    """What a process needs to continue a client connection of a different process.

    `handshake` is the client's `initialize`, and `state_requests` set its log level and subscriptions. `tickets` are
    the resume tokens by server; to a server without one, all of them are sent again.
    """

    session: Session
    handshake: Message
    state_requests: tuple[Message, ...] = ()
    tickets: Mapping[str, bytes] = field(default_factory=dict)


class HandshakeConnection(Protocol):
    """One client connection of the handshake era."""

    @property
    def resumable(self) -> bool:
        """Whether the server names places in its event streams, and takes `resume`; otherwise that is for others."""
        return False

    def received(
        self,
        message: Message,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        *,
        resumable: bool = False,
    ) -> InFlightRequest | None:
        """Take a message of the client; something underway for a request."""

    def listen(self, *, listening: bool) -> None:
        """True if the client has a stream open for server messages."""

    def resume(self, last_event_id: bytes, stream: ResumedStreamHandler) -> None:
        """The client asks for the rest of a stream that it lost."""

    @property
    def session(self) -> Session:
        """The session as known now."""

    @property
    def tickets(self) -> Mapping[str, bytes]:
        """Resume tokens by server, for servers that other processes can continue."""

    def adopt(self, handoff: ConnectionHandoff) -> bool:
        """Continue a connection that another process began; False if servers must be sent all of it again."""

    def heard(self, notice: Message) -> None:
        """Another process was notified that a list changed."""

    def on_remote_activity(self) -> None:
        """The client did something at another process."""
        return

    def detach(self) -> None:
        """Other processes go on with the connection: closing it must end nothing that is not this process's own."""

    async def close(self) -> None:
        """The connection ended."""


class ModernRequestHandler(Protocol):
    """Takes requests of the modern era, each by itself."""

    def received(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> InFlightRequest:
        """Take a request."""

    def handle_notification(self, message: Message) -> None:
        """Take a notification."""

    def cancel(self, in_flight: InFlightRequest, notice: Message | None = None) -> None:
        """The client gave a request up; `notice` is its cancellation, if it sent one."""

    def input_schema(self, tool: str) -> bytes | None:
        """The raw `inputSchema` of a tool that was listed, by the name that clients use."""


class DualEraConnection(Protocol):
    """A client on a channel that carries both eras."""

    @property
    def in_flight(self) -> Sequence[Message]:
        """The client's requests without a response yet, except subscriptions, which have none to wait for."""

    def received(self, line: bytes) -> None:
        """Take one message as it came; what is none is answered with an error."""

    def take(self, message: Message) -> None:
        """Take one message that is decoded already."""

    async def close(self) -> None:
        """The client disconnected."""


@runtime_checkable
class DownstreamPort(Protocol):
    """The application as downstream adapters use it."""

    arrived: Callable[[], None] | None = None
    """Called when a message is complete and about to be read; None without a measurement."""

    def modern_for(self, caller: Caller) -> ModernRequestHandler:
        """The handler of a caller's requests of the modern era: the same for callers with the same rights."""

    def connect(self, caller: Caller, channel: ClientChannel, sink: ClientResponseSink) -> DualEraConnection:
        """A connection whose every answer goes to `sink`."""

    def hold(self, *, on: bool) -> None:
        """Take nothing from the servers for the time being, or go on: the only client of this process does not read."""

    def converse(self, caller: Caller, channel: ClientChannel) -> HandshakeConnection:
        """A conversation for a client that opens a connection with the handshake."""


ENDED: Final = "ended"
"""News of a connection: its client ended it."""

LISTENING: Final = "listening"
"""News of a connection: its client has a stream open for what belongs to no request."""

BeforeResponse = Callable[[Message], Awaitable[None]]
"""To be awaited with the answer to a request before it goes out: what it changed is known to all processes then."""


class SessionSharing(Protocol):
    """Lets any process serve any request of a session. Nothing here raises, or waits longer than a short deadline."""

    async def opening(self, caller: Caller) -> None:
        """A client is about to be let in, whose session may be known by a handle."""

    async def opened(
        self, session_id: bytes, caller: Caller, handshake: Message, conversation: HandshakeConnection
    ) -> None:
        """A client was let in: from now on other processes may go on with its connection."""

    async def find(self, session_id: bytes, caller: Caller) -> ConnectionHandoff | None:
        """What is needed to go on here with this caller's connection; None when it is known nowhere, or not his."""

    async def resume(
        self,
        session_id: bytes,
        handoff: ConnectionHandoff,
        conversation: HandshakeConnection,
        *,
        introduce: bool = True,
    ) -> bool:
        """Bring a new conversation to the state of the connection; False if a server refuses that.

        Without `introduce` no server is contacted: the connection is only ended.
        """

    async def arrives(
        self, session_id: bytes, message: Message, caller: Caller, conversation: HandshakeConnection
    ) -> BeforeResponse | None:
        """Bring a conversation up to date before it takes a message; None when that will change nothing.

        Raises:
            SessionEndedError: the client ended it at another process.
        """

    async def modern_arrives(
        self, message: Message, envelope: RequestEnvelope, caller: Caller
    ) -> BeforeResponse | None:
        """Bring the session of a request of the modern era up to date; None when the request will change nothing."""

    async def ended(self, session_id: bytes) -> None:
        """The client ended its connection: no process goes on with it."""

    async def lives(self, session_ids: Sequence[bytes], *, longer: bool) -> list[bool]:
        """Which connections other processes may go on with; with `longer` they stay so from now as if just used."""

    def left(self, session_id: bytes) -> None:
        """A connection is not kept here any more."""

    def notify(self, session_id: bytes, news: str) -> None:
        """Let the other processes that keep a connection know of something."""

    def listen(self, listener: "NewsListener") -> None:
        """Call `listener` with news of other processes about connections."""


class NewsListener(Protocol):
    """Who keeps connections."""

    def heard(self, session_id: bytes, news: str) -> None:
        """Another process says something of a connection that is kept here."""
