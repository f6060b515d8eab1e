"""One client's place at a server process that it shares with others."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import EventMark, Outlet, Reply, Stream, UpstreamLink

if TYPE_CHECKING:
    from riglm.adapters.mcp.upstream.shared_handshake import SharedHandshake


class Seat(UpstreamLink):
    """The link of one client connection to a shared process, which looks like a dedicated one to the client."""

    def __init__(self, shared: "SharedHandshake", outlet: Outlet) -> None:
        self.spec = shared.spec
        self.outlet = outlet
        self._shared = shared
        self._underway: dict[int, Asked] = {}
        self._opening: Reply | None = None
        self._closed = False

    def request(self, message: Message, reply: Reply) -> None:
        """Forward a request, or answer it with what is known already."""
        if self._closed:
            reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} cannot be asked any more")
            return
        if message.method == "initialize":
            self._opening = reply
            self._shared.greet(message, reply)
            return
        asked = Asked(message, reply, self)
        if message.method == "resources/unsubscribe" and not self._shared.unsubscribe(self, asked.uri):
            reply.replied(jsonrpc.result(message.id or b"null", b"{}"))
            return
        if message.method == "resources/subscribe":
            self._shared.subscribe(self, asked.uri)
        self._underway[id(reply)] = asked
        self._shared.ask(message, asked)

    def send(self, message: Message) -> None:
        """Forward a notification or a response; a cancellation of what is not underway means nothing to the others."""
        if message.is_response:
            self._shared.respond(self, message)
        elif message.method == "notifications/initialized":
            self._shared.finish_greeting(message)
        elif message.method != "notifications/cancelled":
            self._shared.tell(message)

    def cancel(self, reply: Reply, notice: Message | None) -> None:
        """Send it to the server, under the id that it knows."""
        asked = self._underway.pop(id(reply), None)
        if asked is not None:
            self._shared.give_up(asked, notice)
        else:
            self._shared.leave_greeting(reply)

    def listen(self, *, listening: bool) -> None:
        """A channel always listens."""

    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """A channel has no places to go back to."""
        stream.ended()

    async def close(self) -> None:
        """Leave; what was asked is given up."""
        if self._closed:
            return
        self._closed = True
        words = f"upstream {self.spec.name!r} did not answer before the link to it was closed"
        if self._opening is not None and self._shared.leave_greeting(self._opening):
            self._opening.failed(ErrorKind.UNKNOWN, words)
        for asked in list(self._underway.values()):
            self._shared.give_up(asked, None)
            asked.failed(ErrorKind.UNKNOWN, words)
        await self._shared.leave(self)

    def over(self, asked: "Asked") -> None:
        """A request came to its end."""
        self._underway.pop(id(asked.reply), None)

    def refused(self, asked: "Asked") -> None:
        """A request had no success."""
        if asked.message.method == "resources/subscribe":
            self._shared.unsubscribe(self, asked.uri)


class Asked(Reply):
    """A request of one seat on its way."""

    __slots__ = ("headers", "message", "reply", "resumable", "seat")

    def __init__(self, message: Message, reply: Reply, seat: Seat) -> None:
        self.message = message
        self.reply = reply
        self.seat = seat
        self.headers = reply.headers
        self.resumable = reply.resumable

    @property
    def uri(self) -> str:
        """The resource that a subscription is about."""
        return jsonrpc.text(jsonrpc.members(self.message.params).get("uri")) or ""

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Pass on what belongs to the request."""
        self.reply.related(message, event)

    def primed(self, event: EventMark) -> None:
        """Channels have no places to name."""

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Pass on the answer."""
        self.seat.over(self)
        if message.error:
            self.seat.refused(self)
        self.reply.replied(message, status, event)

    def failed(self, kind: ErrorKind, words: str) -> None:
        """Pass on that no answer will come."""
        self.seat.over(self)
        self.seat.refused(self)
        self.reply.failed(kind, words)

    def interrupted(self) -> None:
        """Channels do not say this."""


class Greeting(Reply):
    """An `initialize` on its way, and all clients that wait for its answer."""

    __slots__ = ("_on_end", "_replies", "headers", "message", "resumable")

    def __init__(self, message: Message, on_end: Callable[[], None]) -> None:
        self.message = message
        self.headers = {}
        self.resumable = False
        self._on_end = on_end
        self._replies: list[Reply] = []

    def join(self, reply: Reply) -> None:
        """One more client waits."""
        self._replies.append(reply)

    def part(self, reply: Reply) -> bool:
        """A client waits no longer; whether it did."""
        if reply not in self._replies:
            return False
        self._replies.remove(reply)
        return True

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Pass it on to the client that was first."""
        for reply in self._replies[:1]:
            reply.related(message, event)

    def primed(self, event: EventMark) -> None:
        """Channels have no places to name."""

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Send a response to every client, each under its own id."""
        self._on_end()
        for reply in list(self._replies):
            reply.replied(message.replace(id=reply.message.id or b"null"), status)

    def failed(self, kind: ErrorKind, words: str) -> None:
        """Notify every client."""
        self._on_end()
        for reply in list(self._replies):
            reply.failed(kind, words)

    def interrupted(self) -> None:
        """Channels do not say this."""
