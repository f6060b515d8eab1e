"""The scripted server over Streamable HTTP in both eras, and over HTTP with SSE."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass, field

from tests.interaction import text
from tests.interaction.servers.conversation import (
    HANDSHAKE_VERSIONS,
    META_VERSION,
    MODERN_VERSION,
    Conversation,
    Peer,
    Refusal,
)
from tests.interaction.servers.http_server import Connection, Request
from tests.interaction.servers.options import Options
from tests.interaction.servers.tricks import tricky_event

_JSON = {"content_type": "application/json"}
_EVENTS = {"content_type": "text/event-stream", "cache_control": "no-cache"}
_STATUS = {-32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}


def event(raw: bytes) -> bytes:
    """One message as a server-sent event."""
    return b"event: message\ndata: " + raw + b"\n\n"


class Stream:
    """A long event stream, for what a server says of its own accord; keeps what comes before it is opened."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._early: list[bytes] = []

    def open(self, connection: Connection) -> None:
        """Send what was kept, and from now on everything, to this connection."""
        connection.start(200, **_EVENTS)
        self._connection = connection
        for raw in self._early:
            self.send(raw)
        self._early.clear()

    def send(self, raw: bytes) -> None:
        """Send one message."""
        if self._connection is None or self._connection.lost.is_set():
            self._early.append(raw)
        else:
            self._connection.chunk(event(raw))


@dataclass
class Session:
    """One handshake-era client."""

    peer: Peer
    stream: Stream


class Answer:
    """The response to one POST: events or one JSON object."""

    def __init__(self, connection: Connection, request: Request, *, modern: bool, events: bool, stream: Stream) -> None:
        self.headers = {**request.headers, ":path": f"{request.path}?{request.query}"}
        self._connection = connection
        self._modern = modern
        self._events = events
        self._stream = stream
        self._started = False
        self._broken = False
        self._more: dict[str, str] = {}

    def add_header(self, name: str, content: str) -> None:
        """Send this header along."""
        self._more[name] = content

    def send(self, raw: bytes) -> None:
        """Send a message on the stream of this request."""
        if self._connection.lost.is_set() or self._broken:
            return
        parts = text.members(raw)
        whole = not self._started and "method" not in parts
        if not self._events and "method" in parts:
            self._stream.send(raw)
        elif whole and (not self._events or (self._modern and "error" in parts)):
            code = text.value(text.members(parts["error"])["code"]) if "error" in parts else 0
            status = _STATUS.get(code, 200) if self._modern else 200
            self._started = self._broken = True
            self._connection.respond(status, raw, **_JSON, **self._more)
        else:
            self._start()
            self._connection.chunk(event(raw))

    def write(self, raw: bytes) -> None:
        """Only a pipe has bytes between its messages."""
        raise Refusal(-32602, "no such noise over HTTP")

    def trick(self, kind: str, reply: bytes) -> None:
        """Send an event, or a whole response, in the named form."""
        if kind == "plain text":
            self._started = self._broken = True
            self._connection.respond(200, reply, content_type="text/plain")
        else:
            self._start()
            self._connection.chunk(tricky_event(kind, reply))

    def end(self) -> None:
        """The request is done with."""
        if self._broken or self._connection.lost.is_set():
            return
        self._start()
        self._connection.finish()

    def fault(self, kind: str) -> None:
        """Break the answer in the named way."""
        self._broken = True
        connection = self._connection
        match kind:
            case "reset":
                connection.transport.abort()
            case "truncated events":
                connection.start(200, **_EVENTS)
                connection.chunk(b'event: message\ndata: {"jsonrpc":"2.0","id":')
                connection.transport.close()
            case "truncated json":
                connection._head(200, {**_JSON, "content_length": "1000"})
                connection.transport.write(b'{"jsonrpc":"2.0",')
                connection.transport.close()
            case "no answer":
                connection.start(200, **_EVENTS)
                connection.finish()
            case "wrong type":
                connection.respond(200, b"hello", content_type="text/plain")
            case "not json":
                connection.respond(200, b"<html>", **_JSON)
            case "redirect":
                connection.respond(307, location="http://127.0.0.1:9/elsewhere")
            case _:
                connection.respond(int(kind), b"<html>sorry</html>", content_type="text/html", retry_after="1")

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._connection.start(200, **_EVENTS, **self._more)


@dataclass
class Endpoint:
    """Answers HTTP requests on `/mcp`, `/sse` and `/messages`."""

    conversation: Conversation
    options: Options
    sessions: dict[str, Session] = field(default_factory=dict)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    async def answer(self, connection: Connection, request: Request) -> None:
        """Answer one request."""
        authorization = request.headers.get("authorization")
        if self.options.bearer and authorization != f"Bearer {self.options.bearer}":
            connection.respond(401, b"who are you?", www_authenticate='Bearer realm="scripted"')
            return
        match request.method, request.path:
            case "POST", "/mcp":
                await self._post(connection, request)
            case "GET", "/mcp" if self.options.handshake:
                if session := self._session(connection, request):
                    session.stream.open(connection)
                    await connection.lost.wait()
            case "DELETE", "/mcp" if self.options.handshake:
                if session := self._session(connection, request):
                    self._forget(request.headers["mcp-session-id"])
                    connection.respond(200)
            case "GET", "/sse" if self.options.handshake:
                await self._old_stream(connection)
            case "POST", "/messages":
                self._old_post(connection, request)
            case _, "/mcp" | "/sse":
                connection.respond(405, allow="POST")
            case _:
                connection.respond(404, b"nothing here")

    async def _post(self, connection: Connection, request: Request) -> None:
        try:
            parts = text.members(request.body)
        except text.Malformed:
            code = -32600 if request.body.lstrip()[:1] == b"[" else -32700
            connection.respond(400, text.failure(None, code, "not a message"), **_JSON)
            return
        meta = text.members(parts.get("params", b"{}")).get("_meta", b"{}")
        version = request.headers.get("mcp-protocol-version", "")
        modern = version == MODERN_VERSION or META_VERSION in text.members(meta)
        if modern and self.options.modern:
            await self._modern_post(connection, request, parts)
        elif version and version not in HANDSHAKE_VERSIONS:
            words = f"Bad Request: Unsupported protocol version: {version}. Supported: {', '.join(HANDSHAKE_VERSIONS)}"
            connection.respond(400, text.failure("server-error", -32600, words), **_JSON)
        else:
            await self._handshake_post(connection, request, parts)

    async def _modern_post(self, connection: Connection, request: Request, parts: dict[str, bytes]) -> None:
        if "id" not in parts:
            self.conversation.record.received(request.body, request.headers)
            connection.respond(202)
            return
        params = text.members(parts.get("params", b"{}"))
        meta = text.value(params.get("_meta", b"{}"))
        named = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
        method = text.value(parts["method"])
        expected = {"mcp-protocol-version": meta.get(META_VERSION), "mcp-method": method}
        if method in named:
            expected["mcp-name"] = text.value(params.get(named[method], b"null"))
        for name, wanted in expected.items():
            if request.headers.get(name) != wanted and not str(request.headers.get(name)).startswith("=?base64?"):
                connection.respond(400, text.failure(parts["id"], -32020, f"{name} does not match the body"), **_JSON)
                return
        stream = Stream()
        answer = Answer(connection, request, modern=True, events=self._events(method), stream=stream)
        peer = Peer(announce=stream.send)
        await self.conversation.receive(request.body, peer, answer)
        answer.end()

    def _events(self, method: str) -> bool:
        return self.options.answers == "sse" or method == "subscriptions/listen"

    async def _handshake_post(self, connection: Connection, request: Request, parts: dict[str, bytes]) -> None:
        opening = parts.get("method") == b'"initialize"'
        session = self._open() if opening else self._session(connection, request)
        if session is None:
            return
        if "method" not in parts or "id" not in parts:
            await self.conversation.receive(request.body, session.peer, _Silent(request))
            connection.respond(202)
            return
        method = text.value(parts["method"])
        answer = Answer(connection, request, modern=False, events=self._events(method), stream=session.stream)
        if opening:
            answer.add_header("mcp-session-id", next(key for key, value in self.sessions.items() if value is session))
        work = asyncio.get_running_loop().create_task(self.conversation.receive(request.body, session.peer, answer))
        self.tasks.add(work)
        work.add_done_callback(self.tasks.discard)
        await asyncio.wait([work])
        answer.end()

    def _open(self) -> Session:
        stream = Stream()
        session = Session(Peer(announce=stream.send), stream)
        self.sessions[os.urandom(16).hex()] = session
        self.conversation.peers.add(session.peer)
        return session

    def _forget(self, key: str) -> None:
        session = self.sessions.pop(key)
        self.conversation.peers.discard(session.peer)
        self.conversation.record.event("session ended", session=key)

    def _session(self, connection: Connection, request: Request) -> Session | None:
        key = request.headers.get("mcp-session-id")
        if key in self.sessions:
            return self.sessions[key]
        status = 400 if key is None else self.options.unknown_session
        connection.respond(status, text.failure("server-error", -32600, "Session not found"), **_JSON)
        return None

    async def _old_stream(self, connection: Connection) -> None:
        session = self._open()
        key = next(key for key, value in self.sessions.items() if value is session)
        connection.start(200, **_EVENTS)
        connection.chunk(f"event: endpoint\r\ndata: /messages?session_id={key}\r\n\r\n".encode())
        session.stream._connection = connection
        try:
            await connection.lost.wait()
        finally:
            self._forget(key)

    def _old_post(self, connection: Connection, request: Request) -> None:
        session = self.sessions.get(request.query.removeprefix("session_id="))
        if session is None:
            connection.respond(404, b"Could not find session")
            return
        channel = _Silent(request)
        channel.send = session.stream.send
        work = asyncio.get_running_loop().create_task(self.conversation.receive(request.body, session.peer, channel))
        self.tasks.add(work)
        work.add_done_callback(self.tasks.discard)
        connection.respond(202, b"Accepted")


class _Silent:
    """Where nothing can be answered."""

    def __init__(self, request: Request) -> None:
        self.headers = {**request.headers, ":path": f"{request.path}?{request.query}"}

    def send(self, raw: bytes) -> None:
        """Nobody listens."""

    def write(self, raw: bytes) -> None:
        """Only a pipe has bytes between its messages."""
        raise Refusal(-32602, "no such noise over HTTP")

    def trick(self, kind: str, reply: bytes) -> None:
        """There is no answer to disguise."""
        raise Refusal(-32602, f"no {kind} here")

    def fault(self, kind: str) -> None:
        """There is no answer to break."""
        raise Refusal(-32602, f"no {kind} here")


async def serve_http(conversation: Conversation, options: Options) -> None:
    """Answer on loopback until a signal comes or the server's lifetime is over."""
    loop = asyncio.get_running_loop()
    endpoint = Endpoint(conversation, options)
    server = await loop.create_server(
        lambda: Connection(endpoint.answer), "127.0.0.1", options.port, reuse_address=True
    )
    stop = asyncio.Event()
    if not options.stubborn:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
    sys.stdout.flush()
    async with asyncio.timeout(options.lifetime):
        await stop.wait()
    server.close()
