"""Messages to a client outside of its requests, and requests of servers to it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.protocol import TOOLS_CHANGED
from riglm.ports.downstream import ClientChannel, ClientResponseSink
from riglm.ports.upstream import UpstreamLink

COALESCE_SECONDS: Final = 0.25
"""Changes that come within this time of the first are announced together with it."""

CHANGED: Final = {
    TOOLS_CHANGED: ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
"""Which lists each notification is about."""

ANNOUNCEMENT: Final = {method: note for note, methods in CHANGED.items() for method in methods}
"""List-changed notifications by list method."""

MAX_HELD_BACK: Final = 256
"""Maximum number of messages held for a client without an open stream; the oldest are dropped first."""

MAX_BYTES: Final = 1 << 20
"""Maximum bytes of held messages, except for a single larger one."""

MAX_SERVER_REQUESTS: Final = 1000
"""Maximum number of server requests that a client leaves unanswered. The oldest are forgotten first."""

_TOKEN: Final = ("_meta", "progressToken")
_log: Final = logging.getLogger("riglm.proxy")


class DebouncedNotifier:
    """Collects changes, and announces each kind of them at most once in `COALESCE_SECONDS`."""

    def __init__(self, notify: Callable[[Message], None]) -> None:
        """`notify` sends the notification to the client."""
        self._notify = notify
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def announce(self, notification: str) -> None:
        """Send soon, unless it is already scheduled."""
        if notification not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[notification] = loop.call_later(COALESCE_SECONDS, self._send, notification)

    def close(self) -> None:
        """Stop sending."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _send(self, notification: str) -> None:
        del self._timers[notification]
        self._notify(jsonrpc.notification(notification))


class HeldMessages:
    """Messages for a client that has no open stream at the moment."""

    __slots__ = ("_bytes", "_channel", "_has_dropped", "_waiting")

    def __init__(self, channel: ClientChannel) -> None:
        self._channel = channel
        self._waiting: deque[Message] | None = None
        """None when nothing waits: an empty deque is large, and there may be very many idle clients."""
        self._bytes = 0
        self._has_dropped = False

    def __len__(self) -> int:
        return len(self._waiting or ())

    def push(self, message: Message) -> None:
        """Hand a message over, or keep it until a stream opens."""
        if not self._channel.push(message):
            self.keep(message)

    def keep(self, message: Message) -> None:
        """Keep a message until a stream opens."""
        waiting = self._waiting = self._waiting or deque()
        waiting.append(message)
        self._bytes += len(message.line)
        while len(waiting) > MAX_HELD_BACK or (self._bytes > MAX_BYTES and len(waiting) > 1):
            self._bytes -= len(waiting.popleft().line)
            if not self._has_dropped:
                self._has_dropped = True
                _log.warning("dropped messages of servers for a client that does not listen; logged once per client")

    def flush(self) -> None:
        """Hand over what was kept."""
        while self._waiting and self._channel.push(self._waiting[0]):
            self._bytes -= len(self._waiting.popleft().line)
        self._waiting = self._waiting or None


class ToolChanges:
    """Announces changes of a handshake client's tool list that riglm makes: once, until the client has listed again."""

    __slots__ = ("_channel", "_held", "_is_announced")

    def __init__(self, channel: ClientChannel, held: HeldMessages) -> None:
        self._channel = channel
        self._held = held
        self._is_announced = False

    def announce(self, sink: ClientResponseSink | None = None) -> None:
        """Send the notification on an open stream, or over that of a request, or when the next stream opens."""
        if self._is_announced:
            return
        self._is_announced = True
        notification = jsonrpc.notification(TOOLS_CHANGED)
        if self._channel.push(notification):
            return
        if sink is not None:
            sink.related(notification)
        else:
            self._held.keep(notification)

    def note_list(self) -> None:
        """The client gets the list as it is now."""
        self._is_announced = False


class _ServerRequest(NamedTuple):
    link: UpstreamLink
    id: bytes
    token: bytes


class ServerRequests:
    """Gives requests of several servers, and their progress tokens, ids of riglm, and returns the client's responses.

    With one server, ids and tokens pass as they are.
    """

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[bytes, _ServerRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    def to_client(self, link: UpstreamLink, message: Message) -> Message | None:
        """Return a message of a server as the client gets it; None for one that it does not get.

        These are pings, to which riglm responds, and cancellations of requests that the client does not have.
        """
        if message.is_request and message.method == "ping":
            link.send(jsonrpc.answer_without_client(message))
            return None
        if message.id is not None:
            return self._add(link, message, message.id)
        return self._withdraw(link, message) if message.method == "notifications/cancelled" else message

    def take_response(self, response: Message) -> None:
        """Send a response of the client to its server, under the id that the server knows."""
        found = self._open.pop(jsonrpc.id_key(response.id), None) if response.id is not None else None
        if found is not None:
            found.link.send(response.replace(id=found.id))

    def withdraw_all(self, link: UpstreamLink) -> list[Message]:
        """Withdraw all requests of a server; return the notifications of that for the client."""
        withdrawn = [own_id for own_id, request in self._open.items() if request.link is link]
        for own_id in withdrawn:
            del self._open[own_id]
        params = (b'{"requestId":%b,"reason":"the server has ended"}' % own_id for own_id in withdrawn)
        return [jsonrpc.notification("notifications/cancelled", each) for each in params]

    def take_progress(self, notification: Message) -> None:
        """Send a progress notification of the client to the server whose request it is about."""
        token = bytes(jsonrpc.members(notification.params).get("progressToken", b""))
        found = self._open.get(jsonrpc.id_key(token)) if token else None
        if found is not None and found.token:
            params = jsonrpc.with_member(notification.params, ("progressToken",), found.token)
            found.link.send(notification.replace(params=params))

    def _add(self, link: UpstreamLink, message: Message, server_id: bytes) -> Message:
        self._count += 1
        own_id = b'"%b:%d"' % (jsonrpc.encode(link.spec.name)[1:-1], self._count)
        meta = jsonrpc.members(message.params).get("_meta") if b'"progressToken"' in message.line else None
        token = bytes(jsonrpc.members(meta).get("progressToken", b"")) if meta else b""
        if len(self._open) >= MAX_SERVER_REQUESTS:
            del self._open[next(iter(self._open))]
        self._open[own_id] = _ServerRequest(link, server_id, token)
        if token:
            return message.replace(id=own_id, params=jsonrpc.with_member(message.params, _TOKEN, own_id))
        return message.replace(id=own_id)

    def _withdraw(self, link: UpstreamLink, message: Message) -> Message | None:
        named = bytes(jsonrpc.members(message.params).get("requestId", b"")) or b"null"
        key = jsonrpc.id_key(named)
        for own_id, request in self._open.items():
            if request.link is link and jsonrpc.id_key(request.id) == key:
                del self._open[own_id]
                return message.replace(params=jsonrpc.with_member(message.params, ("requestId",), own_id))
        return None
