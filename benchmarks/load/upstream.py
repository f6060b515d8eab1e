"""A fast MCP server to put behind a proxy, on pipes or HTTP, with any number of tools.

    python -m benchmarks.load.upstream stdio|PORT TOOLS

It writes the protocol by hand, its catalogue once, so that it is never the slow part: 9 µs a call on pipes, 18 µs over
HTTP. `bench_echo` with the text "#stats" answers with the number of requests of each method that this process has
seen, which shows what a proxy keeps or repeats.
"""

import asyncio
import contextlib
import os
import sys
import threading
import uuid
from collections import Counter
from typing import Any

import msgspec

from benchmarks.load import catalog

_HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_MODERN = "2026-07-28"
_MODERN_KEY = "io.modelcontextprotocol/protocolVersion"
_SERVER = {"name": "bench-upstream", "version": "1.0.0"}

encode, decode = msgspec.json.encode, msgspec.json.decode


class Server:
    """Answers one message at a time."""

    def __init__(self, tools: int | list[catalog.Tool]) -> None:
        """`tools` are those that it lists, or how many of a realistic catalogue."""
        self._tools = encode(catalog.make(tools) if isinstance(tools, int) else tools)
        self._seen: Counter[str] = Counter()

    def answer(self, message: Any) -> tuple[bytes, float]:
        """The answer, empty if there is none, and the seconds after which it is due."""
        method, request_id = message.get("method"), message.get("id")
        if method is None:
            return b"", 0
        self._seen[method] += 1
        if request_id is None:
            return b"", 0
        result, seconds = self._result(method, message.get("params") or {})
        return b'{"jsonrpc":"2.0","id":' + encode(request_id) + b"," + result + b"}", seconds

    def _result(self, method: str, params: Any) -> tuple[bytes, float]:
        modern = _MODERN_KEY in (params.get("_meta") or ())
        complete = b',"resultType":"complete"' if modern else b""
        if method == "tools/call":
            text, seconds = self._called(params.get("name"), params.get("arguments") or {})
            return b'"result":{"content":[{"type":"text","text":' + encode(text) + b"}]" + complete + b"}", seconds
        if method == "tools/list":
            caching = b',"ttlMs":0,"cacheScope":"private"' if modern else b""
            return b'"result":{"tools":' + self._tools + complete + caching + b"}", 0
        if method == "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in _HANDSHAKE else _HANDSHAKE[-1]
            return _member({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": _SERVER}), 0
        if method == "server/discover":
            return _member(_DISCOVERED), 0
        if method == "ping":
            return b'"result":{}', 0
        return b'"error":{"code":-32601,"message":"Method not found"}', 0

    def _called(self, name: str, arguments: Any) -> tuple[str, float]:
        if name == "bench_sleep":
            return "slept", arguments.get("ms", 0) / 1000
        text = str(arguments.get("text", "ok"))
        return (encode(self._seen).decode() if text == "#stats" else text), 0


_DISCOVERED = {
    "supportedVersions": [_MODERN],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": _SERVER},
}


def _member(result: Any) -> bytes:
    return b'"result":' + encode(result)


def serve_stdio(server: Server) -> None:
    """Serve on pipes until the input ends: blocking, for no event loop is faster for one client."""
    lock = threading.Lock()

    def write(data: bytes) -> None:
        view = memoryview(data)
        with lock:
            while view:
                view = view[os.write(1, view) :]

    rest = b""
    while data := os.read(0, 1 << 18):
        *lines, rest = (rest + data).split(b"\n")
        ready = []
        for line in filter(None, map(bytes.strip, lines)):
            answer, seconds = server.answer(decode(line))
            if seconds:
                timer = threading.Timer(seconds, write, (answer + b"\n",))
                timer.daemon = True
                timer.start()
            elif answer:
                ready.append(answer + b"\n")
        if ready:
            write(b"".join(ready))


class HttpExchange(asyncio.Protocol):
    """One connection of a client over HTTP."""

    def __init__(self, server: Server) -> None:
        import httptools

        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._parser_error = httptools.HttpParserError
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        try:
            self._parser.feed_data(data)
        except self._parser_error:
            self._transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._body = b""

    def on_body(self, data: bytes) -> None:
        """Bytes of its body."""
        self._body += data

    def on_message_complete(self) -> None:
        """Answer the request."""
        verb = self._parser.get_method()
        if verb != b"POST":
            self._send(b"200 OK" if verb == b"DELETE" else b"405 Method Not Allowed")
            return
        message = decode(self._body)
        answer, seconds = self._server.answer(message)
        status, headers = b"200 OK" if answer else b"202 Accepted", b""
        if message.get("method") == "initialize":
            headers = b"Mcp-Session-Id: %s\r\n" % uuid.uuid4().hex.encode()
        if seconds:
            self._loop.call_later(seconds, self._send, status, answer, headers)
        else:
            self._send(status, answer, headers)

    def _send(self, status: bytes, body: bytes = b"", headers: bytes = b"") -> None:
        if not self._transport.is_closing():
            head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n"
            self._transport.write(head % (status, len(body), headers) + body)


async def serve_http(server: Server, port: int) -> None:
    """Serve every path of a port."""
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: HttpExchange(server), "127.0.0.1", port, backlog=4096)
    async with listener:
        await listener.serve_forever()


def main() -> None:
    where, tools = sys.argv[1:]
    server = Server(int(tools))
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        if where == "stdio":
            serve_stdio(server)
        else:
            import uvloop

            uvloop.run(serve_http(server, int(where)))


if __name__ == "__main__":
    main()
