"""One client's connection: its requests in flight, and what servers and riglm send it outside of them."""

import functools
import logging
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Final

from riglm.application.proxy.client_messages import CHANGED, HeldMessages, ToolChanges
from riglm.application.proxy.client_roots import ClientRoots
from riglm.application.proxy.request import Request
from riglm.application.proxy.upstreams import Upstreams
from riglm.domain import jsonrpc, rawjson, request_params
from riglm.domain.access import is_loopback
from riglm.domain.jsonrpc import MalformedMessageError, Message
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import ClientInfo, Session, Transport
from riglm.ports.downstream import NO_HEADERS, Caller, ClientChannel, ClientConnection, ClientResponseSink
from riglm.ports.upstream import UpstreamLink

if TYPE_CHECKING:
    from riglm.application.proxy.proxy_service import ProxyService

_MAX_SHARED: Final = 256
"""Maximum length of client information that is shared between equal clients."""

_IN_USE: Final = "Invalid request: the id is in use"
_log: Final = logging.getLogger("riglm.proxy")


class Connection(ClientConnection):
    """A client's connection. The first request of the handshake era opens its links to the servers."""

    __slots__ = (
        "_channel",
        "_proxy",
        "_roots",
        "_session",
        "_sink",
        "caller",
        "client",
        "held",
        "is_notified",
        "latest_session",
        "requests",
        "tool_changes",
        "upstreams",
    )

    def __init__(
        self, proxy: "ProxyService", caller: Caller, channel: ClientChannel, sink: ClientResponseSink | None
    ) -> None:
        self._proxy = proxy
        self._channel = channel
        self._sink = sink
        self.held = HeldMessages(channel)
        """What waits until the client opens a stream."""
        self._roots: ClientRoots | None = None
        self._session: Session | None = None
        self.caller = caller
        self.client = ClientInfo()
        self.requests: dict[bytes, Request] = {}
        """Those in flight, by the key of their id."""
        self.upstreams: Upstreams | None = None
        """The servers of the handshake era; None before the first request of it."""
        self.tool_changes = ToolChanges(channel, self.held)
        """Announces lists that riglm changed."""
        self.is_notified = False
        """Whether the client is notified of changes of its tool list."""

    @property
    def session(self) -> Session:
        """The session of the connection."""
        if self._session is None:
            self._session = self.latest_session = self._proxy.parts.sessions.of_connection(self.caller, self.client, "")
        return self._session

    @property
    def listed_session(self) -> Session:
        """The session whose list the client has: calls may name a conversation, lists hardly ever do."""
        session = self.session
        return session if self.latest_session.ended_at is not None else self.latest_session

    @property
    def in_flight(self) -> list[Message]:
        return [each.asked for each in self.requests.values() if each.method != "subscriptions/listen"]

    def receive_line(self, line: bytes) -> None:
        arrived = perf_counter()
        try:
            message = jsonrpc.decode(line)
        except MalformedMessageError as error:
            self._reply(jsonrpc.error(error.id, error.code, str(error)))
        except Exception:  # noqa: BLE001  # a message must not end the connection
            self._fail(rawjson.asked_id(line, line), self._sink)
        else:
            self.receive(message, arrived=arrived)

    def receive(
        self,
        message: Message,
        sink: ClientResponseSink | None = None,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        arrived: float = 0.0,
    ) -> Request | None:
        sink = sink or self._sink
        try:
            if message.id is None or message.method is None or sink is None:
                self._receive_other(message)
                return None
            envelope = request_params.envelope(message)
            request = Request(
                self._proxy,
                (self.upstreams if envelope is None else None) or self._open_upstreams(envelope),
                message,
                sink,
                self.caller,
                connection=self,
                envelope=envelope,
                headers=headers,
                arrived=arrived,
            )
            key = request.key = jsonrpc.id_key(message.id)
            if key not in self.requests:
                self.requests[key] = request
                self._proxy.handle(request)
                return request
            sink.replied(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, _IN_USE), 400)
        except Exception:  # noqa: BLE001  # fails open
            self._fail(message.id if message.is_request else None, sink)
        return None

    def open(self, handshake: Message) -> None:
        """Note who opens the connection."""
        client, _ = request_params.client_of(handshake)
        self.client = _shared(client) if len(client.name) + len(client.version) <= _MAX_SHARED else client
        is_remote = self.caller.transport in {Transport.HTTP, Transport.SSE}
        if is_remote and "roots" in jsonrpc.members(jsonrpc.members(handshake.params).get("capabilities", b"{}")):
            is_here = is_loopback(self.caller.address)
            sessions = self._proxy.parts.sessions
            self._roots = ClientRoots(self._channel, sessions, lambda: self.session, is_here=is_here)

    def listen(self, *, listening: bool) -> None:
        if listening:
            self.held.flush()
        if self._roots is not None:
            self._roots.listen(listening=listening)
        if self.upstreams is not None:
            self.upstreams.listen(listening=listening)

    def forward(self, link: UpstreamLink, message: Message) -> None:
        """Forward a server message that belongs to no request.

        A request goes over the stream of a request in flight if the client has no other stream open.
        """
        upstreams = self.upstreams
        if upstreams is not None and upstreams.only is None:
            methods = CHANGED.get(message.method or "")
            if methods is not None:
                upstreams.members[link.spec.name].forget(methods)
                upstreams.announcer.announce(message.method or "")
                return
            if message.method == "notifications/progress":
                return  # the server has no request with this token, but a different server may
            seen = upstreams.server_requests.to_client(link, message)
            if seen is None:
                return
            message = seen
        if self._channel.push(message):
            return
        carriers = [each for each in self.requests.values() if each.envelope is None]
        carriers = [each for each in carriers if each.link is link] or carriers
        if message.is_request and carriers:
            carriers[-1].sink.related(message)
        elif message.is_request and message.method == "ping":
            link.send(jsonrpc.answer_without_client(message))
        else:
            self.held.keep(message)

    def notify_changed(self, has_changed: Callable[[Session], bool]) -> None:
        """Notify the client if its list has changed."""
        if self.is_notified and has_changed(self.listed_session):
            self.tool_changes.announce()

    async def close(self) -> None:
        if self._proxy.parts.list_changes is not None:
            self._proxy.parts.list_changes.remove(self)
        for request in list(self.requests.values()):
            request.cancel()
        if self._session is not None:
            self._proxy.parts.sessions.closed(self._session)
        if self.upstreams is not None:
            await self.upstreams.close()

    def _open_upstreams(self, envelope: RequestEnvelope | None) -> Upstreams:
        if envelope is not None:
            return self._proxy.modern_upstreams(self.caller)
        self.upstreams = self._proxy.handshake_upstreams(self)
        return self.upstreams

    def _receive_other(self, message: Message) -> None:
        """Process a notification or a response."""
        if self._proxy.misreading.refuses(message):
            return
        if message.method == "notifications/cancelled" and self._cancel(message):
            return
        if self._roots is not None and self._roots.receive(message):
            return
        if self.upstreams is None:
            self._proxy.notify_modern(message, self.caller)
            return
        self.upstreams.notify(message)
        if message.method == "notifications/initialized" and self._sink is not None:
            self.listen(listening=True)

    def _cancel(self, notice: Message) -> bool:
        """Cancel the request that a notice names; False if none is in flight here and the server gets the notice."""
        key = jsonrpc.find_id(self.requests, request_params.cancelled_id(notice) or b"")
        if key is None:
            return self.upstreams is None or self.upstreams.only is None
        request = self.requests[key]
        if request_params.cancelled_id(notice) != key:  # the server knows the id as the request spelled it
            notice = notice.replace(params=jsonrpc.with_member(notice.params, ("requestId",), request.id))
        request.cancel(notice)
        return True

    def _reply(self, message: Message) -> None:
        if self._sink is not None:
            self._sink.replied(message)

    def _fail(self, request_id: bytes | None, sink: ClientResponseSink | None) -> None:
        """Log the exception that is being handled, and reply to the request, if it was one."""
        _log.exception("a message failed inside riglm")
        if request_id is not None and sink is not None:
            words = "Internal error in riglm: its log says more"
            sink.replied(jsonrpc.error(request_id, jsonrpc.INTERNAL_ERROR, words))


@functools.lru_cache(maxsize=64)
def _shared(client: ClientInfo) -> ClientInfo:
    """Return one object for equal clients: there may be very many connections of a few kinds of them."""
    return client
