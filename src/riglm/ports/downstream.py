"""The client side of riglm, as the inside sees it."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from riglm.domain.jsonrpc import Message
from riglm.domain.parameters import Envelope
from riglm.domain.session import Transport
from riglm.ports.upstream import EventMark, Stream

NO_HEADERS: Final[Mapping[bytes, bytes]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is on the other side of a connection or of one HTTP request.

    `principal` is the subject of a checked token, or empty for whoever may use this machine; `address` the peer's
    address; `handle` a session handle that the client was given, taken from a header or a path.
    """

    transport: Transport
    principal: str = ""
    address: str = ""
    handle: str = ""


class ReplySink(Protocol):
    """Where the downstream adapter takes the answer to one request, and what belongs to it."""

    @abstractmethod
    def related(self, message: Message, event: EventMark | None = None) -> None:
        """A notification or request of the server that belongs to the request."""

    @abstractmethod
    def primed(self, event: EventMark) -> None:
        """A place in the event stream without a message."""

    @abstractmethod
    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """The answer; nothing comes after it."""

    @abstractmethod
    def interrupted(self) -> None:
        """The stream ends here without an answer; the client will take it up again."""


class ClientChannel(Protocol):
    """What a connected client can be told outside of its own requests."""

    @abstractmethod
    def push(self, message: Message, event: EventMark | None = None) -> bool:
        """Hand over a message; False when there is no open stream to carry it now."""


class Underway(Protocol):
    """A request of the client that is on its way."""

    done: bool
    """Whether it was answered or given up."""


class Conversation(Protocol):
    """One client connection of the handshake era."""

    @property
    def resumable(self) -> bool:
        """Whether the server names places in its event streams, and takes `resume`; otherwise that is for others."""
        return False

    @abstractmethod
    def received(
        self, message: Message, sink: ReplySink, headers: Mapping[bytes, bytes] = NO_HEADERS, *, resumable: bool = False
    ) -> Underway | None:
        """Take a message of the client; something underway for a request."""

    @abstractmethod
    def listen(self, *, listening: bool) -> None:
        """Whether the client has a stream open for what the server says of its own accord."""

    @abstractmethod
    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """The client asks for the rest of a stream that it lost."""

    @abstractmethod
    async def close(self) -> None:
        """The connection ended."""


class ModernService(Protocol):
    """Takes requests of the modern era, each by itself."""

    @abstractmethod
    def received(
        self,
        message: Message,
        envelope: Envelope,
        sink: ReplySink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> Underway:
        """Take a request."""

    @abstractmethod
    def told(self, message: Message) -> None:
        """Take a notification."""

    @abstractmethod
    def cancel(self, underway: Underway, notice: Message | None = None) -> None:
        """The client gave a request up; `notice` is its cancellation, if it sent one."""

    @abstractmethod
    def input_schema(self, tool: str) -> bytes | None:
        """The raw `inputSchema` of a tool that was listed, by the name that clients use."""


class ClientConnection(Protocol):
    """A client on a channel that carries both eras."""

    @property
    @abstractmethod
    def owes(self) -> bool:
        """Whether the client asked something that is not answered yet; a subscription has no answer to wait for."""

    @abstractmethod
    def received(self, line: bytes) -> None:
        """Take one message as it came; what is none is answered with an error."""

    @abstractmethod
    async def close(self) -> None:
        """The client is gone."""


class DownstreamPort(Protocol):
    """What the inside offers to whoever talks with clients."""

    modern: ModernService

    @abstractmethod
    def connect(self, caller: Caller, channel: ClientChannel, sink: ReplySink) -> ClientConnection:
        """A connection whose every answer goes to `sink`."""

    @abstractmethod
    def hold(self, *, on: bool) -> None:
        """Take nothing from the servers for the time being, or go on: the only client of this process does not read."""

    @abstractmethod
    def converse(self, caller: Caller, channel: ClientChannel) -> Conversation:
        """A conversation for a client that opens a connection with the handshake."""
