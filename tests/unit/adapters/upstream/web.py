"""A server over Streamable HTTP that answers as a test tells it to."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.upstream.http_link import HttpEndpoint
from riglm.adapters.mcp.upstream.http_upstream import HttpUpstream
from riglm.adapters.mcp.wire.http_client import HttpClient, Target
from riglm.domain.jsonrpc import Raw
from riglm.domain.upstream import UpstreamSpec
from tests.unit.adapters.upstream.actors import QUICK, within
from tests.unit.adapters.wire.peers import Caller, Request, Server, serving

LIMIT = 65_536
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n%b\r\n"
ANSWER = b"the answer"
END = b"0\r\n\r\n"


def reply(body: bytes, status: int = 200, kind: bytes = b"application/json", headers: bytes = b"") -> bytes:
    head = b"HTTP/1.1 %d Status\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n"
    return head % (status, kind, headers, len(body)) + body


def result(message: dict[str, object], value: object = None) -> bytes:
    found = {"was": message["method"]} if value is None else value
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}).encode()


def error(message: dict[str, object], code: int = -32000) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "no"}}).encode()


def note(method: str, params: object = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}}).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(data: bytes, identifier: str = "", retry: int | None = None) -> bytes:
    lines = [f"id: {identifier}".encode()] if identifier else []
    lines += [f"retry: {retry}".encode()] if retry is not None else []
    return chunk(b"\n".join([*lines, b"data: " + data]) + b"\n\n")


Handler = Callable[[Caller, dict[str, object], Request], Awaitable[None]]


class WebServer:
    """Answers by method; what has no handler gets a plain result, and notifications 202."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.messages: list[dict[str, object]] = []
        self.handlers: dict[str, Handler] = {}
        self.session = b"s1"
        self.version = "2025-11-25"
        self.on_get: Callable[[Caller, Request], Awaitable[None]] | None = None
        self.gets: list[Request] = []
        self.deletes: list[Request] = []
        self.refuse_delete = False
        self.served: Server | None = None

    @property
    def methods(self) -> list[object]:
        return [message.get("method") for message in self.messages]

    def asked(self, method: str) -> list[Request]:
        """The POSTs of a method."""
        return [
            one for one, message in zip(self.requests, self.messages, strict=True) if message.get("method") == method
        ]

    async def __call__(self, caller: Caller) -> None:
        while (request := await caller.request()) is not None:
            verb = request.line.split(" ")[0]
            if verb == "GET":
                self.gets.append(request)
                if self.on_get is None:
                    await caller.say(reply(b"", 405))
                else:
                    await self.on_get(caller, request)
            elif verb == "DELETE":
                self.deletes.append(request)
                if self.refuse_delete:
                    await caller.hang_up()
                await caller.say(reply(b""))
            else:
                await self.post(caller, request)

    async def post(self, caller: Caller, request: Request) -> None:
        message = json.loads(request.body)
        self.requests.append(request)
        self.messages.append(message)
        handler = self.handlers.get(str(message.get("method")))
        if handler is not None:
            await handler(caller, message, request)
        elif message.get("method") == "initialize":
            await self.greet(caller, message, request)
        elif "id" in message and "method" in message:
            await caller.say(reply(result(message)))
        else:
            await caller.say(ACCEPTED)

    async def greet(self, caller: Caller, message: dict[str, object], _: Request) -> None:
        headers = b"Mcp-Session-Id: " + self.session + b"\r\n" if self.session else b""
        await caller.say(reply(result(message, {"protocolVersion": self.version}), headers=headers))


def saying(*answers: bytes) -> Handler:
    """Give one answer after the other, the last one for ever."""
    turns = iter(answers)

    async def handle(caller: Caller, message: dict[str, object], request: Request) -> None:
        await caller.say(next(turns, answers[-1]))

    return handle


def streaming(*parts: bytes, finish: bool = True) -> Handler:
    """Answer by an event stream of these parts, where `ANSWER` stands for an event with the answer."""

    async def handle(caller: Caller, message: dict[str, object], request: Request) -> None:
        await caller.say(STREAM % b"")
        for part in parts:
            await caller.say(event(result(message)) if part is ANSWER else part)
        if finish:
            await caller.say(END)
        else:
            await caller.hang_up()

    return handle


def in_turn(*handlers: Handler) -> Handler:
    """Deal with each request as the next handler does, with the last ones as the last does."""
    turns = iter(handlers)

    async def handle(caller: Caller, message: dict[str, object], request: Request) -> None:
        await next(turns, handlers[-1])(caller, message, request)

    return handle


async def answer_plainly(caller: Caller, message: dict[str, object], request: Request) -> None:
    """Answer with JSON."""
    await caller.say(reply(result(message)))


async def hold(caller: Caller, message: dict[str, object], request: Request) -> None:
    """Never answer."""
    await caller.hang_up()


async def cut(caller: Caller, message: dict[str, object], request: Request) -> None:
    """Reset the connection."""
    caller.reset()
    raise ConnectionError


@asynccontextmanager
async def visibility(
    server: WebServer,
    *,
    timeout_seconds: UpstreamTimeouts = QUICK,
    schema: Callable[[str, str], Raw | None] = lambda *_: None,
    **spec: object,
) -> AsyncIterator[HttpUpstream]:
    """An upstream in front of the server, which must leave nothing behind."""
    async with serving(server) as served:
        server.served = served
        client = HttpClient(environment={})
        given = UpstreamSpec(**{"name": "server", "kind": "http", "url": served.url, **spec})  # type: ignore[arg-type]
        place = HttpEndpoint(
            spec=given, client=client, target=Target(served.url), timeout_seconds=timeout_seconds, limit=LIMIT
        )
        upstream = HttpUpstream(place, schema)
        try:
            yield upstream
        finally:
            await within(upstream.close())
            await within(client.close())
