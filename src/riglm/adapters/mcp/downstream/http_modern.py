"""Requests of the modern era over HTTP: every POST stands by itself, and leaving it is giving it up."""

import asyncio
from typing import Final

from riglm.adapters.mcp import headers
from riglm.adapters.mcp.downstream.answer import Answer, Events, Send, send_error, send_json, send_status
from riglm.adapters.mcp.downstream.http_request import Request
from riglm.domain import jsonrpc, parameters, protocol
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import ModernService

_ROUTING: Final = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")


class ModernRequests:
    """Checks the headers against the body, then hands a request on."""

    def __init__(self, service: ModernService, buffer: int) -> None:
        """`buffer` bounds what waits for a client that does not read."""
        self._service = service
        self._buffer = buffer
        self.answers: set[Answer | Events] = set()

    async def answer(self, message: Message, request: Request, send: Send) -> None:
        """Answer one POST."""
        if message.is_response:
            await send_error(
                send, 400, jsonrpc.INVALID_REQUEST, "Invalid request: this era has no responses of clients"
            )
            return
        if message.id is None:
            if message.method != "notifications/cancelled":
                self._service.told(message)
            await send_status(send, 202)
            return
        envelope = parameters.envelope(message)
        refusal = self._refusal(message, envelope, request)
        if refusal is not None:
            status = 404 if jsonrpc.error_code(refusal) == jsonrpc.METHOD_NOT_FOUND else 400
            await send_json(send, status, refusal.line)
        elif envelope is not None:
            await self._forward(message, envelope, request, send)

    async def _forward(self, message: Message, envelope: parameters.Envelope, request: Request, send: Send) -> None:
        answer = Answer(self._buffer, errors_have_status=True)
        self.answers.add(answer)
        underway = self._service.received(message, envelope, answer, request.caller, request.mcp_headers)
        answering = asyncio.current_task()
        left = False

        def leave(_: object) -> None:
            nonlocal left
            if not underway.done and answering is not None:
                left = True
                answering.cancel()

        watching = asyncio.get_running_loop().create_task(request.gone())
        watching.add_done_callback(leave)
        try:
            await answer.run(send)
        except asyncio.CancelledError:
            self._service.cancel(underway)
            if not left:
                raise
        finally:
            self.answers.discard(answer)
            watching.remove_done_callback(leave)
            watching.cancel()

    def _refusal(self, message: Message, envelope: parameters.Envelope | None, request: Request) -> Message | None:
        repeated = request.repeated(*_ROUTING)
        if repeated is not None:
            return _mismatch(message, f"{repeated.decode('latin-1')} came more than once")
        if envelope is None or not envelope.complete:
            needed = f"{protocol.META_VERSION!r} and {protocol.META_CAPABILITIES!r}"
            return jsonrpc.error(
                message.id, jsonrpc.INVALID_PARAMS, f"Invalid params: params._meta must carry {needed}"
            )
        own = request.mcp_headers
        version = own.get(b"mcp-protocol-version", b"").decode("latin-1")
        if version != envelope.version:
            return _mismatch(message, "the MCP-Protocol-Version header does not match the request's envelope")
        words = headers.mismatch(message, own, self._annotated(message))
        return _mismatch(message, words) if words else _unsupported(message, version)

    def _annotated(self, message: Message) -> tuple[headers.Annotated, ...]:
        if message.method != "tools/call":
            return ()
        tool = jsonrpc.text(parameters.read(message).name)
        schema = self._service.input_schema(tool) if tool else None
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
