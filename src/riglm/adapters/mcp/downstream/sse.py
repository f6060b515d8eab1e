"""Clients over the older HTTP+SSE transport: one stream down, POSTs up."""

import secrets
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qs

from riglm.adapters.mcp.downstream.answer import Events, Send, send_error, send_status
from riglm.adapters.mcp.downstream.http_request import DisconnectWatcher, McpHttpRequest
from riglm.adapters.mcp.wire.event_stream import encode_event
from riglm.adapters.mcp.wire.messages import decode_any
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Transport
from riglm.ports.downstream import ClientChannel, ClientConnection, ClientResponseSink, DownstreamPort

SSE_PATH: Final = "/sse"
"""Where a client begins: the stream that names the place for its messages."""

_MESSAGES: Final = "/messages"


class _Client(ClientResponseSink, ClientChannel):
    """A client with an open stream, on which everything for it goes out as an event."""

    def __init__(self, proxy: DownstreamPort, request: McpHttpRequest, buffer: int) -> None:
        self.owner = request.caller.owner
        self.events = Events(buffer, request.cut)
        self._leaving = False
        caller = replace(request.caller, transport=Transport.SSE)
        self.connection: ClientConnection = proxy.connect(caller, self, self)

    def related(self, message: Message) -> None:
        self.events.put(encode_event(message.line))

    def replied(self, message: Message, status: int = 200) -> None:
        self.events.put(encode_event(message.line))
        self._answered()

    def push(self, message: Message) -> bool:
        self.events.put(encode_event(message.line))
        return self.events.is_open

    def end_stream(self) -> None:
        """End the stream as soon as all that was asked is answered."""
        self._leaving = True
        self._answered()

    def _answered(self) -> None:
        if self._leaving and not self.connection.in_flight:
            self.events.ended()


class SseClients:
    """All clients with an open stream."""

    paths: Final = (SSE_PATH, _MESSAGES)

    def __init__(self, proxy: DownstreamPort, process: str, buffer: int, limit: int) -> None:
        """Session ids begin with `process`; `buffer` bounds what waits for a client, `limit` a message, in bytes."""
        self._proxy = proxy
        self._process = process
        self._buffer = buffer
        self._limit = limit
        self._clients: dict[str, _Client] = {}

    def __len__(self) -> int:
        return len(self._clients)

    async def answer(self, path: str, request: McpHttpRequest, send: Send) -> None:
        """Answer a request on one of the two paths."""
        if path == SSE_PATH and request.method == "GET":
            await self._stream(request, send)
        elif path == _MESSAGES and request.method == "POST":
            await self._message(request, send)
        else:
            await send_status(send, 405, [(b"allow", b"GET" if path == SSE_PATH else b"POST")])

    def ping(self, now: float) -> None:
        """Keep quiet streams alive."""
        for client in self._clients.values():
            client.events.ping(now)

    def end_streams(self) -> None:
        """End all streams, each when it has brought the answers that are owed."""
        for client in list(self._clients.values()):
            client.end_stream()

    def give_up(self) -> None:
        """Answer what is still in flight with an error, and end all streams."""
        for client in self._clients.values():
            for request in client.connection.in_flight:
                client.events.put(encode_event(jsonrpc.create_stop_error(request).line))
            client.events.ended()

    async def _stream(self, request: McpHttpRequest, send: Send) -> None:
        session_id = f"{self._process}.{secrets.token_urlsafe(18)}"
        client = _Client(self._proxy, request, self._buffer)
        self._clients[session_id] = client
        root = request.scope.get("root_path", "")
        client.events.put(f"event: endpoint\r\ndata: {root}{_MESSAGES}?session_id={session_id}\r\n\r\n".encode())
        try:
            with DisconnectWatcher(request, client.events.ended):
                await client.events.run(send)
        finally:
            del self._clients[session_id]
            await client.connection.close()

    async def _message(self, request: McpHttpRequest, send: Send) -> None:
        query = parse_qs(request.scope.get("query_string", b"").decode("latin-1"))
        client = self._clients.get(query.get("session_id", [""])[0])
        if client is None or client.owner != request.caller.owner:
            await send_error(send, 404, jsonrpc.INVALID_REQUEST, "Session not found: open the stream again")
            return
        if not request.sends_json:
            await send_error(send, 415, jsonrpc.INVALID_REQUEST, "Content-Type must be application/json")
            return
        message = await decode_any(await request.body(self._limit))
        await send_status(send, 202)
        if client not in self._clients.values():
            return
        if isinstance(message, Message):
            client.connection.receive(message)
        else:
            client.replied(jsonrpc.error(message.id, message.code, str(message)))
