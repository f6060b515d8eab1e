"""Clients over the older HTTP+SSE transport: one stream down, POSTs up."""

import asyncio
import secrets
from typing import Final
from urllib.parse import parse_qs

from riglm.adapters.mcp.downstream.answer import Events, Send, encode_message, send_error, send_status
from riglm.adapters.mcp.downstream.http_request import Request
from riglm.adapters.mcp.wire.framing import well_formed
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller, ClientChannel, ClientConnection, DownstreamPort, ReplySink
from riglm.ports.upstream import EventMark

_STREAM: Final = "/sse"
_MESSAGES: Final = "/messages"


class _Down(ReplySink, ClientChannel):
    """Everything for the client goes out as an event on its one stream."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def related(self, message: Message, event: EventMark | None = None) -> None:
        self._events.put(encode_message(message, None))

    def primed(self, event: EventMark) -> None:
        pass

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        self._events.put(encode_message(message, None))

    def interrupted(self) -> None:
        pass

    def push(self, message: Message, event: EventMark | None = None) -> bool:
        self._events.put(encode_message(message, None))
        return self._events.is_open


class _Client:
    __slots__ = ("connection", "events", "principal")

    def __init__(self, connection: ClientConnection, events: Events, principal: str) -> None:
        self.connection = connection
        self.events = events
        self.principal = principal


class SseClients:
    """All clients with an open stream."""

    paths: Final = (_STREAM, _MESSAGES)

    def __init__(self, proxy: DownstreamPort, buffer: int, limit: int) -> None:
        """`buffer` bounds what waits for a client, `limit` one message, both in bytes."""
        self._proxy = proxy
        self._buffer = buffer
        self._limit = limit
        self._clients: dict[str, _Client] = {}

    async def answer(self, path: str, request: Request, send: Send) -> None:
        """Answer a request on one of the two paths."""
        if path == _STREAM and request.method == "GET":
            await self._stream(request, send)
        elif path == _MESSAGES and request.method == "POST":
            await self._message(request, send)
        else:
            await send_status(send, 405, [(b"allow", b"GET" if path == _STREAM else b"POST")])

    def ping(self, now: float) -> None:
        """Keep quiet streams alive."""
        for client in self._clients.values():
            client.events.ping(now)

    def close(self) -> None:
        """End all streams."""
        for client in self._clients.values():
            client.events.ended()

    async def _stream(self, request: Request, send: Send) -> None:
        session_id = secrets.token_urlsafe(18)
        events = Events(self._buffer)
        down = _Down(events)
        caller = Caller(
            transport=Transport.SSE,
            principal=request.caller.principal,
            address=request.caller.address,
            handle=request.caller.handle,
        )
        root = request.scope.get("root_path", "")
        client = _Client(self._proxy.connect(caller, down, down), events, caller.principal)
        self._clients[session_id] = client
        events.put(f"event: endpoint\r\ndata: {root}{_MESSAGES}?session_id={session_id}\r\n\r\n".encode())
        watching = asyncio.get_running_loop().create_task(request.gone())
        watching.add_done_callback(lambda _: events.ended())
        try:
            await events.run(send)
        finally:
            watching.cancel()
            del self._clients[session_id]
            await client.connection.close()

    async def _message(self, request: Request, send: Send) -> None:
        query = parse_qs(request.scope.get("query_string", b"").decode("latin-1"))
        client = self._clients.get(query.get("session_id", [""])[0])
        if client is None or client.principal != request.caller.principal:
            await send_error(send, 404, jsonrpc.INVALID_REQUEST, "Session not found: open the stream anew")
            return
        line = well_formed(await request.body(self._limit))
        await send_status(send, 202)
        client.connection.received(line)
