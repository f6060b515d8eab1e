"""Modern requests over HTTP: every POST is independent, and closing it cancels it."""

from typing import Final

from riglm.adapters.mcp import headers
from riglm.adapters.mcp.downstream.answer import JsonOrSseResponse, Send, send_error, send_json, send_status
from riglm.adapters.mcp.downstream.http_request import DisconnectWatcher, McpHttpRequest
from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import Caller, DownstreamPort

_ROUTING: Final = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_LOOK_AFTER: Final = 0.05
"""Seconds within which most responses are ready; only after them is it checked whether the client left."""


class ModernEndpoint:
    """Checks the headers against the body, then hands a request on."""

    def __init__(self, proxy: DownstreamPort, buffer: int) -> None:
        """`buffer` bounds what waits for a client that does not read, in bytes."""
        self._proxy = proxy
        self._buffer = buffer
        self._listening: set[JsonOrSseResponse] = set()
        self.answers: dict[JsonOrSseResponse, Message] = {}
        """The requests in flight, by their answers."""

    async def answer(self, message: Message, request: McpHttpRequest, send: Send) -> None:
        """Answer one POST."""
        if message.method is None:
            words = "Invalid request: this era has no responses of clients"
            await send_error(send, 400, jsonrpc.INVALID_REQUEST, words)
            return
        if message.id is None:
            await self._told(message, request, send)
            return
        envelope = request_params.envelope(message)
        own = request.mcp_headers
        refusal = self._refusal(message, envelope, request, own)
        if refusal is not None:
            status = 404 if jsonrpc.error_code(refusal) == jsonrpc.METHOD_NOT_FOUND else 400
            await send_json(send, status, refusal.line)
        elif envelope is not None:
            await self._forward(message, envelope, request, own, send)

    async def other(self, request: McpHttpRequest, send: Send) -> None:
        """Answer a request of another method: this era knows POST alone."""
        await send_status(send, 405, ((b"allow", b"POST"),))

    def end_streams(self) -> None:
        """End the subscriptions, which would stay open permanently."""
        for answer in list(self._listening):
            answer.interrupted()

    def give_up(self) -> None:
        """Answer what is still in flight with an error."""
        for answer, message in list(self.answers.items()):
            answer.replied(jsonrpc.create_stop_error(message))

    async def _told(self, message: Message, request: McpHttpRequest, send: Send) -> None:
        unsupported = _unsupported(message, request.mcp_headers.get(b"mcp-protocol-version", b"").decode("latin-1"))
        if unsupported is not None and jsonrpc.error_code(unsupported) == jsonrpc.UNSUPPORTED_PROTOCOL_VERSION:
            await send_json(send, 400, unsupported.line)
            return
        if message.method != "notifications/cancelled":
            self._proxy.notify_modern(message, request.caller)
        await send_status(send, 202)

    async def _forward(
        self,
        message: Message,
        envelope: request_params.RequestEnvelope,
        request: McpHttpRequest,
        own: dict[bytes, bytes],
        send: Send,
    ) -> None:
        answer = JsonOrSseResponse(self._buffer, request.cut, errors_have_status=True)
        in_flight = self._proxy.receive_modern(message, envelope, answer, request.caller, own)
        self.answers[answer] = message
        if message.method == "subscriptions/listen":
            self._listening.add(answer)
        try:
            with DisconnectWatcher(request, answer.interrupted, after=_LOOK_AFTER):
                await answer.run(request, send)
        finally:
            del self.answers[answer]
            self._listening.discard(answer)
            in_flight.cancel()

    def _refusal(
        self,
        message: Message,
        envelope: request_params.RequestEnvelope | None,
        request: McpHttpRequest,
        own: dict[bytes, bytes],
    ) -> Message | None:
        repeated = request.repeated(*_ROUTING)
        if repeated is not None:
            return _mismatch(message, f"{repeated.decode('latin-1')} came more than once")
        if envelope is None or not envelope.complete:
            needed = f"{protocol.META_VERSION!r} and {protocol.META_CAPABILITIES!r}"
            return jsonrpc.error(
                message.id, jsonrpc.INVALID_PARAMS, f"Invalid params: params._meta must carry {needed}"
            )
        version = own.get(b"mcp-protocol-version", b"").decode("latin-1")
        if version != envelope.version:
            return _mismatch(message, "the MCP-Protocol-Version header does not match the request's envelope")
        words = headers.mismatch(message, own, self._annotated(message, request.caller))
        return _mismatch(message, words) if words else _unsupported(message, version)

    def _annotated(self, message: Message, caller: Caller) -> tuple[headers.AnnotatedParameter, ...]:
        if message.method != "tools/call":
            return ()
        tool = jsonrpc.text(request_params.read(message).name)
        schema = self._proxy.input_schema(tool, caller) if tool else None
        return headers.annotated(schema) if schema else ()


def _mismatch(message: Message, words: str) -> Message:
    return jsonrpc.error(message.id, jsonrpc.HEADER_MISMATCH, f"Header mismatch: {words}")


def _unsupported(message: Message, version: str) -> Message | None:
    if version not in protocol.MODERN_VERSIONS:
        data = {"supported": list(protocol.MODERN_VERSIONS), "requested": version}
        return jsonrpc.error(message.id, jsonrpc.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
    if message.method in protocol.HANDSHAKE_ONLY:
        return jsonrpc.error(message.id, jsonrpc.METHOD_NOT_FOUND, f"Method not found: {message.method}")
    return None
