"""Clients over Streamable HTTP, and over the older HTTP+SSE."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Iterable
from typing import Any, Final

from riglm.adapters.mcp.downstream.answer import Answer, Events, Header, Send, send_error, send_json, send_status
from riglm.adapters.mcp.downstream.gate import Gate
from riglm.adapters.mcp.downstream.http_modern import ModernRequests
from riglm.adapters.mcp.downstream.http_request import Receive, Request, TooLarge
from riglm.adapters.mcp.downstream.http_sessions import HttpSession, HttpSessions
from riglm.adapters.mcp.downstream.sse import SseClients
from riglm.domain import jsonrpc, parameters, protocol
from riglm.domain.errors import ConfigurationError
from riglm.domain.jsonrpc import Malformed, Message
from riglm.domain.schemas.settings import Settings
from riglm.ports.downstream import DownstreamPort

_log = logging.getLogger("riglm.downstream")
_SWEEP_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 5
_HANDSHAKE: Final = frozenset(version.encode() for version in protocol.HANDSHAKE_VERSIONS)
_ALLOWED: Final = [(b"allow", b"GET, POST, DELETE")]


class HttpDownstream:
    """An ASGI application for MCP clients."""

    def __init__(self, proxy: DownstreamPort, settings: Settings) -> None:
        """Serves what `settings.downstream` asks for."""
        downstream = settings.downstream
        self._settings = downstream
        self._limit = settings.limits.message_bytes
        self._buffer = settings.limits.sse_buffer
        token = downstream.token.get_secret_value() if downstream.token else None
        self._gate = Gate(
            downstream.host, token=token, hosts=downstream.allowed_hosts, origins=downstream.allowed_origins
        )
        self._principal = "bearer" if token else ""
        self._handle_header = settings.sessions.header.lower().encode()
        self._sessions = HttpSessions(proxy, idle_seconds=downstream.session_idle, most=downstream.max_sessions)
        self._modern = ModernRequests(proxy.modern, self._buffer)
        self._sse = SseClients(proxy, self._buffer, self._limit)
        self._answers: set[Answer | Events] = self._modern.answers

    async def serve(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Serve on a bound socket until `stop` is set; then finish what is under way, within a few seconds."""
        import uvicorn  # noqa: PLC0415  # costs a tenth of a second that a client on pipes need not pay

        class Server(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Any:
                yield  # riglm listens to signals itself

        config = uvicorn.Config(
            self,
            lifespan="off",
            ws="none",
            http="httptools",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            backlog=1024,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
        server = Server(config)
        host, port, *_ = listener.getsockname()
        _log.info("listening", extra={"host": host, "port": port, "path": self._settings.path})
        sweeping = asyncio.get_running_loop().create_task(self._sweep())
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        stopped = asyncio.get_running_loop().create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            server.should_exit = True
            self._sse.close()
            for answer in list(self._answers):
                if isinstance(answer, Events):
                    answer.ended()
            await serving
        finally:
            sweeping.cancel()
            stopped.cancel()
            await self._sessions.close()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive, self._principal, self._handle_header)
        refusal = self._gate.check(request.headers)
        if refusal is not None:
            extra = [refusal.header] if refusal.header else []
            await send_error(send, refusal.status, jsonrpc.INVALID_REQUEST, refusal.words, extra)
            return
        path = scope["path"].rstrip("/") or "/"
        try:
            if path == self._settings.path.rstrip("/") and self._settings.transport != "sse":
                await self._streamable(request, send)
            elif self._settings.transport != "http" and path in self._sse.paths:
                await self._sse.answer(path, request, send)
            else:
                await send_error(send, 404, jsonrpc.INVALID_REQUEST, f"Not found: MCP is at {self._settings.path}")
        except TooLarge:
            words = f"Invalid request: the message is over the limit of {self._limit} bytes"
            await send_error(send, 413, jsonrpc.INVALID_REQUEST, words, [(b"connection", b"close")])

    async def _streamable(self, request: Request, send: Send) -> None:
        version = request.headers.get(b"mcp-protocol-version")
        modern = version is not None and version not in _HANDSHAKE
        if request.method == "POST":
            await self._post(request, send, modern)
        elif modern:
            await send_status(send, 405, [(b"allow", b"POST")])
        elif request.method == "GET":
            await self._get(request, send)
        elif request.method == "DELETE":
            await self._delete(request, send)
        else:
            await send_status(send, 405, _ALLOWED)

    async def _post(self, request: Request, send: Send, modern: bool) -> None:
        if not request.sends_json:
            await send_error(send, 415, jsonrpc.INVALID_REQUEST, "Content-Type must be application/json")
            return
        if not (request.accepts(b"application/json") and request.accepts(b"text/event-stream")):
            words = "Not acceptable: the client must accept both application/json and text/event-stream"
            await send_error(send, 406, jsonrpc.INVALID_REQUEST, words)
            return
        try:
            message = jsonrpc.decode(await request.body(self._limit))
        except Malformed as error:
            await send_json(send, 400, jsonrpc.error(error.id, error.code, str(error)).line)
            return
        if modern or (message.is_request and parameters.envelope(message) is not None):
            await self._modern.answer(message, request, send)
        elif message.method == "initialize" and message.id is not None:
            await self._open(message, request, send)
        else:
            await self._converse(message, request, send)

    async def _open(self, message: Message, request: Request, send: Send) -> None:
        session = self._sessions.open(request.caller)
        if session is None:
            await send_error(send, 503, jsonrpc.INTERNAL_ERROR, "Too many open sessions")
            return

        def extra(reply: Message | None) -> Iterable[Header]:
            if reply is not None and reply.error:
                self._sessions.discard(session)
                return ()
            return ((b"mcp-session-id", session.id),)

        await self._exchange(session, message, send, extra)

    async def _converse(self, message: Message, request: Request, send: Send) -> None:
        session = await self._session(request, send)
        if session is None:
            return
        if message.is_request:
            await self._exchange(session, message, send, lambda _: ())
        else:
            session.conversation.received(message, Answer(self._buffer, errors_have_status=False))
            await send_status(send, 202)

    async def _exchange(self, session: HttpSession, message: Message, send: Send, extra: Any) -> None:
        answer = Answer(self._buffer, errors_have_status=False)
        self._answers.add(answer)
        session.in_flight += 1
        try:
            session.conversation.received(message, answer, resumable=True)
            await answer.run(send, extra)
        finally:
            self._answers.discard(answer)
            session.in_flight -= 1
            session.last_used = time.monotonic()

    async def _get(self, request: Request, send: Send) -> None:
        if not request.accepts(b"text/event-stream"):
            words = "Not acceptable: the client must accept text/event-stream"
            await send_error(send, 406, jsonrpc.INVALID_REQUEST, words)
            return
        session = await self._session(request, send)
        if session is None:
            return
        last_event_id = request.headers.get(b"last-event-id")
        if last_event_id is None and session.events is not None:
            await send_error(send, 409, jsonrpc.INVALID_REQUEST, "Conflict: the session has a stream open already")
            return
        events = Events(self._buffer)
        self._answers.add(events)
        standing = session.events is None
        if last_event_id is not None:
            session.conversation.resume(last_event_id, events)
        elif standing:
            session.events = events
            session.conversation.listen(listening=True)
        watching = asyncio.get_running_loop().create_task(request.gone())
        watching.add_done_callback(lambda _: events.ended())
        try:
            await events.run(send, ((b"mcp-session-id", session.id),))
        finally:
            watching.cancel()
            self._answers.discard(events)
            if session.events is events:
                session.events = None
                session.conversation.listen(listening=False)
            session.last_used = time.monotonic()

    async def _delete(self, request: Request, send: Send) -> None:
        session = await self._session(request, send)
        if session is not None:
            self._sessions.discard(session)
            await send_status(send, 200)

    async def _session(self, request: Request, send: Send) -> HttpSession | None:
        session_id = request.headers.get(b"mcp-session-id")
        if session_id is None:
            await send_error(send, 400, jsonrpc.INVALID_REQUEST, "Bad request: missing session ID")
            return None
        session = self._sessions.find(session_id, request.caller)
        if session is None:
            await send_error(send, 404, jsonrpc.INVALID_REQUEST, "Session not found: initialize anew")
        return session

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self._settings.session_idle / 2))
            now = time.monotonic()
            for answer in list(self._answers):
                answer.ping(now)
            self._sse.ping(now)
            self._sessions.reap()


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        fix = "end what listens there, or choose another with --port" if port else "choose another with --host"
        raise ConfigurationError(f"downstream.port: cannot listen on {host}:{port}: {reason} — fix: {fix}") from error
    return listener
