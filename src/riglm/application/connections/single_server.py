"""A client connection of the handshake era in front of one upstream."""

import asyncio
import functools
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Final

from riglm.application.connections.bridge import BridgeLink, find_bridge, link_for
from riglm.application.filter_middleware.handshake_connection import FilteringConnection
from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.forwarding.catalogs import ListedTools
from riglm.application.forwarding.notifier import HeldMessages
from riglm.application.forwarding.proxied_request import ProxiedRequest
from riglm.application.forwarding.services import RequestServices, tool_name
from riglm.domain import jsonrpc, rawjson, request_params
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import MalformedMessageError, Message
from riglm.domain.session import ClientInfo, ProtocolEra, Session
from riglm.ports.downstream import (
    NO_HEADERS,
    Caller,
    ClientChannel,
    ClientResponseSink,
    ConnectionHandoff,
    DownstreamPort,
    DualEraConnection,
    HandshakeConnection,
    InFlightRequest,
)
from riglm.ports.upstream import EventPosition, ResumedStreamHandler, UpstreamLink, UpstreamPort

_DEFAULT: Final = 256
"""Maximum length of client information that is shared between equal clients."""

_NO_WORD: Final = frozenset({ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT})
"""Failures that do not reveal which eras the upstream supports."""


class StreamResumption(ResumedStreamHandler):
    """Passes the rest of a stream on, and ends the requests whose answers it carries."""

    def __init__(self, stream: ResumedStreamHandler, in_flight: Callable[[bytes], ProxiedRequest | None]) -> None:
        self._stream = stream
        self._in_flight = in_flight

    def continued(self, message: Message, event: EventPosition | None = None) -> None:
        exchange = self._in_flight(message.id) if message.is_response and message.id else None
        if exchange is not None:
            asked = exchange.message.id or b"null"
            message = message if message.id == asked else message.replace(id=asked)
            exchange.replied(message)
        self._stream.continued(message, event)

    def primed(self, event: EventPosition) -> None:
        self._stream.primed(event)

    def ended(self) -> None:
        self._stream.ended()


class SingleServerConnection(FilteringConnection):
    """Forwards everything between one client and its link to the only upstream."""

    __slots__ = ("_closing", "_held", "_link", "_open", "_seen", "_upstream")

    def __init__(
        self,
        services: RequestServices,
        upstream: UpstreamPort,
        caller: Caller,
        channel: ClientChannel,
        showing: FilterMiddleware | None = None,
    ) -> None:
        super().__init__(services, caller, channel, showing)
        self._upstream = upstream
        self._held: HeldMessages | None = None
        self._link: UpstreamLink = link_for(upstream, self, caller.principal)
        self._closing: asyncio.Task[None] | None = None
        self._seen: ListedTools | None = None
        self._open: dict[bytes, ProxiedRequest] | None = None
        """The requests on their way; None when there are none, for there may be very many idle clients."""

    @property
    def resumable(self) -> bool:
        return self._link.resumable

    def name_patterns(self, tool: str) -> tuple[str, ...]:
        return (tool,)

    def accept(
        self,
        message: Message,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        *,
        resumable: bool = False,
        session: Session | None = None,
    ) -> ProxiedRequest | None:
        if message.id is None or message.method is None:
            self._told(message)
            return None
        key = jsonrpc.id_key(message.id)
        if not self._is_free(key):
            sink.replied(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, "Invalid request: the id is in use"), 400)
            return None
        exchange = ProxiedRequest(
            message, sink, headers=headers, resumable=resumable, session=session, on_done=self._finished
        )
        if message.method == "tools/list":
            exchange.on_reply = functools.partial(self._note_list, self._link, self._link.tools_version)
        elif message.method == "initialize":
            client, _ = request_params.client_of(message)
            self._client = _shared(client) if len(client.name) + len(client.version) <= _DEFAULT else client
            exchange.on_reply = self._opened
        if self._open is None:
            self._open = {}
        self._open[key] = exchange
        if message.method != "tools/call":
            exchange.send(self._link)
        elif self._services.pins.needs_comparison(self._link):
            self._services.known_catalogs.compare_first(
                self._link, b"{}", functools.partial(self._send_call, exchange), message_handler=self
            )
        else:
            self._send_call(exchange)
        return exchange

    def listen_upstream(self, *, listening: bool) -> None:
        if listening and self._held is not None:
            self._held.flush()
        self._link.listen(listening=listening)

    def resume_upstream(self, last_event_id: bytes, stream: ResumedStreamHandler) -> None:
        self._link.resume(last_event_id, StreamResumption(stream, self._find_meant))

    def unsolicited(self, link: UpstreamLink, message: Message, event: EventPosition | None = None) -> None:
        """Find a way to the client for a message that belongs to no request."""
        if self._channel.push(message, event):
            return
        under_way = [exchange for exchange in (self._open or {}).values() if not exchange.is_interrupted]
        if message.is_request and under_way:
            under_way[-1].related(message, event)
        elif message.is_request and message.method == "ping":
            link.send(jsonrpc.answer_without_client(message))
        else:
            self._held = self._held or HeldMessages(self._channel)
            self._held.keep(message, event)

    @property
    def tickets(self) -> Mapping[str, bytes]:
        ticket = self._link.ticket
        return {self._upstream.spec.name: ticket} if ticket else {}

    def adopt_upstream(self, handoff: ConnectionHandoff) -> bool:
        ticket = handoff.tickets.get(self._upstream.spec.name, b"")
        return self._link.adopt(ticket, handoff.handshake, handoff.state_requests)

    def heard(self, notice: Message) -> None:
        self._channel.push(notice)

    def release_upstream(self) -> None:
        self._link.detach()

    async def close_upstream(self) -> None:
        for exchange in list((self._open or {}).values()):
            exchange.cancelled()
        if self._session is not None:
            self._services.sessions.closed(self._session)
        await self._link.close()
        if self._closing is not None:
            await self._closing

    def _find(self, key: bytes) -> ProxiedRequest | None:
        return self._open.get(key) if self._open is not None else None

    def _find_meant(self, raw: bytes) -> ProxiedRequest | None:
        """Return the request that a server or the client means by an id."""
        key = jsonrpc.find_id(self._open or (), raw)
        return self._find(key) if key is not None else None

    def _is_free(self, key: bytes) -> bool:
        """Whether an id can be used; one whose stream broke off is given up, for its client may never come back."""
        exchange = self._find(key)
        if exchange is not None and exchange.is_interrupted:
            exchange.cancelled()
            return True
        return exchange is None

    def _told(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            exchange = self._find_meant(request_params.cancelled_id(message) or b"")
            if exchange is not None:
                self._link.cancel(exchange, message)
                exchange.cancelled()
                return
        self._link.send(message)

    def _send_call(self, exchange: ProxiedRequest) -> None:
        """Record a call, and send it unless it is denied."""
        if exchange.done:
            return
        given = request_params.read(exchange.message)
        session = exchange.session or self._session_of(self.session, given.meta)
        tool = tool_name(given)
        known = self._seen is not None and tool in self._seen
        upstream = self._upstream.spec.name
        is_unlisted = None if known else functools.partial(self._services.catalogs.lacks, upstream, tool or "")
        names = (tool,) if tool else ()
        exchange.call, refused = self._services.start_call(
            session, exchange.message, upstream, names, link=self._link, known=known, is_unlisted=is_unlisted
        )
        if refused is None:
            exchange.send(self._link)
        else:
            exchange.replied(refused)

    def _note_list(self, link: UpstreamLink, version: int, exchange: ProxiedRequest, message: Message) -> Message:
        self._seen = self._seen or ListedTools()
        session = exchange.session or self.session
        return self._services.listed(session, link, version, exchange, message, self._seen)

    def _opened(self, exchange: ProxiedRequest, message: Message) -> Message | None:
        if message.result:
            version = jsonrpc.text(jsonrpc.members(message.result).get("protocolVersion")) or ""
            self.session.protocol_version = sys.intern(version)
            self._services.tracking.session_changed(self.session)
        elif exchange.failure not in _NO_WORD:
            if not isinstance(self._link, BridgeLink):
                find_bridge(self._upstream, self, message, lambda bridge: self._crossed(exchange, message, bridge))
                return None
            self._upstream.learned(
                ProtocolEra.HANDSHAKE, supported=True
            )  # it may have changed: the next client tries again
        return message

    def _crossed(self, exchange: ProxiedRequest, refusal: Message, bridge: BridgeLink | None) -> None:
        """Go on over a bridge, if there is one."""
        if exchange.done:
            return
        if bridge is None:
            exchange.replied(refusal)
            return
        self._closing = asyncio.get_running_loop().create_task(self._link.close())
        self._link = bridge
        exchange.on_reply = self._opened
        exchange.send(bridge)

    def _finished(self, exchange: ProxiedRequest) -> None:
        if self._open is not None:
            del self._open[jsonrpc.id_key(exchange.message.id or b"null")]
            self._open = self._open or None


@functools.lru_cache(maxsize=64)
def _shared(client: ClientInfo) -> ClientInfo:
    """One object for equal clients: there may be very many conversations with a few kinds of them."""
    return client


_log = logging.getLogger("riglm.proxy")


class DualEraRouter(DualEraConnection):
    """Reads a client's lines and hands each message to whom it concerns."""

    def __init__(self, proxy: DownstreamPort, caller: Caller, channel: ClientChannel, sink: ClientResponseSink) -> None:
        """A connection whose every answer goes to `sink`."""
        self._proxy = proxy
        self._handler = proxy.modern_for(caller)
        self._arrived = proxy.arrived
        self._caller = caller
        self._channel = channel
        self._sink = sink
        self._conversation: HandshakeConnection | None = None
        self._modern: dict[bytes, InFlightRequest] = {}
        self._requests: list[tuple[Message, InFlightRequest]] = []

    @property
    def in_flight(self) -> list[Message]:
        return [message for message, one in self._requests if not one.done]

    def received(self, line: bytes) -> None:
        if self._arrived is not None:
            self._arrived()
        try:
            message = jsonrpc.decode(line)
        except MalformedMessageError as error:
            self._sink.replied(jsonrpc.error(error.id, error.code, str(error)))
            return
        except Exception:  # noqa: BLE001  # a message must not end the connection
            self._failed(rawjson.asked_id(line, line))
            return
        self.take(message)

    def take(self, message: Message) -> None:
        try:
            self._take(message)
        except Exception:  # noqa: BLE001  # fails open
            self._failed(message.id if message.is_request else None)

    def _failed(self, request_id: bytes | None) -> None:
        """Log the exception that is being handled, and answer the request, if it was one."""
        _log.exception("a message failed inside riglm")
        if request_id is not None:
            words = "Internal error in riglm: its log says more"
            self._sink.replied(jsonrpc.error(request_id, jsonrpc.INTERNAL_ERROR, words))

    def _take(self, message: Message) -> None:
        if message.is_request:
            envelope = request_params.envelope(message)
            if envelope is not None:
                self._asked(message, envelope)
                return
        elif message.method == "notifications/cancelled" and self._modern:
            exchange = self._modern.pop(request_params.cancelled_id(message) or b"", None)
            if exchange is not None:
                self._handler.cancel(exchange, message)
                return
        if self._conversation is None:
            if not message.is_request:
                self._handler.handle_notification(message)
                return
            self._conversation = self._proxy.converse(self._caller, self._channel)
        in_flight = self._conversation.received(message, self._sink)
        if in_flight is not None and not in_flight.done:
            self._add(message, in_flight)
        if message.method == "notifications/initialized":
            self._conversation.listen(listening=True)

    async def close(self) -> None:
        for exchange in list(self._modern.values()):
            self._handler.cancel(exchange)
        if self._conversation is not None:
            await self._conversation.close()

    def _asked(self, message: Message, envelope: request_params.RequestEnvelope) -> None:
        key = jsonrpc.id_key(message.id or b"null")
        self._modern = {key: one for key, one in self._modern.items() if not one.done}
        if key in self._modern:
            words = "Invalid request: the id is in use"
            self._sink.replied(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, words))
            return
        in_flight = self._handler.received(message, envelope, self._sink, self._caller)
        if not in_flight.done:
            self._modern[key] = in_flight
            if message.method != "subscriptions/listen":
                self._add(message, in_flight)

    def _add(self, message: Message, in_flight: InFlightRequest) -> None:
        self._requests = [(each, one) for each, one in self._requests if not one.done]
        self._requests.append((message, in_flight))
